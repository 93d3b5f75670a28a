"""A peer is its fields alone: dumped and restored with operations of every kind open, it goes on as
it would have.

`tests/sim/test_sim_snapshot.py` does this for whole networks of every protocol; here the story is
made so that everything that a Pulsarcast peer can wait for is waited for at some moment.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from pulsarcast_rig import World, event_by

from rumormill.core.effects import Outcome
from rumormill.core.inputs import LogChanged, Publish, Subscribe
from rumormill.protocols.pulsarcast.commands import (
    CreateTopic,
    DescribeTopic,
    FetchEvent,
    ReadHistory,
    ShowTopic,
    SubscribeTo,
)
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.codec import encode_signatures
from rumormill.protocols.pulsarcast.history import feed
from rumormill.protocols.pulsarcast.peer import PulsarcastPeer
from rumormill.protocols.pulsarcast.tree.known_topics import PatientLook
from rumormill.sim.link import LinkFaults
from rumormill.sim.snapshot import Given, dump, restore, state_of

COUNT = 7
STEP = 0.1
QUICK = {
    "fan_out": 2,
    "refresh_interval": 2.0,
    "sync_settle": 1.0,
    "move_linger": 0.5,
    "gap_delay": 0.2,
    "fetch_timeout": 1.0,
    "request_retry": 1.0,
    "publish_linger": 5.0,
    "fetch_batch": 16,
}


class Tale:
    """One story, told with or without breaks."""

    def __init__(self, *, breaks: bool) -> None:
        faults = LinkFaults(jitter=0.05, loss=0.12, reorder=0.1, queue_limit=1024)
        self.world = World(COUNT, seed=4, faults=faults, commit_delay=0.4, **QUICK)
        self.breaks = breaks
        self.seen: dict[type, None] = {}
        """Which kinds of operations were open at a break."""
        self.outcomes: list[Outcome] = []
        self.said = 0

    def run(self, seconds: float) -> None:
        """Let time pass; with breaks, every machine is replaced by one made of its dump."""
        for _ in range(round(seconds / STEP)):
            self.speak(self.said % COUNT)
            self.world.run(STEP)
            for host in self.world.network.hosts:
                machine = host.machine
                assert isinstance(machine, PulsarcastPeer)
                self.seen |= dict.fromkeys(open_kinds(machine))
                if self.breaks:
                    host.machine = put_away(machine)

    def speak(self, index: int) -> None:
        """Let somebody publish, so that the disks are never quiet."""
        self.said += 1
        host, topic = self.world.host(index), self.topics[self.said % 2]
        if host.up:
            host.handle(Publish(topic, b"%d" % self.said, self.said))

    def command(self, index: int, body: object) -> None:
        """Put a command to a peer without waiting for its outcome."""
        self.world.host(index).command(body, self.outcomes.append)

    def tell(self) -> None:
        """Let everything happen that a peer can wait for."""
        world = self.world
        ordered, everybody = self.topics = [
            world.create(0),
            world.create(1, allowed_publishers=None),
        ]
        other = world.create(3, "other")
        for index in range(2, COUNT - 1):
            for topic in self.topics:
                world.host(index).handle(Subscribe(topic))
        self.command(2, SubscribeTo(topic=everybody))
        self.run(5.0)
        nowhere = cids.text(cids.of(b"nowhere"))
        last = COUNT - 1
        world.host(last).handle(Subscribe(other, publish_only=True))
        self.command(last, SubscribeTo(topic=everybody))
        self.command(2, ShowTopic(topic=nowhere))
        stray = event_by(3, cids.parse(nowhere), b"of a lost topic", "1970-01-01T00:00:01.000Z")
        world.machine(3)._fetcher.offer(
            stray.cid,
            stray.event.dag(),
            world.now,
            world.host(3).effects,
            proof=encode_signatures(stray),
        )
        world.host(3).carry_out()
        self.command(4, FetchEvent(event=stray.cid))
        self.command(3, CreateTopic(name="linked", sub_topics={"other": nowhere}))
        self.command(0, CreateTopic(name="news", parent=ordered))
        self.run(2.0)
        self.command(4, DescribeTopic(topic=everybody))
        self.command(5, ReadHistory(topic=everybody))
        world.crash(2)
        self.run(2.0)
        world.network.start(world.host(2))
        world.wire(range(COUNT))
        for topic in self.topics:
            world.host(2).handle(Subscribe(topic))
        self.run(4.0)
        world.crash(1)
        for _ in range(18):
            world.host(3).handle(LogChanged())
            for number in range(6 * COUNT):
                self.speak(number % COUNT)
            self.run(0.1)
        self.run(5.0)

    def ending(self) -> tuple[Any, ...]:
        """Everything that was traced, and in which state everybody is."""
        self.world.recorder.flush()
        states = [state(host.machine) for host in self.world.network.hosts]
        return self.world.watch.entries, self.outcomes, states


def open_kinds(machine: PulsarcastPeer) -> Iterator[type]:
    """The kinds of operations that wait for something, also inside a patient look."""
    for waiting in machine._operations._waiting.values():
        for operation in waiting:
            yield type(operation)
            if isinstance(operation, PatientLook):
                yield type(operation.operation)


def given(machine: PulsarcastPeer) -> Given:
    """What its runtime gave it."""
    return Given(machine._context.identity, machine._context.hooks)


def state(machine: Any) -> str:
    """A machine's whole state as text."""
    return json.dumps(state_of(machine, given(machine)))


def put_away(machine: PulsarcastPeer) -> PulsarcastPeer:
    """A machine made of another's dump."""
    again = restore(dump(machine, given(machine)), given(machine))
    assert isinstance(again, PulsarcastPeer)
    return again


def test_with_operations_of_every_kind_open_a_peer_goes_on_from_its_dump(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same trace, the same outcomes, the same states at the end."""
    monkeypatch.setattr(feed, "_RECENT", 8)
    through, broken = Tale(breaks=False), Tale(breaks=True)
    through.tell()
    broken.tell()
    assert broken.ending() == through.ending()
    machine = through.world.machine(0)
    kinds = {kind for kind, _ in machine._operations.steps}
    assert set(broken.seen) == kinds


def test_an_operation_is_a_value() -> None:
    """Frozen, so that what waits in the table can be shared, compared and written down."""
    machine = World(1).machine(0)
    for kind, news in machine._operations.steps:
        assert issubclass(kind, msgspec.Struct)
        assert kind.__struct_config__.frozen
        assert issubclass(news, msgspec.Struct)
        assert news.__struct_config__.frozen
