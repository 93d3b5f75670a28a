"""Barriers: what others hear of, and what a publisher is told, is on the disk of whoever said it.

Every run has disks that take their time, fill up and fail, and peers that crash, stand still and
come back, all from a seed. The check holds each message that leaves a peer, and each event that its
application is given, against that peer's journal *at that moment*: since it holds for every moment,
a crash at any point finds nothing out in the world that was not stored. What has a receipt is in
its author's journal in the end. `RUMORMILL_SCHEDULES=N` makes the long form run N schedules.
"""

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from sim_rig import TraceLog

from rumormill.core import trace
from rumormill.core.effects import Effects, Published
from rumormill.core.event import Event
from rumormill.core.inputs import Publish, Stored
from rumormill.protocols.pubsub.router import PubSubRouter
from rumormill.protocols.registry import PROTOCOL_NAMES
from rumormill.sim.churn import Churn
from rumormill.sim.host import Host
from rumormill.sim.keeping import Disk
from rumormill.sim.replay import how_to_repeat
from rumormill.sim.scenario import Fault, Links, Scenario, Topology, Workload
from rumormill.sim.simulation import Simulation


def told(meta: trace.RpcMeta) -> Iterator[bytes]:
    """Every event that a message lets its receiver know of."""
    yield from (message.message_id for message in meta.messages)
    if meta.control is not None:
        for ihave in meta.control.ihave:
            yield from ihave.message_ids
        for unwanted in meta.control.idontwant:
            yield from unwanted.message_ids


class Watch:
    """A run, with what each peer's journal had whenever something was said."""

    def __init__(self, scenario: Scenario) -> None:
        scenario.validate()
        self.scenario = scenario
        self.log = TraceLog()
        self.simulation = Simulation(scenario, [self.log])
        self.engine = self.simulation.network.engine
        self.receipts: list[tuple[float, bytes, Published]] = []
        self.handed_out: list[tuple[float, bytes, Event]] = []
        for host in self.simulation.network.hosts:
            host.receipts = Receipts(self, host)  # type: ignore[assignment]
            host.on_event = lambda event, peer=host.id: self.handed_out.append(
                (self.engine.now, peer, event)
            )
        self.simulation.run()
        self.authors: dict[bytes, bytes] = {}
        """Who published an event, by its id; also one that crashed when its event was safe and
        nobody had been told, and spreads it when it is back."""
        for host in self.simulation.network.hosts:
            assert host.journal is not None
            for kept in host.journal._topics.values():
                self.authors |= {event.id: event.author for event in kept.events.values()}
        for _, peer, payload in self.log.entries:
            if isinstance(payload, trace.PublishMessage):
                self.authors[payload.message_id] = peer

    def stored_at(self, peer: bytes, event_id: bytes) -> float:
        """When an event was safe at a peer; never, if it is not."""
        journal = self.simulation.network.by_id[peer].journal
        assert journal is not None
        for kept in journal._topics.values():
            if event_id in kept.offsets:
                return kept.events[kept.offsets[event_id]].received
        return float("inf")

    def check(self) -> tuple[int, int]:
        """Hold everything that was said against the disks; return how much that was."""
        said: dict[bytes, float] = {}
        for now, peer, payload in self.log.entries:
            if isinstance(payload, trace.SendRPC):
                for event_id in told(payload.meta):
                    if self.authors.get(event_id, peer) == peer:
                        said.setdefault(event_id, now)
        for event_id, now in said.items():
            author = self.authors.get(event_id)
            assert author is not None, f"{event_id!r} was said and never published\n{self}"
            safe = self.stored_at(author, event_id)
            assert safe <= now, f"{event_id!r} was said at {now}, safe at {safe}\n{self}"
        given = 0
        for now, _, published in self.receipts:
            if published.event is not None:
                author = self.authors[published.event.id]
                assert self.stored_at(author, published.event.id) <= now, f"a receipt\n{self}"
                given += 1
        for now, peer, event in self.handed_out:
            assert self.stored_at(peer, event.id) <= now, f"{event.id!r} was handed out\n{self}"
        return len(said), given

    def __repr__(self) -> str:
        return how_to_repeat(self.scenario)


class Receipts(list[Published]):
    """Receipts, with when and to whom."""

    def __init__(self, watch: Watch, host: Host) -> None:
        self._watch = watch
        self._host = host

    def append(self, item: Published) -> None:
        self._watch.receipts.append((self._watch.engine.now, self._host.id, item))


def scenario(protocol: str, seed: int, commit_delay: float, **changes: Any) -> Scenario:
    values: dict[str, Any] = {
        "protocol": protocol,
        "seed": seed,
        "peers": 12,
        "topology": Topology(degree=4),
        "warm_up": 6.0,
        "cool_down": 6.0,
        "links": Links(latency="uniform:10ms-100ms"),
        "workload": Workload(kind="zipf", topics=2, messages=40, rate=8.0),
        "disk": Disk(commit_delay=commit_delay),
        "churn": Churn(rate=60.0, downtime=1.0, distribution="exponential"),
        "faults": (
            Fault(kind="disk-full", at=1.0, fraction=0.3, duration=1.0),
            Fault(kind="disk-broken", at=3.0, fraction=0.2, duration=1.0),
        ),
        **changes,
    }
    return Scenario(**values)


def schedule(protocol: str, seed: int) -> Scenario:
    """Disks, crashes and partitions from a seed."""
    rng = random.Random(f"{protocol} {seed}")
    kinds = ("disk-full", "disk-broken", "crash", "pause", "partition")
    faults = [
        Fault(
            kind=rng.choice(kinds),  # type: ignore[arg-type]
            at=rng.uniform(-4.0, 6.0),
            fraction=rng.choice((0.1, 0.3, 0.6)),
            duration=rng.choice((0.05, 0.5, 2.0)),
        )
        for _ in range(rng.randint(0, 4))
    ]
    churn = Churn(rate=rng.choice((10.0, 60.0)), downtime=1.0, distribution="exponential")
    return scenario(
        protocol,
        seed,
        rng.choice((0.001, 0.05, 0.4, 1.5)),
        peers=rng.randint(5, 12),
        workload=Workload(kind="zipf", topics=2, messages=30, rate=rng.choice((4.0, 20.0))),
        churn=rng.choice((Churn(), churn, churn)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_nobody_hears_of_what_is_not_stored(protocol: str) -> None:
    """Events, gossip of them, grants, receipts and deliveries: all behind their commit."""
    for seed in range(40):
        Watch(schedule(protocol, seed)).check()


def test_what_was_safe_when_its_author_crashed_is_spread_without_a_receipt() -> None:
    """It stood still when its disk was done, and crashed before it heard of it."""
    Watch(schedule("skipring", 1883)).check()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_nobody_hears_of_what_is_not_stored_in_ten_thousand_schedules(protocol: str) -> None:
    """The same, 10,000 over all protocols; seeds behind those of the short form."""
    count = int(os.environ.get("RUMORMILL_SCHEDULES", "10000")) // len(PROTOCOL_NAMES)
    said = receipts = 0
    for seed in range(40, 40 + count):
        more = Watch(schedule(protocol, seed)).check()
        said, receipts = said + more[0], receipts + more[1]
    assert said > 5 * count
    assert receipts > 5 * count


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_there_is_something_to_check(protocol: str) -> None:
    """On calm disks everything is said, and everybody who published has a receipt."""
    watch = Watch(scenario(protocol, 1, 0.05, churn=Churn(), faults=()))
    said, given_out = watch.check()
    assert said >= 40
    assert given_out >= 40


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_full_disk_is_answered_for(protocol: str) -> None:
    """Who publishes while the disk is full is told so, and the event is nowhere."""
    full = (Fault(kind="disk-full", at=-5.0, fraction=1.0),)
    watch = Watch(scenario(protocol, 1, 0.05, churn=Churn(), faults=full))
    assert watch.check() == (0, 0)
    if protocol != "pulsarcast":  # its topics could not be created either
        errors = [published.error for _, _, published in watch.receipts]
        assert errors == ["the disk is full"] * 40


def test_the_check_sees_a_router_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router that spreads what it has only appended is found out."""
    waits = PubSubRouter._on_publish

    def hasty(self: PubSubRouter, event: Publish, now: float, effects: Effects) -> None:
        waits(self, event, now, effects)
        self._on_stored(Stored((self._unsaid._last,)), now, effects)

    monkeypatch.setattr(PubSubRouter, "_on_publish", hasty)
    monkeypatch.setattr(Host, "_answer_machine", lambda host: host._answers.clear())
    watch = Watch(scenario("floodsub", 1, 0.4, churn=Churn(), faults=()))
    with pytest.raises(AssertionError, match="was said at"):
        watch.check()


def test_crashes_find_events_on_their_way_to_the_disk() -> None:
    """The runs are hard enough: publications do get lost before anybody hears of them."""
    lost = 0
    for seed in range(5):
        watch = Watch(scenario("floodsub", seed, 1.5))
        watch.check()
        lost += sum(published.event is None for _, _, published in watch.receipts)
    assert lost > 0
