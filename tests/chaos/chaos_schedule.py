"""Schedules of faults: values that a seed decides, that are printed, and that can be replayed."""

import random
from typing import Final

import msgspec

PROTOCOLS: Final = ("floodsub", "gossipsub", "pulsarcast", "skipring", "radius")

CLOCK_STEPS: Final = {"pulsarcast": (-40.0, -5.0, 5.0, 40.0)}
"""Who is a minute ahead is not heard, Pulsarcast says: not a fault, but a rule."""
ANY_STEP: Final = (-86_400.0, -3600.0, -5.0, 5.0, 3600.0, 86_400.0)


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happens to nodes at a time, for some time. Nodes are numbers."""

    kind: str
    at: float
    seconds: float | None
    """None: until the network has settled in spite of it."""
    nodes: tuple[int, ...]
    """Whom it befalls: the victim, the two ends of a link, or one side of a partition."""
    amount: float = 0.0
    """Of a step of the clock: seconds. Of a power cut: a seed for what of the unflushed is left,
    or 0 for nothing. Of damage to be repaired: where, as a part of the log. Of retention: how many
    events stay."""


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One round: a network of a protocol, and what happens to it while it publishes."""

    protocol: str
    nodes: int
    seconds: float
    faults: tuple[Fault, ...]
    pause: float = 0.03
    """Seconds between two events of each of a node's two publishers."""

    @property
    def size(self) -> int:
        """All processes: a skip ring has a supervisor besides, the last."""
        return self.nodes + (self.protocol == "skipring")

    def text(self) -> str:
        """As it is printed, and read by `--schedule`."""
        return msgspec.json.encode(self).decode()


def read_schedule(text: str) -> Schedule:
    """Read a schedule as it was printed."""
    return msgspec.json.decode(text, type=Schedule)


KINDS: Final = {
    "kill": 6,
    "crowd": 1,
    "late": 1,
    "pause": 3,
    "partition": 3,
    "slow": 2,
    "half-open": 2,
    "cut": 2,
    "full-disk": 2,
    "no-space": 1,
    "no-heads": 1,
    "broken-disk": 1,
    "broken-flush": 1,
    "power-cut": 3,
    "clock": 2,
    "clock-restart": 1,
    "descriptors": 2,
    "backup": 1,
    "restore": 2,
    "repair": 2,
    "retain": 1,
    "compact": 1,
    "import": 1,
    "newcomer": 1,
}
"""What happens, and how often in comparison: docs/contributing.md says what each is."""


def write_schedule(seed: int, protocol: str, *, nodes: int = 4, seconds: float = 2.5) -> Schedule:
    """Draw a schedule. The same arguments give the same one."""
    dice = random.Random(f"{seed} {protocol} {nodes}")
    size = nodes + (protocol == "skipring")
    kinds = dice.choices(list(KINDS), KINDS.values(), k=dice.randint(3, 6))
    unlucky = dice.randrange(size)
    faults = [_draw(dice, kind, unlucky, protocol, size, seconds) for kind in kinds]
    return Schedule(protocol, nodes, seconds, tuple(sorted(faults, key=lambda fault: fault.at)))


def _draw(
    dice: random.Random, kind: str, unlucky: int, protocol: str, size: int, seconds: float
) -> Fault:
    """Draw a fault. Half of those that befall one node befall the unlucky one: some failures take
    several faults, one after the other."""
    at = round(dice.uniform(0.0, 0.8 * seconds), 2)
    lasts = round(dice.uniform(0.1, 0.6 * seconds), 2)
    amount = 0.0
    everybody = range(size)
    if kind == "partition" or kind == "crowd":
        nodes = dice.sample(everybody, dice.randint(1, max(1, size // 2)))
    elif kind in ("slow", "half-open", "cut"):
        nodes = dice.sample(everybody, 2)
    else:
        nodes = [dice.choice((unlucky, dice.choice(everybody)))]
    if kind.startswith("clock"):
        amount = dice.choice(CLOCK_STEPS.get(protocol, ANY_STEP))
    if kind == "power-cut":
        amount = float(dice.randrange(4))
    if kind == "repair":
        amount = round(dice.random(), 3)
    if kind == "retain":
        amount = float(dice.choice((1, 10, 40)))
    if kind in ("late", "newcomer"):  # not the first, who makes the topics, nor the supervisor
        at, nodes = 0.0, [dice.randrange(1, size - (protocol == "skipring"))]
    return Fault(kind, at, lasts, tuple(nodes), amount)
