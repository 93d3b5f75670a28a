"""The books of whole runs: nothing is lost silently, nothing twice, and quiet heals.

A grid of seeds and troubles. Whatever happens, every pair of an event and a subscriber that was up
ends as delivered, pending, or dropped for a reason, topic by topic. What a protocol promises beyond
that is said trouble by trouble. A failure shows the seed and the command that repeats the run.
"""

from typing import Any

import pytest
from sim_rig import Run

from rumormill.core.trace import NodeDown, NodeUp, PublishMessage
from rumormill.sim.churn import Churn
from rumormill.sim.scenario import Fault, Links, Scenario, Topology, Workload

SEEDS = range(1, 5)
PROTOCOLS = ("gossipsub", "floodsub")
QUIET = 6.0
"""Seconds of the workload from which on all faults are over and links are there again."""

TROUBLES: dict[str, dict[str, Any]] = {
    "none": {},
    "jitter": {"links": Links(jitter=0.1, reorder=0.3)},
    "bandwidth": {"links": Links(bandwidth="1mbit")},
    "loss": {"links": Links(loss=0.05)},
    "full queues": {"links": Links(bandwidth="30kbit", queue_limit=4)},
    "churn": {"churn": Churn(rate=60.0, downtime=2.0)},
    "churn with state": {"churn": Churn(rate=60.0, downtime=2.0, keep_state=True)},
    "partition": {"faults": (Fault(kind="partition", at=1.0, groups=2, duration=3.0),)},
    "crash": {"faults": (Fault(kind="crash", at=1.0, fraction=0.3, duration=3.0),)},
    "pause": {"faults": (Fault(kind="pause", at=1.0, fraction=0.3, duration=3.0),)},
    "slow reader": {
        "faults": (Fault(kind="slow-reader", at=1.0, fraction=0.2, rate=5.0, duration=3.0),)
    },
    "byzantine": {
        "faults": (Fault(kind="byzantine", at=1.0, fraction=0.2, rate=20.0, duration=3.0),)
    },
    "everything": {
        "links": Links(jitter=0.02, loss=0.02, bandwidth="5mbit", queue_limit=64),
        "churn": Churn(rate=30.0, downtime=2.0),
        "faults": (
            Fault(kind="partition", at=1.0, groups=2, duration=2.0),
            Fault(kind="crash", at=1.5, fraction=0.2, duration=2.0, keep_state=True),
            Fault(kind="pause", at=1.2, fraction=0.2, duration=1.5),
            Fault(kind="slow-reader", at=1.0, fraction=0.2, rate=5.0, duration=3.0),
            Fault(kind="byzantine", at=0.5, fraction=0.2, rate=20.0, duration=3.0),
        ),
    },
}

NOTHING_IS_LOST = ("none", "jitter", "bandwidth", "pause", "slow reader")
"""Where every subscriber gets everything from both protocols: nobody is away, queues suffice."""

GOSSIP_REPAIRS = ("loss",)
"""Where GossipSub gets everything to everybody although links lose it."""

STAYERS_GET_ALL = ("churn", "churn with state", "crash", "loss")
"""Where GossipSub gets what stayers publish to all stayers: peers that have been up for a while and
stay up. Who has just started is in no mesh yet, and what is published then may pass it by."""

A_WHILE = 2.0
"""Seconds in which a peer learns its neighbours' topics, is taken into meshes, and gets gossip."""

QUIET_HEALS = ("partition", "crash")
"""Where what is published after the faults reaches everybody again."""


def play(protocol: str, trouble: str, seed: int) -> Run:
    scenario = Scenario(
        name=trouble,
        protocol=protocol,
        seed=seed,
        peers=20,
        topology=Topology(degree=6),
        warm_up=4.0,
        cool_down=8.0,
        check_codec=True,
        workload=Workload(kind="poisson", topics=2, messages=64, rate=8.0),
        **TROUBLES[trouble],
    )
    return Run(scenario, keep_trace=True)


def missing_since(run: Run, since: float) -> int:
    """Pairs of a peer and a message published from a moment of the workload on, not delivered."""
    start = run.simulation.plan.start + since
    late = [payload.message_id for now, _, payload in run.trace(PublishMessage) if now >= start]
    assert late, run
    got = [dict.fromkeys(message_id for _, message_id in mine) for mine in run.delivered]
    return sum(message_id not in mine for mine in got for message_id in late)


def missing_among_stayers(run: Run) -> int:
    """Pairs of a message and a peer, not delivered, where author and peer stayed up around it."""
    changes: list[list[float]] = [[] for _ in range(run.scenario.peers)]
    for kind in (NodeUp, NodeDown):
        for now, peer, _ in run.trace(kind):
            changes[peer].append(now)
    got = [dict.fromkeys(message_id for _, message_id in mine) for mine in run.delivered]
    missing = 0
    for at, author, payload in run.trace(PublishMessage):
        stayers = [
            peer
            for peer, times in enumerate(changes)
            if not any(at - A_WHILE <= now <= at + A_WHILE for now in times)
            and sum(now < at for now in times) % 2
        ]
        if author in stayers:
            missing += sum(payload.message_id not in got[peer] for peer in stayers)
    return missing


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_lost_silently(protocol: str, trouble: str, seed: int) -> None:
    """The books balance, applications get nothing twice, and promises are kept."""
    run = play(protocol, trouble, seed)
    run.check_books()
    summary = run.summary
    planned = len(run.simulation.plan.publications)
    assert summary["planned"] == planned, run
    if trouble not in {"churn", "crash", "byzantine", "everything"}:
        run.check_single_deliveries()  # these lose what they had seen, and may get it again
        assert summary["repeated_deliveries"] == 0, run
    if trouble in NOTHING_IS_LOST or (trouble in GOSSIP_REPAIRS and protocol == "gossipsub"):
        assert summary["delivered"] == summary["expected_deliveries"], run
    if trouble in STAYERS_GET_ALL and protocol == "gossipsub":
        assert missing_among_stayers(run) == 0, run
    if trouble in QUIET_HEALS:
        assert missing_since(run, QUIET) == 0, run


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_applications_and_the_trace_agree(protocol: str) -> None:
    """What the ledger counts as delivered is what applications were handed."""
    run = play(protocol, "everything", 1)
    sums = run.metrics.ledger.total()
    handed = sum(len(mine) for mine in run.delivered)
    assert handed == sums.delivered + sums.extra + sums.repeated, run


def test_losses_have_the_reason_that_caused_them() -> None:
    """Queues that are too short show up in the books under their own name."""
    run = play("floodsub", "full queues", 1)
    assert run.summary["rpcs_dropped"].keys() == {"queue full"}
    assert run.summary["dropped"].keys() == {"queue full"}
    assert run.summary["dropped"]["queue full"] > 0
