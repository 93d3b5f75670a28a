"""What a scenario gives a protocol that asks for it: a journal, a codec check, addresses."""

import hashlib
from typing import Any

import msgspec
import pytest
from sim_rig import Net, Note, TraceLog

from rumormill.core.config import Config
from rumormill.core.effects import Answer, Append, Ask, ById, Effects, Load, Mail
from rumormill.core.errors import ConfigError
from rumormill.core.event import Event
from rumormill.core.inputs import Answered, Asked, Input, Loaded, Publish, Received, Stored
from rumormill.core.trace import RecvRPC, RpcMeta
from rumormill.protocols.registry import Hooks, ProtocolSpec, QuerySpec
from rumormill.sim import simulation
from rumormill.sim.keeping import Disk
from rumormill.sim.scenario import Scenario, Topology, Workload
from rumormill.sim.simulation import Simulation
from rumormill.wire.multiaddr import Multiaddr


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
    """Mails the ids of its events to its right neighbour, which asks back what their hash is."""

    def __init__(self, own: bytes, hooks: Hooks) -> None:
        self.own = own
        self.hooks = hooks
        self.published = 0
        self.asked = 0
        self.answers: list[bytes] = []

    def handle(self, item: Input, now: float, effects: Effects) -> None:
        """Take one input."""
        if isinstance(item, Publish):
            self.published += 1
            event = Event("t", item.data, self.own, self.own + b"%d" % self.published)
            effects.append(Append(event, barrier=event.id))
        elif isinstance(item, Stored):
            effects += [Mail(_right_of(self.own), Text(each)) for each in item.barriers]
        elif isinstance(item, Received):
            self.asked += 1
            effects.append(Ask(item.peer, self.asked, item.message, 1.0))
        elif isinstance(item, Asked):
            assert isinstance(item.message, Text)
            effects.append(Load(item.number, "t", ById((item.message.data,))))
        elif isinstance(item, Loaded):
            known = [hashlib.sha256(each.data).digest() for each in item.events]
            effects.append(Answer(item.number, Text(b"".join(known))))
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
    decoder=lambda config, _hooks: _decoder(config),
    max_message=lambda _config: 100,
    junk=lambda rng, _peers, _topics: Text(rng.randbytes(8)),
    queries=QuerySpec(("/whisper/ask",), lambda text: text.data, _decoder, lambda _config: 100),
    reads_log=True,
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


@pytest.mark.parametrize("delay", [0.0, 0.2])
def test_a_scenario_gives_a_protocol_its_journal(delay: float) -> None:
    """Every letter led to a question, and every question was answered from the journal."""
    run, _ = whispered(SPEC, disk=Disk(commit_delay=delay))
    answers = [answer for machine in machines(run) for answer in machine.answers]
    assert answers == [hashlib.sha256(bytes(128)).digest()] * 6


def test_a_scenario_bounds_the_journal() -> None:
    """`disk.limit` is what each peer keeps, and is refused where nobody reads it."""
    run, _ = whispered(SPEC, disk=Disk(limit=1))
    assert max(len(host.journal or ()) for host in run.network.hosts) == 1
    forgetful = msgspec.structs.replace(SPEC, reads_log=False)
    assert whispered(forgetful)[0].network.hosts[0].journal is None
    with pytest.raises(ConfigError, match="disk: what it deletes has no meaning with whisper"):
        whispered(forgetful, disk=Disk(limit=1))
    for wrong in ({"limit": 0}, {"commit_delay": -1.0}):
        with pytest.raises(ConfigError, match=f"disk.{next(iter(wrong))}: must be from"):
            Scenario.from_dict({"disk": wrong})


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
