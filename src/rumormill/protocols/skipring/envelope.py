"""Publications as signed, numbered envelopes: composing ours, judging others', naming them all.

A publication belongs to its author and topic: the signature covers both, the sequence number, the
author's clock and the data, in one canonical encoding. Its name, which is also its key in the trie,
is the hash of exactly what is signed: h̄_m(id, publication) of the paper, where the sequence number
makes the same text published twice two publications. The signature is not part of the name, so
nobody can turn one publication into two by writing its signature in another way.
"""

import hashlib
from typing import Final

import msgspec

from rumormill.core.errors import DecodeError
from rumormill.core.event import Event
from rumormill.core.identity import Identity, Verifier
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.skipring.config import MAX_KEY, MAX_SIGNATURE
from rumormill.wire import schema
from rumormill.wire.protobuf import bytes_field, field_size, string_field, varint_field, varint_size

SIGN_PREFIX: Final = b"rumormill-skipring:"
"""What a signature covers starts with this, so that it can never be taken for one of another kind.
The pub/sub specification does the same with its own prefix."""

# Field numbers of `Publication` in skipring.proto; the topic is signed but not repeated there.
AUTHOR, DATA, SEQNO, TOPIC, SIGNATURE, KEY, CREATED = range(1, 8)

_PROOF: schema.Schema = {
    SEQNO: schema.Number(),
    SIGNATURE: schema.Octets(MAX_SIGNATURE),
    KEY: schema.Octets(MAX_KEY),
    CREATED: schema.Number(),
}
_MAX_PROOF_BYTES = 2 * (MAX_SIGNATURE + MAX_KEY)
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
        size = 0
        for value in (self.author, self.data, self.signature, self.key):
            if value:
                size += field_size(len(value))
        for number in (self.seqno, self.created):
            if number:
                size += 1 + varint_size(number)
        return size

    def to_event(self) -> Event:
        """Return the publication as applications and archives know it."""
        created = self.created / _MICROSECONDS if self.created else None
        return Event(
            self.topic, self.data, self.author, self.id, created=created, proof=proof_of(self)
        )


def unsigned_fields(publication: Publication) -> bytes:
    """The one encoding of what an author signs; absent fields are those that are empty or 0."""
    parts = [bytes_field(AUTHOR, publication.author)]
    if publication.data:
        parts.append(bytes_field(DATA, publication.data))
    if publication.seqno:
        parts.append(varint_field(SEQNO, publication.seqno))
    parts.append(string_field(TOPIC, publication.topic))
    if publication.created:
        parts.append(varint_field(CREATED, publication.created))
    return b"".join(parts)


def name_of(unsigned: bytes, bits: int = 256) -> MessageId:
    """h̄_m: the first m bits of the SHA-256 hash, in whole bytes with zeros behind."""
    digest = hashlib.sha256(unsigned).digest()[: (bits + 7) // 8]
    rest = bits & 7
    return digest if not rest else digest[:-1] + bytes((digest[-1] & 0xFF00 >> rest & 0xFF,))


def named(publication: Publication, bits: int = 256) -> Publication:
    """Give a publication that was read from the wire its name."""
    publication.id = name_of(unsigned_fields(publication), bits)
    return publication


def proof_of(publication: Publication) -> bytes:
    """What a third party needs, besides the event, to check the author.

    It is a protobuf `Publication` that holds the sequence number, the signature, the key and the
    author's clock alone.
    """
    parts = []
    if publication.seqno:
        parts.append(varint_field(SEQNO, publication.seqno))
    if publication.signature:
        parts.append(bytes_field(SIGNATURE, publication.signature))
    if publication.key:
        parts.append(bytes_field(KEY, publication.key))
    if publication.created:
        parts.append(varint_field(CREATED, publication.created))
    return b"".join(parts)


def from_event(event: Event) -> Publication:
    """Turn a kept event into the publication that it was; `DecodeError` when it was none."""
    proof = schema.read(event.proof, _PROOF, max_bytes=_MAX_PROOF_BYTES)
    return Publication(
        event.topic,
        event.author,
        proof.number(SEQNO) or 0,
        event.data,
        proof.number(CREATED) or 0,
        proof.octets(SIGNATURE) or b"",
        proof.octets(KEY) or b"",
        event.id,
    )


def check(publication: Publication, verifier: Verifier) -> bool:
    """Whether the author that a publication names has signed it."""
    payload = SIGN_PREFIX + unsigned_fields(publication)
    return verifier.verify(publication.author, publication.key, payload, publication.signature)


def check_event(event: Event, verifier: Verifier, bits: int = 256) -> bool:
    """Whether an event of this protocol is its author's and has the right name.

    This is all that a third party needs: the event as it was kept, and no help from a peer.
    """
    if not is_publication(event, bits):
        return False
    return check(from_event(event), verifier)


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

    def start(self, now: float) -> None:
        """Begin sequence numbers at the time, so that a restart does not repeat them."""
        self._next_seqno = max(self._next_seqno, int(now * 1e9) + 1)

    def compose(self, topic: Topic, data: bytes, now: float, bits: int = 256) -> Publication:
        """Make a signed publication."""
        identity = self._identity
        seqno, self._next_seqno = self._next_seqno, self._next_seqno + 1
        created = max(0, int(now * _MICROSECONDS))
        publication = Publication(topic, identity.peer, seqno, data, created)
        unsigned = unsigned_fields(publication)
        publication.signature = identity.sign(SIGN_PREFIX + unsigned)
        publication.key = identity.public_key
        publication.id = name_of(unsigned, bits)
        return publication
