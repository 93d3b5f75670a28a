"""What happens in a demonstration, decided before it begins: the same for every protocol.

The load is the first comments of Reddit's year 2007 (`sim.workload`), and victims and moments of
kills follow from the seed. Moments are counted in publications, so that a slow machine kills at the
same place.
"""

import random
from typing import Final

import msgspec

from rumormill.core.config import nearest
from rumormill.core.errors import ConfigError
from rumormill.sim.scenario import Scenario
from rumormill.sim.workload import PlannedPublish, build_plan

LEAST_NODES: Final = 3
MOST_NODES: Final = 40
"""Our choice: two cores start no more than that within a minute, at 45 MB each."""

MOST_EVENTS: Final = 5000
"""Our choice: a run of some minutes."""

RATE: Final = 20.0
"""Publications per second in the whole network; our choice: what two cores carry for every protocol
beside Spark, so that the latencies are the protocols' own."""

_FIRST_KILL, _LAST_KILL, _ABSENCE = 0.2, 0.5, 0.2
"""Shares of the publications: when victims die, and how long each is away. Our choice: the last is
back well before the end, and has something to catch up with."""


class Participant(msgspec.Struct, frozen=True):
    """A protocol that takes part, with one of its presets."""

    label: str
    protocol: str
    preset: str = "default"


PARTICIPANTS: Final = (
    Participant("floodsub", "floodsub"),
    Participant("gossipsub", "gossipsub"),
    # Everybody comments, so everybody may publish; by default others ask the topic's author.
    # Who comes back compares its history with its parent when it renews an edge.
    Participant("pulsarcast", "pulsarcast", "open"),
    # Its supervisor needs some ten rounds until it has found out who is dead.
    Participant("skipring", "skipring"),
    # The variant that pays off in small networks already.
    Participant("radius", "radius", "few"),
)


class Kill(msgspec.Struct, frozen=True):
    """A node that dies when so many events have been published, and comes back later."""

    node: int
    after: int
    back_after: int


class Script(msgspec.Struct, frozen=True):
    """Who subscribes to what, who publishes what, who is killed.

    Nodes are numbered from 0; the observer, which publishes nothing and follows every topic, has
    the number behind the last.
    """

    nodes: int
    seed: int
    topics: tuple[str, ...]
    subscriptions: list[tuple[str, ...]]
    publications: list[PlannedPublish]
    kills: list[Kill]

    @property
    def observer(self) -> int:
        """The observer's number."""
        return self.nodes


def chosen(names: list[str]) -> list[Participant]:
    """The participants of these names, in the order given; all of them if none is named."""
    known = {each.label: each for each in PARTICIPANTS}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"protocol: there is no protocol {name!r}; {nearest(name, list(known))}"
            )
    return [known[name] for name in dict.fromkeys(names)] or list(PARTICIPANTS)


def write_script(nodes: int, events: int, seed: int) -> Script:
    """Decide everything."""
    if not LEAST_NODES <= nodes <= MOST_NODES:
        raise ConfigError(f"nodes: must be from {LEAST_NODES} to {MOST_NODES}")
    if not 1 <= events <= MOST_EVENTS:
        raise ConfigError(f"events: must be from 1 to {MOST_EVENTS}")
    scenario = Scenario().changed(
        {
            "peers": nodes,
            "seed": seed,
            "workload.kind": "reddit2007",
            "workload.limit": events,
            "workload.rate": RATE,
        }
    )
    plan = build_plan(scenario, random.Random(f"{seed} load"))
    used = dict.fromkeys(event.topic for event in plan.publications)
    topics = tuple(topic for topic in plan.topics if topic in used)
    subscriptions = [tuple(each for each in topics if each in mine) for mine in plan.subscriptions]
    start = plan.start
    publications = [msgspec.structs.replace(each, at=each.at - start) for each in plan.publications]
    kills = _kills(nodes, len(publications), random.Random(f"{seed} kills"))
    return Script(nodes, seed, topics, [*subscriptions, topics], publications, kills)


def _kills(nodes: int, events: int, rng: random.Random) -> list[Kill]:
    """A third of the nodes die, one after another."""
    victims = rng.sample(range(nodes), max(1, nodes // 3))
    step = (_LAST_KILL - _FIRST_KILL) / max(1, len(victims) - 1)
    return [
        Kill(
            victim,
            int(events * (_FIRST_KILL + number * step)),
            int(events * (_FIRST_KILL + number * step + _ABSENCE)),
        )
        for number, victim in enumerate(victims)
    ]
