"""Publications as signed, numbered envelopes: composing ours, judging others', naming them all.

A publication belongs to its author and topic: the signature covers both, the sequence number, the
author's clock and the data, in one canonical encoding. Its name, which is also its key in the trie,
is the hash of exactly what is signed: h̄_m(id, publication) of the paper, where the sequence number
makes the same text published twice two publications. The signature is not part of the name, so
nobody can turn one publication into two by writing its signature in another way.
"""

import hashlib
from functools import partial
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.history import AHEAD_SECONDS
from rumormill.core.identity import Identity, Verifier
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.skipring.config import (
    MAX_DATA,
    MAX_KEY,
    MAX_PEER,
    MAX_SIGNATURE,
    MAX_TOPIC,
)
from rumormill.wire.fields import Number, Octets, Text
from rumormill.wire.schema import Layout, Schema

SIGN_PREFIX: Final = b"rumormill-skipring:"
"""What a signature covers starts with this, so that it can never be taken for one of another kind.
The pub/sub specification does the same with its own prefix."""

_MICROSECONDS = 1_000_000


class Publication(msgspec.Struct, gc=False):
    """One publication. `id` is its key in the trie; `created` is microseconds, 0 when not said."""

    topic: Topic
    author: PeerId
    seqno: int
    data: bytes
    created: int = 0
    signature: bytes = b""
    key: bytes = b""
    id: MessageId = b""

    @property
    def size(self) -> int:
        """Bytes of the encoded publication, without the tag and length that frame it."""
        return PUBLICATION.size(self)

    def to_event(self) -> Event:
        """Return the publication as applications and archives know it.

        The proof is what a third party needs, besides the event, to check the author: a protobuf
        `Publication` with the sequence number, the signature, the key and the author's clock alone.
        """
        created, proof = self.created / _MICROSECONDS if self.created else None, _PROOF.encode(self)
        return Event(self.topic, self.data, self.author, self.id, created=created, proof=proof)


PUBLICATION: Final = Schema(
    partial(Publication, ""),
    {
        "author": Octets(1, MAX_PEER, always=True),
        "seqno": Number(3),
        "data": Octets(2, MAX_DATA),
        "created": Number(7),
        "signature": Octets(5, MAX_SIGNATURE),
        "key": Octets(6, MAX_KEY),
    },
    max_bytes=256 + MAX_DATA + MAX_PEER + MAX_SIGNATURE + MAX_KEY,
)
"""A publication in a letter, which names the topic."""

_SIGNED: Final[Layout[Publication]] = Layout(
    {
        **{name: PUBLICATION.fields[name] for name in ("author", "seqno", "data", "created")},
        "topic": Text(4, MAX_TOPIC, always=True),
    }
)


_PROOF: Final = Schema(
    lambda seqno, created, signature, key: Publication(
        "", b"", seqno, b"", created, signature, key
    ),
    {name: PUBLICATION.fields[name] for name in ("seqno", "created", "signature", "key")},
    max_bytes=2 * (MAX_SIGNATURE + MAX_KEY),
)


def unsigned_fields(publication: Publication) -> bytes:
    """The one encoding of what an author signs; absent fields are those that are empty or 0."""
    return _SIGNED.encode(publication)


def name_of(unsigned: bytes, bits: int = 256) -> MessageId:
    """h̄_m: the first m bits of the SHA-256 hash, in whole bytes with zeros behind."""
    digest = hashlib.sha256(unsigned).digest()[: (bits + 7) // 8]
    rest = bits & 7
    return digest if not rest else digest[:-1] + bytes((digest[-1] & 0xFF00 >> rest & 0xFF,))


def named(publication: Publication, bits: int = 256) -> Publication:
    """Give a publication that was read from the wire its name."""
    publication.id = name_of(unsigned_fields(publication), bits)
    return publication


def from_event(event: Event) -> Publication:
    """Turn a kept event into the publication that it was; `DecodeError` when it was none."""
    publication = _PROOF.decode(event.proof)
    publication.topic, publication.author = event.topic, event.author
    publication.data, publication.id = event.data, event.id
    return publication


def check(publication: Publication, verifier: Verifier) -> bool:
    """Whether the author that a publication names has signed it."""
    payload = SIGN_PREFIX + unsigned_fields(publication)
    return verifier.verify(publication.author, publication.key, payload, publication.signature)


def check_event(event: Event, verifier: Verifier, bits: int = 256) -> bool:
    """Whether an event of this protocol is its author's and has the right name.

    This is all that a third party needs: the event as it was kept, and no help from a peer.
    """
    return is_publication(event, bits) and check(from_event(event), verifier)


def is_publication(event: Event, bits: int = 256) -> bool:
    """Whether an event has the name that a publication of this protocol would have."""
    try:
        publication = from_event(event)
    except DecodeError:
        return False
    return name_of(unsigned_fields(publication), bits) == event.id


class Author:
    """Composes this peer's publications, each with a number of its own."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._next_seqno = 1
        self._least_date = 0

    def start(self, now: float, latest: float = 0.0) -> None:
        """Begin sequence numbers at the time, so that a restart does not repeat them, and dates
        behind those of earlier lives, unless our clock must have been wrong then."""
        self._next_seqno = max(self._next_seqno, int(max(now, latest) * 1e9) + 1)
        if latest < now + AHEAD_SECONDS:
            self._least_date = max(self._least_date, int(latest * _MICROSECONDS) + 1)

    def compose(self, topic: Topic, data: bytes, now: float, bits: int = 256) -> Publication:
        """Make a signed publication."""
        identity = self._identity
        seqno, self._next_seqno = self._next_seqno, self._next_seqno + 1
        created = max(0, int(now * _MICROSECONDS))
        if created < self._least_date:
            created = self._least_date
            self._least_date += 1
        publication = Publication(topic, identity.peer, seqno, data, created)
        unsigned = unsigned_fields(publication)
        publication.signature = identity.sign(SIGN_PREFIX + unsigned)
        publication.key = identity.public_key
        publication.id = name_of(unsigned, bits)
        return publication
