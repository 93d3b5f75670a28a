"""mDNS as libp2p has it: the nodes of one link find each other, and nobody has to name one.

A machine for one link, which is an address of ours and the network around it. Whoever looks for
others asks the link for the service `_p2p._udp.local`; whoever is there answers with a name that
stands for itself until it ends, and with its addresses. A private network has a service name of its
own, made from the key's fingerprint, and hears and answers no other.

The rules: what comes from outside the link is not heard. A node is believed about itself only, so
that an answer can have us dial its sender and nobody else; the handshake then proves who is there.
We answer once a second at most, whoever asks how often. What is looked at and what is learnt has
its limits, for each sender and for all; what is beyond them is counted and forgotten.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface
from typing import Final

import msgspec

from rumormill.core.bounded import remember
from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.core.rate_limit import RateLimit
from rumormill.libp2p.pnet import PrivateNetwork
from rumormill.wire import dns, keys
from rumormill.wire.dns import DnsMessage, Name, Record
from rumormill.wire.multiaddr import Multiaddr

GROUP: Final = "224.0.0.251"
PORT: Final = 5353

OFF_LINK: Final = "mdns-off-link"
FLOOD: Final = "mdns-flood"
MALFORMED: Final = "mdns-malformed"
ELSEWHERE: Final = "mdns-elsewhere"
TOO_MANY: Final = "mdns-too-many-peers"

MAX_DATAGRAM_BYTES: Final = 9000
"""RFC 6762, 17."""
ANSWER_PAUSE: Final = 1.0
"""Seconds between two answers of ours. RFC 6762, 6."""
DATAGRAMS: Final = (200.0, 400.0)
DATAGRAMS_OF_A_SENDER: Final = (50.0, 100.0)
"""How many are looked at, a second and at once. Our choice: a hundred nodes that answer each other;
a machine with dozens."""
PEERS: Final = (64 / 60, 64.0)
PEERS_OF_A_SENDER: Final = (16 / 60, 16.0)
"""How many peers are learnt: so many a minute."""
_MAX_SENDERS: Final = 256
_MAX_KNOWN: Final = 256
_MAX_ADDRESSES: Final = 8
_ANY: Final = 255
_VALID_SECONDS: Final = 120
"""How long an answer holds. RFC 6762, 10: what names a host."""
_PREFIX: Final = b"dnsaddr="


class Found(msgspec.Struct, frozen=True):
    """A peer of the link, and where it says it is."""

    peer: PeerId
    addresses: tuple[bytes, ...]


class _Sender:
    """What one address of the link may still say."""

    __slots__ = ("datagrams", "peers")

    def __init__(self) -> None:
        self.datagrams = RateLimit(*DATAGRAMS_OF_A_SENDER)
        self.peers = RateLimit(*PEERS_OF_A_SENDER)


def service_of(network: PrivateNetwork | None) -> Name:
    """What the nodes of a network ask for."""
    private = "" if network is None else f"-{network.fingerprint}"
    return dns.name_of(f"_p2p{private}._udp.local")


class Mdns:
    """What one node says and hears on one link."""

    def __init__(
        self,
        peer: PeerId,
        name: str,
        service: Name,
        link: IPv4Interface,
        count: Callable[[str], None],
    ) -> None:
        """`name` is what stands for this node: random, so that it tells nothing. What is refused
        is counted by its reason."""
        self._peer = peer
        self._label = name.encode("ascii").lower()
        self._service = service
        self._link = link
        self.question = DnsMessage(0, 0, ((service, dns.PTR),)).encode()
        """What is asked."""
        self.answer_at: float | None = None
        """When an answer is due; it may be later."""
        self._count = count
        self._last_answer = float("-inf")
        self._datagrams = RateLimit(*DATAGRAMS)
        self._peers = RateLimit(*PEERS)
        self._senders: dict[str, _Sender] = {}
        self._known: dict[Found, None] = {}

    def answer(self, listening: Sequence[Multiaddr], now: float) -> bytes:
        """What we say of ourselves, given where we listen; nothing if not on this link."""
        self.answer_at, self._last_answer = None, now
        texts, port = [], 0
        for address in listening:
            at, own = address.endpoint, str(self._link.ip)
            if at is not None and at.host in ("0.0.0.0", own):
                port = port or at.port
                here = Multiaddr.tcp(own, at.port, keys.PeerId(self._peer), way=at.way)
                texts.append(_PREFIX + str(here).encode())
        if not texts:
            return b""
        name, host_name = (self._label, *self._service), (self._label, b"local")
        records = [
            Record(self._service, dns.PTR, _VALID_SECONDS, dns.encode_name(name)),
            Record(name, dns.TXT, _VALID_SECONDS, dns.encode_texts(texts[:_MAX_ADDRESSES])),
            # go-libp2p leaves out who has no host with an address.
            Record(
                name,
                dns.SRV,
                _VALID_SECONDS,
                bytes(4) + port.to_bytes(2) + dns.encode_name(host_name),
            ),
            Record(host_name, dns.A, _VALID_SECONDS, self._link.ip.packed),
        ]
        flags = dns.IS_ANSWER | dns.AUTHORITATIVE
        return DnsMessage(0, flags, (), tuple(records[:1]), tuple(records[1:])).encode()

    def receive(self, data: bytes, sender: str, now: float) -> list[Found]:
        """Take a datagram; return the peers that it names. `answer_at` says if it asks for us."""
        try:
            on_link = IPv4Address(sender) in self._link.network
        except ValueError:
            on_link = False
        if not on_link:
            self._count(OFF_LINK)
            return []
        known = self._senders.get(sender)
        if known is None:
            known = _Sender()
            remember(self._senders, sender, known, _MAX_SENDERS)
        if not known.datagrams.take(now) or not self._datagrams.take(now):
            self._count(FLOOD)
            return []
        try:
            if len(data) > MAX_DATAGRAM_BYTES:
                raise DecodeError("bad-dns", "larger than any of mDNS")
            message = DnsMessage.decode(data)
        except DecodeError:
            self._count(MALFORMED)
            return []
        if message.flags & dns.IS_ANSWER:
            found = self._named(message, sender)
            return [each for each in found if self._learn(each, known, now)]
        wanted = [(self._service, dns.PTR), (self._service, _ANY)]
        if self.answer_at is None and any(each in wanted for each in message.questions):
            self.answer_at = max(now, self._last_answer + ANSWER_PAUSE)
        return []

    def _named(self, message: DnsMessage, sender: str) -> list[Found]:
        """The peers that an answer names, other than ourselves, each with where its sender is."""
        names = [
            record.target
            for record in message.answers
            if record.kind == dns.PTR and record.name == self._service
        ]
        found: dict[PeerId, dict[bytes, None]] = {}
        for record in (*message.answers, *message.additional):
            if record.kind != dns.TXT or record.name not in names:
                continue
            for text in record.texts:
                address = _address_in(text)
                if address is None or address.peer_id is None:
                    continue
                peer, at = bytes(address.peer_id), address.endpoint
                places = found.setdefault(peer, {})
                if at is None or at.relay or at.host != sender:
                    continue
                if len(places) < _MAX_ADDRESSES:
                    places[Multiaddr.tcp(at.host, at.port, way=at.way).encode()] = None
        found.pop(self._peer, None)
        if not all(found.values()):
            self._count(ELSEWHERE)
        return [Found(peer, tuple(places)) for peer, places in found.items() if places]

    def _learn(self, found: Found, sender: _Sender, now: float) -> bool:
        """Whether a peer is known already, or may be learnt."""
        if found not in self._known and not (sender.peers.take(now) and self._peers.take(now)):
            self._count(TOO_MANY)
            return False
        remember(self._known, found, None, _MAX_KNOWN)
        return True


def _address_in(text: bytes) -> Multiaddr | None:
    """The address that a text names, unless it is of a transport that is not spoken here."""
    if text.startswith(_PREFIX):
        with suppress(DecodeError, UnicodeDecodeError):
            return Multiaddr.parse(text.removeprefix(_PREFIX).decode("ascii"))
    return None
