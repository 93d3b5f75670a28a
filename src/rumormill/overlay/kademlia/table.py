"""The routing table: where peers and keys stand, and k-buckets of contacts by how close they are.

A position is the SHA-256 of a peer id or a key, read as a number; the distance of two positions is
their exclusive or. Peers of the same bucket share the same number of leading bits with us.

A bucket keeps at most k contacts in the order in which they were last heard of, the longest silent
first. A full bucket takes nobody in: old contacts stay as long as they answer, because who has been
there long is likely to stay, and because a flood of new peers must not flush a table. Who finds no
place waits among the bucket's replacements and moves up when a contact is lost.

One network (`overlay.address_groups`) has a bounded number of places in a bucket and in the table,
so that one owner of addresses cannot fill it.

A contact that failed a question is named to nobody until it answers again. Nothing here asks
anybody.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec

from rumormill.core.ids import PeerId
from rumormill.core.randomness import Randomness
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.messages import KadPeer

FULL = "kad-bucket-full"
CROWDED = "kad-subnet-full"
OURSELVES = "kad-ourselves"

BITS: Final = 256


def key_position(key: bytes) -> int:
    """Where a key stands."""
    return int.from_bytes(sha256(key).digest())


@lru_cache(maxsize=1 << 17)
def position(name: bytes) -> int:
    """The same of a peer id, or of a key that is met again: it is remembered."""
    return key_position(name)


def distance(a: bytes, b: bytes) -> int:
    """How far apart two names stand: the exclusive or of their SHA-256."""
    return position(a) ^ position(b)


def shared_bits(a: int, b: int) -> int:
    """How many leading bits two positions share; 256 when they are equal."""
    return BITS - (a ^ b).bit_length()


def key_in_bucket(own: int, bucket: int, randomness: Randomness) -> bytes | None:
    """Find a random key whose position shares exactly `bucket` leading bits with ours.

    Hashes cannot be chosen, so keys are tried: 2^(bucket + 1) of them on average. None where luck
    fails eight times over.
    """
    shift = BITS - bucket - 1
    wanted = (own >> shift) ^ 1
    seed = randomness.randbytes(24)
    for attempt in range(8 << (bucket + 1)):
        key = seed + attempt.to_bytes(8)
        if int.from_bytes(sha256(key).digest()) >> shift == wanted:
            return key
    return None


class Contact(msgspec.Struct, eq=False, gc=False):
    """A peer that answers questions."""

    peer: PeerId
    position: int
    bucket: int
    network: str
    last_seen: float
    failures: int = 0
    described: KadPeer | None = None
    """How answers name it, and when its addresses were last looked up for that."""
    described_at: float = 0.0


class _Waiting(msgspec.Struct, eq=False, gc=False):
    """A peer that would be a contact if there were room: what makes one of it."""

    peer: PeerId
    network: str
    last_seen: float


class _Bucket(msgspec.Struct, gc=False):
    """Contacts at one distance; tuples, since there are few, and a table has many buckets."""

    contacts: tuple[Contact, ...] = ()
    """The longest silent first."""
    replacements: tuple[_Waiting, ...] = ()
    """Who waits for a place, the one that was heard of last standing last."""

    def forget_waiting(self, peer: PeerId) -> None:
        """A peer waits no longer, if it did."""
        if self.replacements:
            self.replacements = tuple([each for each in self.replacements if each.peer != peer])

    def let_wait(self, waiting: _Waiting, most: int) -> None:
        """Let a peer wait, if need be in place of the one that was not heard of for longest."""
        self.forget_waiting(waiting.peer)
        self.replacements = (*self.replacements, waiting)[-most:]

    def without(self, contact: Contact) -> tuple[Contact, ...]:
        """All other contacts."""
        return tuple([each for each in self.contacts if each is not contact])


class RoutingTable:
    """Contacts by bucket."""

    __slots__ = ("_buckets", "_config", "_contacts", "_networks", "own")

    def __init__(self, own: PeerId, config: KademliaConfig) -> None:
        self.own = position(own)
        self._config = config
        self._buckets: dict[int, _Bucket] = {}
        self._contacts: dict[PeerId, Contact] = {}
        self._networks: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._contacts)

    def __contains__(self, peer: object) -> bool:
        return peer in self._contacts

    def __iter__(self) -> Iterator[Contact]:
        return iter(self._contacts.values())

    def get(self, peer: PeerId) -> Contact | None:
        """Return a contact."""
        return self._contacts.get(peer)

    def bucket_of(self, peer: PeerId) -> int:
        """The bucket where a peer belongs; 256 for ourselves, who belong nowhere."""
        contact = self._contacts.get(peer)
        return shared_bits(self.own, position(peer)) if contact is None else contact.bucket

    def around(self, key: bytes) -> int:
        """How many contacts are in the bucket where a key belongs."""
        bucket = self._buckets.get(shared_bits(self.own, key_position(key)))
        return 0 if bucket is None else len(bucket.contacts)

    def has_room(self, peer: PeerId) -> bool:
        """Whether a bucket could take a peer in now, its network aside."""
        number = self.bucket_of(peer)
        if number == BITS:
            return False
        bucket = self._buckets.get(number)
        return bucket is None or len(bucket.contacts) < self._config.k

    def seen(self, peer: PeerId, now: float, network: str) -> str:
        """Take in a peer that answered; return why it is not a contact, or an empty string."""
        contact = self._contacts.get(peer)
        if contact is None:
            return self._enter(peer, network, now)
        contact.last_seen = now
        contact.failures = 0
        bucket = self._buckets[contact.bucket]
        if bucket.contacts[-1] is not contact:
            bucket.contacts = (*bucket.without(contact), contact)
        return ""

    def _enter(self, peer: PeerId, network: str, now: float) -> str:
        number = shared_bits(self.own, position(peer))
        if number == BITS:
            return OURSELVES
        bucket = self._buckets.get(number) or _Bucket()
        if self._crowded(bucket, network):
            return CROWDED
        if len(bucket.contacts) >= self._config.k:
            if self._config.replacements:
                bucket.let_wait(_Waiting(peer, network, now), self._config.replacements)
            return FULL
        self._take_in(bucket, number, _Waiting(peer, network, now))
        return ""

    def _crowded(self, bucket: _Bucket, network: str) -> bool:
        if not network:
            return False
        if self._networks.get(network, 0) >= self._config.per_subnet_table:
            return True
        same = sum([contact.network == network for contact in bucket.contacts])
        return same >= self._config.per_subnet_bucket

    def _take_in(self, bucket: _Bucket, number: int, new: _Waiting) -> None:
        peer = new.peer
        self._buckets[number] = bucket
        bucket.forget_waiting(peer)
        contact = Contact(peer, position(peer), number, new.network, new.last_seen)
        bucket.contacts = (*bucket.contacts, contact)
        self._contacts[peer] = contact
        if contact.network:
            self._networks[contact.network] = self._networks.get(contact.network, 0) + 1

    def failed(self, peer: PeerId) -> bool:
        """Note that a peer did not answer; return whether that removed it.

        A contact goes at once when somebody waits for its place.
        """
        contact = self._contacts.get(peer)
        if contact is None:
            self.remove(peer)
            return False
        contact.failures += 1
        bucket = self._buckets[contact.bucket]
        if contact.failures < self._config.max_failures and not bucket.replacements:
            return False
        self.remove(peer)
        return True

    def remove(self, peer: PeerId) -> None:
        """Forget a peer; the one that was heard of last among those that wait moves up."""
        contact = self._contacts.pop(peer, None)
        if contact is None:
            waits_in = self._buckets.get(self.bucket_of(peer))
            if waits_in is not None:
                waits_in.forget_waiting(peer)
            return
        bucket = self._buckets[contact.bucket]
        bucket.contacts = bucket.without(contact)
        if contact.network:
            left = self._networks[contact.network] - 1
            if left:
                self._networks[contact.network] = left
            else:
                del self._networks[contact.network]
        for waiting in reversed(bucket.replacements):
            if not self._crowded(bucket, waiting.network):
                self._take_in(bucket, contact.bucket, waiting)
                break
        if not bucket.contacts and not bucket.replacements:
            del self._buckets[contact.bucket]

    def silent_longest(self, bucket: int, before: float) -> Contact | None:
        """The contact of a bucket that was silent longest, if it was last heard of by `before`."""
        found = self._buckets.get(bucket)
        if found is None or not found.contacts:
            return None
        contact = found.contacts[0]
        return contact if contact.last_seen <= before else None

    def neighbourhood(self) -> int:
        """The bucket of the k-th closest contact: what is as close or closer is likely all known.

        0 when there are fewer than k contacts.
        """
        inside = 0
        for number in sorted(self._buckets, reverse=True):
            inside += len(self._buckets[number].contacts)
            if inside >= self._config.k:
                return number
        return 0

    def radius(self, count: int) -> int:
        """The distance from any position within which so many peers of the network are expected.

        Peers stand at random, so the i-th closest to us says how dense they stand: i for its
        distance. We take the middle of what the closest k / 2 to k contacts say; 0 where there
        are fewer.
        """
        k = self._config.k
        distances = sorted(contact.position ^ self.own for contact in self._contacts.values())[:k]
        spacings = sorted(
            distance // rank for rank, distance in enumerate(distances, 1) if rank >= max(2, k // 2)
        )
        return spacings[len(spacings) // 2] * count if spacings else 0

    def closest(self, target: int, count: int, without: PeerId = b"") -> list[PeerId]:
        """The contacts closest to a position, the closest first; those that failed left out.

        Contacts of the target's own bucket share more bits with it than we do and are closer than
        all others. Those of deeper buckets share exactly as many as we do and come next, then
        those of wider buckets, one after the other.
        """
        buckets = self._buckets
        shared = shared_bits(self.own, target)
        nearest = buckets.get(shared)
        found = [] if nearest is None else _sorted(nearest.contacts, target, without)
        if len(found) < count:
            deeper: list[Contact] = []
            for number, bucket in buckets.items():
                if number > shared:
                    deeper.extend(bucket.contacts)
            found += _sorted(deeper, target, without)
            number = shared
            while len(found) < count and number:
                number -= 1
                wider = buckets.get(number)
                if wider is not None:
                    found += _sorted(wider.contacts, target, without)
        return found[:count]


def _sorted(contacts: Sequence[Contact], target: int, without: PeerId) -> list[PeerId]:
    """Those who did not fail, by their distance to a position."""
    pairs = [(each.position ^ target, each.peer) for each in contacts if not each.failures]
    pairs.sort()
    return [peer for _, peer in pairs if peer != without]
