"""What peers want of their topics, as it changes, and what is left behind of what they wanted.

The changes are planned before a run, as the rest of the load: every protocol of a comparison meets
the same. A peer that is down while it should unsubscribe has left all the same, and comes back
without the topic.
"""

import random
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rumormill.core.ids import PeerId, Topic
from rumormill.core.machine import Machine
from rumormill.sim.churn import Unsubscribing, draw_absences
from rumormill.sim.workload import Plan


class Change(msgspec.Struct, frozen=True, gc=False):
    """A peer subscribes to a topic of the plan, or ceases to."""

    at: float
    peer: int
    topic: str
    subscribes: bool


def plan_changes(unsubscribing: Unsubscribing, plan: Plan, rng: random.Random) -> list[Change]:
    """Return every change of a plan's subscriptions that falls into the run, in order of time."""
    pairs = [(peer, topic) for peer, mine in enumerate(plan.subscriptions) for topic in mine]
    during = (plan.start, plan.last_publication)
    changes = []
    for absence in draw_absences(unsubscribing, range(len(pairs)), len(pairs), during, rng):
        peer, topic = pairs[absence.who]
        changes.append(Change(absence.left, peer, topic, False))
        changes.append(Change(absence.back, peer, topic, True))
    return sorted([each for each in changes if each.at <= plan.end], key=lambda each: each.at)


class Wishes:
    """Who wants which topics of the plan now, and who has left which."""

    def __init__(self, plan: Plan) -> None:
        self.wanted = [dict.fromkeys(topics) for topics in plan.subscriptions]
        self.left: list[dict[str, None]] = [{} for _ in plan.subscriptions]

    def change(self, change: Change) -> None:
        """Note what a peer wants from now on."""
        wanted, left = self.wanted[change.peer], self.left[change.peer]
        if not change.subscribes:
            wanted, left = left, wanted
        wanted[change.topic] = None
        left.pop(change.topic, None)


def left_behind(
    machines: Mapping[PeerId, Machine], gone: Iterable[tuple[PeerId, Topic]]
) -> dict[str, Any]:
    """Count what is known of subscriptions that have ended, as far as their peers are up.

    `entries` are those of other peers that would send them something; `links` those that they keep
    for the topic themselves.
    """
    ended = dict.fromkeys(pair for pair in gone if pair[0] in machines)
    entries = links = 0
    for own, machine in machines.items():
        view = machine.view()
        entries += sum((peer, topic) in ended for topic in view.peers for peer in view.peers[topic])
        for by_topic in view.links.values():
            links += sum(len(peers) for topic, peers in by_topic.items() if (own, topic) in ended)
    return {"left_behind": {"ended": len(ended), "entries": entries, "links": links}}
