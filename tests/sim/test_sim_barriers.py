"""Barriers: what others hear of, and what a publisher is told, is on the disk of whoever said it.

Every run has disks that take their time, fill up and fail, and peers that crash and come back. The
check holds each message that leaves a peer against that peer's journal *at that moment*: since it
holds for every moment, a crash at any point finds nothing out in the world that was not stored.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sim_rig import TraceLog

from rumormill.core import trace
from rumormill.core.effects import Effects, Published
from rumormill.core.inputs import Publish, Stored
from rumormill.protocols.pubsub.router import PubSubRouter
from rumormill.protocols.registry import PROTOCOL_NAMES
from rumormill.sim.host import Host
from rumormill.sim.replay import how_to_repeat
from rumormill.sim.scenario import Churn, Disk, Fault, Links, Scenario, Topology, Workload
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
        for host in self.simulation.network.hosts:
            host.receipts = Receipts(self, host)  # type: ignore[assignment]
        self.simulation.run()
        self.authors: dict[bytes, bytes] = {}
        """Who published an event, by its id."""
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


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
@settings(max_examples=25, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32), commit_delay=st.sampled_from([0.001, 0.05, 0.4, 1.5]))
def test_nobody_hears_of_what_is_not_stored(protocol: str, seed: int, commit_delay: float) -> None:
    """Events, gossip of them, grants and receipts: all behind their commit."""
    Watch(scenario(protocol, seed, commit_delay)).check()


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
