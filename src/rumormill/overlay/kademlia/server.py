"""What this peer answers when others ask.

A question that breaks a rule is declined, so that its asker does not wait for its timeout, and the
trace says why. Whoever asks us to keep a value that its key contradicts is punished for it.
Providers may only speak for themselves. A client answers nobody.
"""

from rumormill.core import trace
from rumormill.core.effects import Answer, Decline, Effects, Learn
from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Asked
from rumormill.overlay.address_groups import network_of_text
from rumormill.overlay.kademlia import rfc3339
from rumormill.overlay.kademlia.config import KademliaConfig
from rumormill.overlay.kademlia.contacts import Contacts
from rumormill.overlay.kademlia.messages import KadMessage, KadPeer, KadType, Record
from rumormill.overlay.kademlia.stores import RECORD_AGE, Held, ProviderStore, RecordStore
from rumormill.overlay.kademlia.table import key_position
from rumormill.overlay.kademlia.validators import BAD_KEY, NO_VALIDATOR, Validators
from rumormill.wire.protobuf import read_varint

CLIENT = "kad-client"
BANNED = "kad-banned"
NOT_A_QUESTION = "kad-not-a-question"
NO_RECORD = "kad-no-record"
FOREIGN_PROVIDER = "kad-foreign-provider"
WORSE_VALUE = "kad-worse-value"
EXPIRED = "kad-expired"

_MAX_PROVIDER_KEY = 80
"""Bytes of a CID or multihash (go-libp2p-kad-dht)."""


class Server:
    """Answers questions from the table and the stores."""

    __slots__ = ("_config", "_contacts", "_providers", "_records", "_validators")

    def __init__(
        self,
        config: KademliaConfig,
        contacts: Contacts,
        records: RecordStore,
        providers: ProviderStore,
        validators: Validators,
    ) -> None:
        self._config = config
        self._contacts = contacts
        self._records = records
        self._providers = providers
        self._validators = validators

    def handle(self, asked: Asked, now: float, effects: Effects) -> None:
        """Answer a question, or refuse it."""
        message = asked.message
        if not isinstance(message, KadMessage):
            self._decline(asked, NOT_A_QUESTION, effects)
            return
        if not self._config.server:
            self._decline(asked, CLIENT, effects)
            return
        if self._contacts.is_banned(asked.peer, now):
            self._decline(asked, BANNED, effects)
            return
        answer: KadMessage | None = None
        kind = message.type
        if kind is KadType.FIND_NODE:
            answer = self._find_node(asked.peer, message, now)
        elif kind is KadType.GET_VALUE:
            answer = self._get_value(asked.peer, message, now)
        elif kind is KadType.PUT_VALUE:
            answer = self._put_value(asked.peer, message, now, effects)
        elif kind is KadType.GET_PROVIDERS:
            answer = self._get_providers(asked.peer, message, now)
        elif kind is KadType.ADD_PROVIDER:
            self._add_provider(asked, message, now, effects)
        else:
            answer = KadMessage(KadType.PING)
        if answer is not None:
            effects.append(Answer(asked.number, answer))
        elif kind is not KadType.ADD_PROVIDER:
            effects.append(Decline(asked.number))
        self._contacts.consider(asked.peer, now, effects)

    def _decline(self, asked: Asked, reason: str, effects: Effects) -> None:
        effects.append(trace.Refuse(asked.peer, reason))
        effects.append(Decline(asked.number))

    def _closer(self, key: bytes, asker: PeerId, now: float) -> tuple[KadPeer, ...]:
        peers = self._contacts.table.closest(key_position(key), self._config.k, asker)
        return tuple(self._contacts.described(peers, now))

    def _find_node(self, asker: PeerId, message: KadMessage, now: float) -> KadMessage:
        if message.brief and message.key == asker:
            return KadMessage(KadType.FIND_NODE, message.key, brief=True)
        closer = self._closer(message.key, asker, now)
        own = self._contacts.own
        if message.key == own:
            closer = (self._contacts.describe(own, now), *closer[: self._config.k - 1])
        return KadMessage(KadType.FIND_NODE, message.key, closer=closer)

    def _get_value(self, asker: PeerId, message: KadMessage, now: float) -> KadMessage:
        key = message.key
        held = self._records.get(key, now)
        record = None if held is None else record_of(held)
        if message.brief and record is not None:
            return KadMessage(KadType.GET_VALUE, key, record, brief=True)
        return KadMessage(KadType.GET_VALUE, key, record, self._closer(key, asker, now))

    def _put_value(
        self, asker: PeerId, message: KadMessage, now: float, effects: Effects
    ) -> KadMessage | None:
        record = message.record
        if record is None or record.key != message.key:
            effects.append(trace.Refuse(asker, NO_RECORD))
            return None
        key, value = record.key, record.value
        refused = self._validators.refusal(key, value)
        if refused == NO_VALIDATOR or refused == BAD_KEY:
            effects.append(trace.Refuse(asker, refused))
            return None
        if refused:
            self._contacts.punish(asker, refused, now, effects)
            return None
        held, better = self._records.get(key, now), self._validators.better
        if held is not None and held.value != value and not better(key, value, held.value):
            effects.append(trace.Refuse(asker, WORSE_VALUE))
            return None
        own = self._records.own(key)
        if own is None:
            refused = self.hold(record, asker, now)
            if refused:
                effects.append(trace.Refuse(asker, refused))
                return None
        elif own.value != value:
            own.value, own.received = value, now
            self._records.changed[key] = None
        if message.brief:
            return KadMessage(KadType.PUT_VALUE, key, brief=True)
        return KadMessage(KadType.PUT_VALUE, key, record)

    def hold(self, record: Record, source: PeerId, now: float) -> str:
        """Keep a valid record for others; return why not, or an empty string.

        The sender may say that it is older than it seems, as other implementations do of what they
        pass on: then it expires sooner. It cannot make one older that we hold.
        """
        received, proof = record.received, record.proof
        if received is None or received > now:
            received = now
        elif now - received > RECORD_AGE:
            return EXPIRED
        held = self._records.get(record.key, now)
        if held is not None and held.value == record.value:
            received = max(received, held.received)
            proof = self._good_proof(held, proof)
        due = now + self._config.replicate_interval
        return self._records.hold(Held(record.key, record.value, received, due, proof, source))

    def _good_proof(self, held: Held, other: bytes) -> bytes:
        """Of two proofs of one value the one that vouches for it; it is looked at only when they
        differ, so that an honest publisher costs its holders nothing."""
        if not other or other == held.proof:
            return held.proof
        if held.proof and self._validators.vouched(held.key, held.value, held.proof):
            return held.proof
        return other

    def _get_providers(self, asker: PeerId, message: KadMessage, now: float) -> KadMessage:
        key = message.key
        limit = self._config.limits.providers
        peers = self._providers.get(key, now)[:limit]
        if key in self._providers.own and self._contacts.own not in peers:
            peers.insert(0, self._contacts.own)
        providers = tuple([self._contacts.describe(peer, now) for peer in peers[:limit]])
        closer = self._closer(key, asker, now)
        return KadMessage(KadType.GET_PROVIDERS, key, None, closer, providers)

    def _add_provider(
        self, asked: Asked, message: KadMessage, now: float, effects: Effects
    ) -> None:
        key, asker, group = message.key, asked.peer, network_of_text(asked.address)
        if not is_content_id(key):
            effects.append(trace.Refuse(asker, BAD_KEY))
            return
        foreign = 0
        for provider in message.providers:
            if provider.peer != asker:
                foreign += 1
                continue
            refused = self._providers.add(key, asker, now, group)
            if refused:
                effects.append(trace.Refuse(asker, refused))
            elif provider.addresses:
                effects.append(Learn(asker, provider.addresses))
        if foreign:
            effects.append(trace.Refuse(asker, FOREIGN_PROVIDER, count=foreign))


def record_of(held: Held) -> Record:
    """A record as it travels, with the date from which it ages."""
    return Record(held.key, held.value, rfc3339.write(held.received), held.proof)


def is_content_id(key: bytes) -> bool:
    """Whether a key can be provided: a multihash or a CIDv1, of a length that is plausible."""
    end = len(key)
    if not 2 < end <= _MAX_PROVIDER_KEY:
        return False
    try:
        start = read_varint(key, 1, end)[1] if key[0] == 1 else 0  # a CIDv1 names its codec first
        start = read_varint(key, start, end)[1]
        length, start = read_varint(key, start, end)
    except DecodeError:
        return False
    return length == end - start > 0
