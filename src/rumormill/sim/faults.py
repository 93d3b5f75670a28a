"""Faults: a scenario's entries and its churn turned into a list of actions ordered by time.

The rule that the list keeps: a peer is struck only while it is not, and released only while it is.
So a crash never hits a peer that is down, and each restart follows a crash. A peer that several
entries hold stays struck until the last of them lets go, as the first says; an ending
written in the file releases its peers from all. An ending without peers releases everyone who is
struck at that time. A partition replaces the one before it. Peers that an entry crashes or pauses
take no part in churn (`sim.churn`).
"""

import random
from typing import Final

import msgspec

from rumormill.core.config import require
from rumormill.sim.churn import draw_absences
from rumormill.sim.scenario import ENDINGS, Fault, FaultKind, Lie, Scenario
from rumormill.sim.workload import Plan

STRIKES: Final[dict[FaultKind, FaultKind]] = {ending: kind for kind, ending in ENDINGS.items()}
"""Which fault an ending ends."""


class FaultAction(msgspec.Struct, frozen=True):
    """What happens to which peers at one moment of virtual time."""

    at: float
    kind: FaultKind
    peers: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    """For a partition: disjoint groups that together hold every peer."""
    keep_state: bool = False
    """For a restart: whether the peer still knows what it knew."""
    rate: float = 0.0
    """RPCs per second that a slow reader reads, or that a byzantine peer sends."""
    lie: Lie = "junk"
    """What a byzantine peer does."""


class _Step(msgspec.Struct):
    """An entry's strike or its ending, before it is known whom it changes."""

    at: float
    kind: FaultKind
    entry: int
    fault: Fault
    peers: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    by_itself: bool
    """Whether this ending follows from a duration instead of standing in the file."""


def expand_faults(
    scenario: Scenario, plan: Plan, rng: random.Random, servers: int = 0
) -> list[FaultAction]:
    """Return every action of a validated scenario that falls into the run, ordered by time.

    A protocol's servers are numbered behind the peers.
    """
    steps = _steps(scenario, rng, servers)
    actions = _played(steps)
    absent = dict.fromkeys(
        peer for step in steps if step.kind in {"crash", "pause"} for peer in step.peers
    )
    moving = [peer for peer in range(scenario.peers) if peer not in absent]
    during = (plan.start, plan.last_publication)
    for absence in draw_absences(scenario.churn, moving, scenario.peers, during, rng):
        who, keep = (absence.who,), scenario.churn.keep_state
        actions.append(FaultAction(absence.left, "crash", who))
        actions.append(FaultAction(absence.back, "restart", who, keep_state=keep))
    in_time = [action for action in actions if action.at <= plan.end]
    return sorted(in_time, key=lambda action: action.at)


def _steps(scenario: Scenario, rng: random.Random, servers: int) -> list[_Step]:
    """Draw the targets of each entry, in the order of the file, and add its own ending."""
    steps = []
    for entry, fault in enumerate(scenario.faults):
        at = scenario.workload_start + fault.at
        peers: tuple[int, ...] = fault.peers
        groups: tuple[tuple[int, ...], ...] = ()
        if fault.kind == "partition":
            peers, groups = (), _groups(fault, scenario.peers, rng)
            behind = tuple(range(scenario.peers, scenario.peers + servers))
            groups = (*groups[:-1], groups[-1] + behind)
        elif fault.fraction:
            peers = _drawn(fault.fraction, scenario.peers, rng)
        for number in fault.servers:
            key, rule = f"faults[{entry}].servers", f"{number} is no server; there are {servers}"
            require(0 <= number < servers, key, rule)
        peers += tuple(scenario.peers + number for number in fault.servers)
        steps.append(_Step(at, fault.kind, entry, fault, peers, groups, False))
        if fault.duration is not None:
            ending = ENDINGS[fault.kind]
            steps.append(_Step(at + fault.duration, ending, entry, fault, peers, (), True))
    return sorted(steps, key=lambda step: step.at)


def _drawn(fraction: float, peers: int, rng: random.Random) -> tuple[int, ...]:
    """A share of all peers, at least one of them."""
    return tuple(sorted(rng.sample(range(peers), max(1, round(fraction * peers)))))


def _groups(fault: Fault, peers: int, rng: random.Random) -> tuple[tuple[int, ...], ...]:
    if isinstance(fault.groups, int):
        order = rng.sample(range(peers), peers)
        return tuple(tuple(sorted(order[place :: fault.groups])) for place in range(fault.groups))
    named = fault.groups or (fault.peers or _drawn(fault.fraction, peers, rng),)
    taken = dict.fromkeys(peer for group in named for peer in group)
    rest = tuple(peer for peer in range(peers) if peer not in taken)
    return (*named, rest) if rest else named


def _played(steps: list[_Step]) -> list[FaultAction]:
    """Play the steps in order of time and keep what changes a peer or the partition."""
    actions = []
    holds: dict[FaultKind, dict[int, dict[int, None]]] = {kind: {} for kind in ENDINGS}
    partition: int | None = None
    for step in steps:
        fault, changed = step.fault, step.peers
        if step.kind == "partition":
            partition = step.entry
        elif step.kind == "heal":
            if step.by_itself and partition != step.entry:
                continue
            rule = "nothing is partitioned at this time"
            require(partition is not None, f"faults[{step.entry}].kind", rule)
            partition = None
        else:
            change = _struck if step.kind in ENDINGS else _released
            changed = change(step, holds[STRIKES.get(step.kind, step.kind)])
            if not changed:
                continue
        keep_state = step.kind == "restart" and fault.keep_state
        rate = fault.rate if step.kind in {"slow-reader", "byzantine"} else 0.0
        actions.append(
            FaultAction(step.at, step.kind, changed, step.groups, keep_state, rate, fault.lie)
        )
    return actions


def _struck(step: _Step, held: dict[int, dict[int, None]]) -> tuple[int, ...]:
    """Hold the step's peers and return those that nobody held before."""
    fresh = tuple(peer for peer in step.peers if peer not in held)
    for peer in step.peers:
        held.setdefault(peer, {})[step.entry] = None
    return fresh


def _released(step: _Step, held: dict[int, dict[int, None]]) -> tuple[int, ...]:
    """Let go of the step's peers and return those that nobody holds any more."""
    if step.by_itself:
        mine = [peer for peer in step.peers if step.entry in held.get(peer, ())]
        for peer in mine:
            del held[peer][step.entry]
        free = tuple(peer for peer in mine if not held[peer])
    else:
        key, struck_by = f"faults[{step.entry}].peers", STRIKES[step.kind]
        free = step.peers or tuple(sorted(held))
        require(bool(free), key, f"nobody is under {struck_by} at this time")
        for peer in free:
            require(peer in held, key, f"peer {peer} is not under {struck_by} at this time")
    for peer in free:
        del held[peer]
    return free
