"""The protocols by name: what a runtime needs to run any of them without knowing it.

A protocol is listed here once; the simulator, the node and the command line find it by its name.
Modules are imported when a protocol is asked for, not before.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from rumormill.core.api import FetchedHistory, TopicOptions, TopicVersion
from rumormill.core.config import Config, nearest, override
from rumormill.core.effects import Mail
from rumormill.core.errors import ConfigError
from rumormill.core.event import Event
from rumormill.core.identity import Identity
from rumormill.core.ids import MessageId, PeerId, Topic, no_addresses
from rumormill.core.inputs import Verdict
from rumormill.core.machine import Machine
from rumormill.core.messages import WireMessage
from rumormill.core.randomness import Randomness
from rumormill.core.trace import TracePayload

MessageIdFunction: TypeAlias = Callable[[Topic, bytes, PeerId, bytes], MessageId]
"""Names a message by its topic, data, author and sequence number; the last two may be empty. It
must give the same id at every peer. An empty one, or one too long, stands for the default."""


class Hooks(msgspec.Struct, frozen=True):
    """What an application and its runtime may add to a protocol.

    A protocol says in `ProtocolSpec.takes` which of the application's functions it has a use for,
    besides a validator.
    """

    validator: Callable[[Event, PeerId], Verdict] | None = None
    """Judges events before they are delivered and passed on."""
    message_id: MessageIdFunction | None = None
    """Names messages, those of peers and our own alike."""
    application_score: Callable[[PeerId], float] | None = None
    """What the application thinks of a peer (P5)."""
    subscription_filter: Callable[[Topic], object] | None = None
    """Whether a topic is of interest: others cannot be joined, and peers' subscriptions to them are
    not heeded."""
    peer_filter: Callable[[PeerId, Topic], object] | None = None
    """Whether a peer may take part in a topic: subscriptions of others are not heeded, so they are
    sent nothing of it."""
    check_record: Callable[[PeerId, bytes], bool] | None = None
    """Whether a signed peer record is valid and belongs to the peer."""
    peer_records: Mapping[PeerId, bytes] = {}
    """The signed records of connected peers, for peer exchange."""
    agents: Mapping[PeerId, str] = {}
    """What peers say they are, the programs that they run."""
    limits: dict[PeerId, int] = {}
    """Bytes of a message that peers take at most, those that have shown it; the runtime writes."""
    addresses: Callable[[PeerId], Sequence[bytes]] = no_addresses
    """Where a peer can be reached, ourselves included: binary multiaddrs, best first."""


NO_HOOKS = Hooks()


class QuerySpec(msgspec.Struct, frozen=True):
    """The format of the questions and answers (`Ask`, `Answer`) that a protocol exchanges."""

    protocol_ids: tuple[str, ...]
    """What is offered to other peers, best first."""
    encode: Callable[[Any], bytes]
    decoder: Callable[[Any], Callable[[bytes], WireMessage]]
    """Make the function that reads messages under a configuration."""
    max_message: Callable[[Any], int]
    """How long an encoded message can be under a configuration."""


class TopicMaking(msgspec.Struct, frozen=True):
    """How a topic comes to be, where it must be created before anybody can use it."""

    command: Callable[[str, TopicOptions], object]
    """Make the command by which a peer creates a topic that people call so. Of its options, the
    author stands in no list as such, but by its id."""
    topic_of: Callable[[object], Topic]
    """Read the topic's name on the network out of the command's result."""
    meta_of: Callable[[object], Topic | None]
    """Likewise the name of the topic in which its later versions are announced."""
    event_id: Callable[[str | MessageId], MessageId]
    """Read an event's name as people write it, or its id; a `LocalError` where it is none."""
    in_order: Callable[[Iterable[Event]], list[Event]]
    """Put events into the order of their links, which is the same for everybody who has them."""
    entered: Callable[[Topic], object]
    """Make the command that waits until a topic that is subscribed to is found and entered."""
    describe: Callable[[Topic], object]
    """Make the command that finds out everything about a topic."""
    tree: Callable[[Topic], object]
    """Make the command that finds a topic's sub-topics: a `TopicTree`."""
    versions: Callable[[Topic], object]
    """Make the command that finds a topic's versions."""
    listed: Callable[[object], list[TopicVersion]]
    """Read the versions out of that command's result, the oldest first."""
    announced: Callable[[Event], TopicVersion | None]
    """Read the version that an event of a meta topic announces, if it may."""
    readable: Callable[[object], dict[str, Any]]
    """Make that command's result ready for JSON: `cid`, `readable`, `sub_topics`, `versions`."""
    fetch: Callable[[str | MessageId], object]
    """Make the command that gets an event by its name alone."""
    fetch_history: Callable[[Topic, tuple[str | MessageId, ...], float, int], object]
    """Make the command that gets a topic's history into the log: which events to begin with besides
    those that are known, from which date on, and how many at most, 0 for all."""
    fetched: Callable[[object], FetchedHistory]
    """Read what came of it."""


class Servers(msgspec.Struct, frozen=True):
    """Peers that a protocol needs besides those who publish and subscribe."""

    count: Callable[[Any], int]
    """How many there are under a configuration."""
    appoint: Callable[[Any, tuple[PeerId, ...]], Any]
    """Return the configuration that names them."""
    command: Callable[[tuple[PeerId, ...]], object]
    """Return the command that names others from now on."""


class Inspection(Protocol):
    """Watches the state of all machines of a run, as no peer could."""

    def look(
        self, now: float, machines: Mapping[PeerId, Machine]
    ) -> Sequence[tuple[PeerId, TracePayload]]:
        """Look at the machines of all peers that are up; return what the trace should say."""

    def figures(self) -> dict[str, Any]:
        """What was seen, for a run's figures."""


Begin: TypeAlias = Callable[[Mapping[PeerId, Machine], Randomness], Sequence[tuple[PeerId, Mail]]]
"""Put all machines into some state; return the letters that are under way, with their senders."""


class InspectionSpec(msgspec.Struct, frozen=True):
    """What a simulator can do for a protocol whose state as a whole has a meaning."""

    interval: Callable[[Any], float]
    """Seconds between two looks under a configuration."""
    begin: Callable[[Any], Inspection]
    """Make the inspection of one run under a configuration."""
    starts: Mapping[str, Begin | None]
    """The states in which a run can begin; None is the state of peers that just started."""


class ProtocolSpec(msgspec.Struct, frozen=True):
    """How to configure, build and speak one protocol."""

    name: str
    protocol_ids: tuple[str, ...]
    """What is offered to other peers, best first."""
    presets: Mapping[str, Config]
    build: Callable[[Identity, Randomness, Any, Hooks], Machine]
    """Make a peer's machine from its identity, randomness, configuration and hooks."""
    encode: Callable[[Any], bytes]
    decoder: Callable[[Any, Hooks], Callable[[bytes], WireMessage]]
    """Make the function that reads messages under a configuration (its limits) and hooks (its
    message ids)."""
    max_message: Callable[[Any], int]
    """How long an encoded message can be under a configuration."""
    junk: Callable[[Randomness, list[bytes], list[str]], WireMessage]
    """Make an arbitrary message as an attacker would, from the peers and topics it knows."""
    takes: tuple[str, ...] = ()
    """The application's own functions in `Hooks` that it has a use for, besides the validator."""
    max_topic: Callable[[Any], int] = lambda _: 1024
    """How many bytes a topic's name can have under a configuration; our choice, unless it says."""
    parts: Callable[[Any], Sequence[WireMessage]] = lambda message: (message,)
    """Cut a message with much to be verified into several that mean the same, one after the other,
    so that a runtime can do something else between them."""
    queries: QuerySpec | None = None
    """The questions that the protocol asks, each over a short stream of its own."""
    topics: TopicMaking | None = None
    """How topics are created, unless a topic is whatever somebody subscribes to."""
    publishes_from_within: bool = False
    """Whether only who takes part in a topic reaches others with a publication."""
    asks_again: bool = False
    """Whether a publication that was under way when its peer was killed may be made by its next
    life: `Published` has the number 0 then."""
    reads_log: bool = False
    """Whether it answers for old events, so that a runtime must let it read what was kept."""
    servers: Servers | None = None
    """The peers that it needs besides those of an application."""
    inspection: InspectionSpec | None = None
    """What a simulator can do with the state of all its peers together."""
    recovers: bool = False
    """Whether it takes events that were missing and fetched (`Recovered`), so that sync can get
    what it has not brought."""
    tolerated: frozenset[str] = frozenset()
    """Why something may be refused without blame for the peer that sent it: who does as it should
    may have sent it, for a reason of ours or because of what others told it."""
    finds_peers: bool = False
    """Whether it has an overlay of its own that finds peers; else membership finds them."""
    proves_authors: Callable[[Any], bool] = lambda _: False
    """Whether, under a configuration, an event is taken only if its author has signed it."""

    def check_kept(self, machine: Any) -> Callable[[Event], object] | None:
        """How a machine of this protocol checks events that were fetched, in any thread
        (`Recovered.checked`); None if it takes none."""
        return machine.check_kept if self.recovers else None

    def configure(
        self, preset: str = "default", changes: Mapping[str, Any] | None = None
    ) -> Config:
        """Return a preset with some parameters replaced."""
        config = self.presets.get(preset)
        if config is None:
            raise ConfigError(
                f"preset: {self.name} has no preset {preset!r};"
                f" {nearest(preset, sorted(self.presets))}"
            )
        return override(config, changes or {})


_MODULES = {
    "floodsub": "rumormill.protocols.floodsub.spec",
    "gossipsub": "rumormill.protocols.gossipsub.spec",
    "pulsarcast": "rumormill.protocols.pulsarcast.spec",
    "radius": "rumormill.protocols.radius.spec",
    "skipring": "rumormill.protocols.skipring.spec",
}

PROTOCOL_NAMES = tuple(_MODULES)


def protocol(name: str) -> ProtocolSpec:
    """Find a protocol by its name."""
    module = _MODULES.get(name)
    if module is None:
        raise ConfigError(
            f"protocol: there is no protocol {name!r}; {nearest(name, list(PROTOCOL_NAMES))}"
        )
    spec: ProtocolSpec = importlib.import_module(module).SPEC
    return spec
