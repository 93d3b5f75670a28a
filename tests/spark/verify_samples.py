"""Events of every protocol as a node keeps them, made and signed with real keys."""

from msgspec.structs import replace

from rumormill.core.event import Event
from rumormill.node.identity import NodeIdentity
from rumormill.protocols.pubsub.codec import proof_of
from rumormill.protocols.pubsub.config import SignPolicy
from rumormill.protocols.pubsub.message_ids import author_and_seqno
from rumormill.protocols.pubsub.naming import Authorship
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.codec import stored
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor
from rumormill.protocols.pulsarcast.format.signing import sign_event
from rumormill.protocols.radius.messages import Publication, sign
from rumormill.protocols.skipring.envelope import Author
from rumormill.wire.keys import PrivateKey

IDENTITY = NodeIdentity(PrivateKey(bytes(range(32))))
NOW = 1_700_000_000.0
TOPIC = cids.of(b"a topic's descriptor")


def gossipsub(count: int) -> list[Event]:
    """Signed messages, named by author and sequence number."""
    authorship = Authorship(IDENTITY, SignPolicy.STRICT_SIGN)
    authorship.start(NOW)
    found = []
    for number in range(count):
        message = authorship.compose("news", b"item %d" % number)
        found.append(
            Event(
                "news",
                message.data,
                message.author,
                author_and_seqno(message),
                proof=proof_of(message),
            )
        )
    return found


def radius(count: int) -> list[Event]:
    """Publications named by author and time."""
    found = []
    for number in range(count):
        made = Publication(IDENTITY.peer, "wide", int(NOW * 1e9) + number, b"pub %d" % number)
        sign(made, IDENTITY)
        found.append(made.to_event())
    return found


def skipring(count: int) -> list[Event]:
    """Publications named by the hash of what is signed."""
    author = Author(IDENTITY)
    return [author.compose("ring", b"entry %d" % each, NOW + each).to_event() for each in
            range(count)]  # fmt: skip


def pulsarcast(count: int, fork_at: int | None = None) -> list[Event]:
    """A chain of events, each naming the one before; `fork_at` is followed by two."""
    found: list[Event] = []
    parent: bytes | None = None
    for number in range(count):
        made = _pulsarcast_event(b"link %d" % number, parent)
        found.append(made)
        if number == fork_at:
            found.append(_pulsarcast_event(b"aside", parent))
        parent = made.id
    return found


def _pulsarcast_event(payload: bytes, parent: bytes | None) -> Event:
    made = EventDescriptor(
        TOPIC, IDENTITY.peer, payload, "2026-01-02T03:04:05.006Z", IDENTITY.peer, parent
    )
    return stored(sign_event(made, IDENTITY))


MAKERS = {
    "gossipsub": gossipsub,
    "radius": radius,
    "skipring": skipring,
    "pulsarcast": pulsarcast,
}


def kept(protocol: str, event: Event, number: int) -> Event:
    """An event as the log takes it."""
    return replace(event, received=NOW + number, protocol=protocol)
