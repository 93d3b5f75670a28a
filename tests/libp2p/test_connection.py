"""The machines stacked into a connection, as a runtime stacks them, with nothing but bytes between.

`Peer` is the smallest possible runtime: it upgrades with multistream and noise, opens yamux, and
answers ping and identify on streams. The tests cut and damage what passes between two of them.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import PeerError
from rumormill.libp2p.identify import IDENTIFY, Identify, IdentifyReader
from rumormill.libp2p.multistream import Initiator, Listener, Outcome
from rumormill.libp2p.noise import NOISE, NoiseHandshake
from rumormill.libp2p.services import PING, AnswerPing
from rumormill.libp2p.yamux import YAMUX, YamuxSession
from rumormill.libp2p.yamux_types import DataReceived, Event, StreamEnded, StreamOpened
from rumormill.wire.keys import PrivateKey

ALICE, BOB = PrivateKey(b"a" * 32), PrivateKey(b"b" * 32)
PAYLOAD = bytes(range(32))


class Peer:
    """One end of a connection."""

    def __init__(self, key: PrivateKey, *, dials: PrivateKey | None = None) -> None:
        self.key = key
        self.dials = dials is not None
        self.handshake = NoiseHandshake(
            key,
            initiator=self.dials,
            static_secret=key.sign(b"static")[:32],
            ephemeral_secret=key.sign(b"ephemeral")[:32],
            expected_peer=dials.peer_id if dials else None,
        )
        self.security = self.negotiate(NOISE)
        self.muxing = self.negotiate(YAMUX)
        self.yamux = YamuxSession(client=self.dials)
        self.streams: dict[int, Initiator | Listener] = {}
        self.pings: dict[int, AnswerPing] = {}
        self.echo = b""
        self.reader = IdentifyReader()
        self.identified: Identify | None = None
        self.outgoing = b""

    def negotiate(self, protocol: str) -> Initiator | Listener:
        return Initiator([protocol]) if self.dials else Listener({protocol})

    def open(self, protocol: str, early: bytes = b"") -> None:
        stream_id = self.yamux.open_stream()
        negotiation = self.streams[stream_id] = Initiator([protocol])
        self.yamux.send(stream_id, negotiation.data_to_send() + early)

    def take(self) -> bytes:
        """Return everything this side has to say now."""
        wire = self.security.data_to_send()
        if self.security.outcome is Outcome.AGREED:
            wire += self.handshake.data_to_send()
        if (session := self.handshake.session) is not None:
            wire += session.encrypt(self.muxing.data_to_send())
            if self.muxing.outcome is Outcome.AGREED:
                wire += session.encrypt(self.yamux.data_to_send())
        return wire

    def give(self, data: bytes) -> None:
        """Take bytes from the other side, through every layer they reach."""
        if self.security.outcome is Outcome.PENDING:
            data = self.security.receive(data)
        if self.security.outcome is not Outcome.AGREED:
            return
        if self.handshake.session is None:
            data = self.handshake.receive(data)
        if self.handshake.session is None:
            return
        data = self.handshake.session.decrypt(data)
        if self.muxing.outcome is Outcome.PENDING:
            data = self.muxing.receive(data)
        if self.muxing.outcome is Outcome.AGREED:
            for event in self.yamux.receive(data):
                self.on_event(event)

    def on_event(self, event: Event) -> None:
        if isinstance(event, StreamOpened):
            self.yamux.accept(event.stream_id)
            self.streams[event.stream_id] = Listener({PING, IDENTIFY})
        elif isinstance(event, DataReceived):
            self.on_data(event.stream_id, event.data)
            self.yamux.consumed(event.stream_id, len(event.data))
        elif isinstance(event, StreamEnded) and self.streams[event.stream_id].protocol == IDENTIFY:
            self.identified = self.reader.finish()

    def on_data(self, stream_id: int, data: bytes) -> None:
        negotiation = self.streams[stream_id]
        if negotiation.outcome is Outcome.PENDING:
            data = negotiation.receive(data)
            if answer := negotiation.data_to_send():
                self.yamux.send(stream_id, answer)
            if negotiation.outcome is Outcome.PENDING:
                return
            if negotiation.protocol == IDENTIFY and isinstance(negotiation, Listener):
                about = Identify(public_key=self.key.public_key.encoded, protocols=(PING, IDENTIFY))
                self.yamux.send(stream_id, about.encode())
                self.yamux.end(stream_id)
        if negotiation.protocol == PING and isinstance(negotiation, Listener):
            echo = self.pings.setdefault(stream_id, AnswerPing()).echo(data)
            self.yamux.send(stream_id, echo)
        elif negotiation.protocol == PING and data:
            self.echo += data
        elif negotiation.protocol == IDENTIFY:
            self.reader.receive(data)


def converse(one: Peer, two: Peer, cuts: list[int]) -> None:
    """Carry bytes both ways, in pieces of the given sizes, until both are silent."""
    turn = 0
    for _ in range(50):
        silent = True
        for sender, receiver in ((one, two), (two, one)):
            wire = sender.take()
            silent = silent and not wire
            while wire:
                cut = cuts[turn % len(cuts)]
                turn += 1
                receiver.give(wire[:cut])
                wire = wire[cut:]
        if silent:
            return
    raise AssertionError("the two never fall silent")


@given(st.lists(st.integers(1, 200), min_size=1, max_size=5))
def test_two_peers_connect_ping_and_identify_however_the_bytes_are_cut(cuts: list[int]) -> None:
    """The whole stack, from the first greeting to an answered ping, in both directions."""
    alice, bob = Peer(ALICE, dials=BOB), Peer(BOB)
    for peer in (alice, bob):
        peer.open(PING, early=PAYLOAD)
        peer.open(IDENTIFY)
    converse(alice, bob, cuts)
    for peer, other in ((alice, BOB), (bob, ALICE)):
        assert peer.handshake.remote is not None
        assert peer.handshake.remote.peer_id == other.peer_id
        assert peer.echo == PAYLOAD
        assert peer.identified is not None
        peer.identified.check(other.peer_id)
        assert peer.identified.protocols == (PING, IDENTIFY)


def test_a_protocol_that_nobody_speaks_is_refused_on_its_stream_only() -> None:
    """The stream's negotiation ends in refusal; the connection goes on."""
    alice, bob = Peer(ALICE, dials=BOB), Peer(BOB)
    alice.open("/nobody/speaks/this")
    alice.open(PING, early=PAYLOAD)
    converse(alice, bob, [10_000])
    assert alice.streams[1].outcome is Outcome.REFUSED
    assert alice.echo == PAYLOAD


def test_dialling_the_wrong_peer_fails() -> None:
    """The address was somebody else's."""
    with pytest.raises(PeerError, match="wrong-peer"):
        converse(Peer(ALICE, dials=ALICE), Peer(BOB), [10_000])


@pytest.mark.parametrize("direction", ["to the listener", "to the dialler"])
def test_damage_at_every_byte_ends_the_connection_or_leaves_it_silent(direction: str) -> None:
    """One bit of one byte is changed, each byte in turn: never is the ping answered all the same.

    A changed length may leave the reader waiting for bytes that never come; everything else is a
    PeerError, and never another exception.
    """
    received, outcome = converse_with_damage(direction, position=-1)
    assert outcome == "answered"
    outcomes = [converse_with_damage(direction, position)[1] for position in range(received)]
    assert "answered" not in outcomes
    assert outcomes.count("silent") < received // 20


def converse_with_damage(direction: str, position: int) -> tuple[int, str]:
    """Connect and ping while one received byte is changed; return how many there were, and how."""
    alice, bob = Peer(ALICE, dials=BOB), Peer(BOB)
    alice.open(PING, early=PAYLOAD)
    victim = bob if direction == "to the listener" else alice
    give = victim.give
    received = 0

    def damaged(data: bytes) -> None:
        nonlocal received
        changed = bytearray(data)
        if received <= position < received + len(data):
            changed[position - received] ^= 0x01
        received += len(data)
        give(bytes(changed))

    victim.give = damaged  # type: ignore[method-assign]
    try:
        converse(alice, bob, [10_000])
    except PeerError:
        return received, "PeerError"
    return received, "answered" if alice.echo else "silent"
