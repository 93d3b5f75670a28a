"""Archives, commands and query codecs: what a scenario gives a protocol that asks for them."""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from rumormill.sim.archive import MemoryArchive
from sim_rig import Net, Note

from rumormill.core.config import Config
from rumormill.core.effects import Answer, Ask, Deliver, Effects, Keep, Mail, Outcome
from rumormill.core.errors import ConfigError
from rumormill.core.event import Event
from rumormill.core.inputs import Answered, Asked, Command, Input, Publish, Received
from rumormill.core.trace import RecvRPC, RpcMeta
from rumormill.protocols.registry import Hooks, ProtocolSpec, QuerySpec
from rumormill.sim import simulation
from rumormill.sim.link import PEER_DOWN
from rumormill.sim.network import CRASHED
from rumormill.sim.scenario import Scenario, Topology, Workload
from rumormill.sim.simulation import Simulation
from rumormill.wire.multiaddr import Multiaddr
from trace_log import TraceLog


def event(number: int, topic: str = "t") -> Event:
    return Event(topic, b"data", b"author", number.to_bytes(2))


# The archive itself.


def test_an_archive_gives_back_what_was_kept_in_order() -> None:
    """By id and by topic; an event is kept once."""
    archive = MemoryArchive()
    for kept in (event(1), event(2, "other"), event(3), event(1)):
        archive.keep(kept)
    assert list(archive.scan("t")) == [event(1), event(3)]
    assert list(archive.scan("nobody's")) == []
    assert archive.get("other", event(2).id) == event(2, "other")
    assert archive.get("t", event(2).id) is None
    assert len(archive) == 3


def test_an_archive_is_bounded() -> None:
    """What was kept first is deleted first; a scan under way is not disturbed."""
    archive = MemoryArchive(limit=2)
    archive.keep(event(1, "first"))
    archive.keep(event(2))
    scan: Iterator[Event] = archive.scan("t")
    archive.keep(event(3))
    archive.keep(event(4))
    assert archive.get("first", event(1).id) is None
    assert list(archive.scan("t")) == [event(3), event(4)]
    assert list(scan) == [event(2)]
    assert len(archive) == 2


def test_a_host_keeps_what_is_kept_and_delivered_through_a_crash() -> None:
    """The archive is the peer's disk; a host without one keeps nothing."""
    net = Net(2)
    archive = net.host(0).archive = MemoryArchive()
    for index in (0, 1):
        net.act(index, Keep(event(1)), Deliver(event(2), b"x"))
    net.network.crash(net.host(0))
    net.network.start(net.host(0))
    assert list(archive.scan("t")) == [event(1), event(2)]
    assert net.host(1).archive is None


# Commands.


def test_a_command_has_one_outcome() -> None:
    """`then` gets what the machine says under the command's number; other numbers are nobody's."""
    net = Net(1)
    host, outcomes = net.host(0), list[Outcome]()
    host.command("fetch", outcomes.append)
    (asked,) = net.inputs(0, Command)
    assert asked.body == "fetch"
    net.act(0, Outcome(asked.number + 1, "not asked"), Outcome(asked.number, "done"))
    net.act(0, Outcome(asked.number, "done again"))
    assert outcomes == [Outcome(asked.number, "done")]


def test_a_command_fails_with_its_peer() -> None:
    """Down before, down meanwhile, and paused until it goes on."""
    net = Net(1)
    host, outcomes = net.host(0), list[Outcome]()
    host.pause()
    host.command("later", outcomes.append)
    assert net.inputs(0, Command) == []
    host.resume()
    assert len(net.inputs(0, Command)) == 1
    net.network.crash(host)
    host.command("too late", outcomes.append)
    assert [outcome.error for outcome in outcomes] == [CRASHED, PEER_DOWN]


# A whole run: a protocol of letters and questions.


class Text(msgspec.Struct):
    """A message that is its bytes."""

    data: bytes
    cached_meta: RpcMeta | None = None
    urgent: bool = False

    @property
    def meta(self) -> RpcMeta:
        return self.cached_meta or RpcMeta(size=len(self.data))


class Settings(Config, frozen=True):
    """Nothing to set."""

    def validate(self) -> None:
        """Nothing can be wrong."""


class Whisperer:
    """Mails its publications to its right neighbour, which asks back what their hash is."""

    def __init__(self, own: bytes, hooks: Hooks) -> None:
        self.own = own
        self.hooks = hooks
        self.asked = 0
        self.answers: list[bytes] = []

    def handle(self, item: Input, now: float, effects: Effects) -> None:
        """Take one input."""
        if isinstance(item, Publish):
            number = b"%d" % len(list(self.hooks.archive.scan("t")))
            effects.append(Keep(Event("t", item.data, self.own, self.own + number)))
            effects.append(Mail(_right_of(self.own), Text(self.own + number)))
        elif isinstance(item, Received):
            self.asked += 1
            effects.append(Ask(item.peer, self.asked, item.message, 1.0))
        elif isinstance(item, Asked):
            assert isinstance(item.message, Text)
            found = self.hooks.archive.get("t", item.message.data)
            known = b"" if found is None else hashlib.sha256(found.data).digest()
            effects.append(Answer(item.number, Text(known)))
        elif isinstance(item, Answered):
            assert isinstance(item.message, Text)
            self.answers.append(item.message.data)


def _right_of(peer: bytes) -> bytes:
    return ((int.from_bytes(peer) + 1) % 3).to_bytes(4)


def _decoder(_config: Any) -> Any:
    return Text


SPEC = ProtocolSpec(
    name="whisper",
    protocol_ids=("/whisper",),
    presets={"default": Settings()},
    build=lambda identity, _rng, _config, hooks: Whisperer(identity.peer, hooks),
    encode=lambda text: text.data,
    decoder=_decoder,
    max_message=lambda _config: 100,
    junk=lambda rng, _peers, _topics: Text(rng.randbytes(8)),
    queries=QuerySpec(("/whisper/ask",), lambda text: text.data, _decoder, lambda _config: 100),
    reads_archive=True,
)


def whispered(spec: ProtocolSpec, seed: int = 1, **changes: Any) -> tuple[Simulation, TraceLog]:
    """Run a scenario of three peers that publish six messages."""
    scenario = Scenario(
        protocol=spec.name,
        peers=3,
        seed=seed,
        check_codec=True,
        topology=Topology(kind="line"),
        workload=Workload(messages=6),
        **changes,
    )
    scenario.validate()
    log = TraceLog()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "protocol", lambda _name: spec)
        run = Simulation(scenario, [log])
    run.run()
    return run, log


def machines(run: Simulation) -> list[Whisperer]:
    """The machines of a run."""
    return [host.machine for host in run.network.hosts]  # type: ignore[misc]


def test_a_scenario_gives_a_protocol_its_archive() -> None:
    """Every letter led to a question, and every question was answered from the archive."""
    run, _ = whispered(SPEC)
    answers = [answer for machine in machines(run) for answer in machine.answers]
    assert answers == [hashlib.sha256(bytes(128)).digest()] * 6


def test_a_scenario_bounds_the_archive() -> None:
    """`archive_limit` is what each peer keeps, and is refused where nobody reads it."""
    run, _ = whispered(SPEC, archive_limit=1)
    assert max(len(host.archive or ()) for host in run.network.hosts) == 1
    forgetful = msgspec.structs.replace(SPEC, reads_archive=False)
    assert whispered(forgetful)[0].network.hosts[0].archive is None
    with pytest.raises(ConfigError, match="archive_limit: has no meaning with whisper"):
        whispered(forgetful, archive_limit=1)
    with pytest.raises(ConfigError, match="archive_limit: must be from 1"):
        Scenario(archive_limit=0).validate()


def test_letters_and_questions_are_the_same_in_every_run_of_a_seed() -> None:
    """The trace of one seed is one trace."""
    one, two, other = (whispered(SPEC, seed)[1].entries for seed in (5, 5, 6))
    assert one == two
    assert one != other
    assert any(isinstance(payload, RecvRPC) for _, _, payload in one)


@pytest.mark.parametrize("part", ["letters", "questions"])
def test_the_codec_check_covers_letters_and_questions(part: str) -> None:
    """A codec that alters a message fails the run."""
    assert SPEC.queries is not None
    faulty = {"encode": lambda _text: b"?"}
    if part == "letters":
        broken = msgspec.structs.replace(SPEC, **faulty)
    else:
        queries = msgspec.structs.replace(SPEC.queries, **faulty)
        broken = msgspec.structs.replace(SPEC, queries=queries)
    codec = {"letters": "/whisper altered", "questions": "/whisper/ask altered"}[part]
    with pytest.raises(AssertionError, match=codec):
        whispered(broken)


def test_simulated_peers_have_addresses_to_name() -> None:
    """A machine can introduce any peer to another by a binary multiaddr, itself included."""
    run, _ = whispered(SPEC)
    addresses = machines(run)[0].hooks.addresses
    assert [str(Multiaddr.decode(each)) for each in addresses(b"\0\0\0\2")] == [
        "/ip4/10.0.0.2/tcp/4001"
    ]
    assert list(addresses(b"\0\0\0\0")) != []
    assert list(addresses(b"nobody")) == []


def test_notes_have_no_codec() -> None:
    """Probes' messages travel as they are: the check is the scenario's."""
    net = Net(2)
    net.mail(0, 1, Note("as it is"))
    net.run(1.0)
    assert net.texts(1) == ["as it is"]
