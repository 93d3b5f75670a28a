"""From a bare socket to an encrypted connection with streams, as one machine.

The upgrade is a chain: multistream agrees on noise, noise proves who is there, and multistream
agrees on yamux, unless noise did already. Each link hands on the bytes that lie behind it. In a
private network all of it, and all that follows, is inside that network's cipher.
"""

from collections.abc import Callable

from rumormill.core.errors import PeerError
from rumormill.libp2p.multistream import Initiator, Listener, Outcome
from rumormill.libp2p.noise import NOISE, NoiseHandshake, NoiseSession, RemoteIdentity
from rumormill.libp2p.pnet import PrivateNetwork, PrivateSession
from rumormill.libp2p.yamux import YAMUX
from rumormill.wire.keys import PeerId, PrivateKey


class PrivateNoise:
    """A noise session inside a private network's cipher."""

    def __init__(self, private: PrivateSession, noise: NoiseSession) -> None:
        self._private = private
        self._noise = noise

    @property
    def unread(self) -> bool:
        """Whether a whole frame waits for another call of `decrypt`."""
        return self._noise.unread

    def encrypt(self, plaintext: bytes) -> bytes:
        """Encrypt for noise and around it."""
        return self._private.encrypt(self._noise.encrypt(plaintext))

    def decrypt(self, data: bytes) -> bytes:
        """Take bytes from the peer; return what they say, as noise does."""
        return self._noise.decrypt(self._private.decrypt(data))


class Upgrade:
    """One side of an upgrade; done when `remote` and `session` are known and yamux is agreed."""

    def __init__(
        self,
        key: PrivateKey,
        *,
        outbound: bool,
        static_secret: bytes,
        ephemeral_secret: bytes,
        expected_peer: PeerId | None = None,
        network: PrivateNetwork | None = None,
        nonce: bytes = b"",
        on_crumbs: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Prove that we own `key`; a dialler refuses any peer but the expected one.

        In a private network, `nonce` is what no other connection has. `on_crumbs` hears of tiny
        frames in the session (`NoiseSession.on_crumbs`).
        """
        self.session: NoiseSession | PrivateNoise | None = None
        self._noise: NoiseSession | None = None
        self._private = None if network is None else network.session(nonce, outbound=outbound)
        self.remote: RemoteIdentity | None = None
        self.done = False
        self._on_crumbs = on_crumbs
        self._role = Initiator if outbound else Listener
        self._handshake = NoiseHandshake(
            key,
            initiator=outbound,
            static_secret=static_secret,
            ephemeral_secret=ephemeral_secret,
            expected_peer=expected_peer,
            muxers=(YAMUX,),
        )
        self._negotiation = self._role((NOISE,))
        self._stage: Callable[[bytes], bytes] = self._agree_on_security
        self._to_send = bytearray(self._negotiation.data_to_send())
        if outbound:
            # noise is the only proposal, so its first message need not wait for the answer.
            self._to_send += self._handshake.data_to_send()

    def data_to_send(self) -> bytes:
        """Return and forget the bytes that wait to be sent."""
        data = bytes(self._to_send)
        self._to_send.clear()
        return data if self._private is None else self._private.encrypt(data)

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the peer; once done, return those of yamux, decrypted."""
        if self._private is not None:
            data = self._private.decrypt(data)
        while data and not self.done:
            data = self._stage(data)
        return data

    def _agree_on_security(self, data: bytes) -> bytes:
        rest = self._negotiation.receive(data)
        self._to_send += self._negotiation.data_to_send()
        if self._negotiation.outcome is Outcome.REFUSED:
            raise PeerError("no-common-security", "the peer does not speak noise")
        if self._negotiation.outcome is Outcome.AGREED:
            self._stage = self._shake_hands
        return rest

    def _shake_hands(self, data: bytes) -> bytes:
        handshake = self._handshake
        rest = handshake.receive(data)
        self._to_send += handshake.data_to_send()
        session = handshake.session
        if session is None:
            return rest
        self.session = self._noise = session
        self.remote = handshake.remote
        if self._private is not None:
            self.session = PrivateNoise(self._private, session)
        session.on_crumbs = self._on_crumbs
        if handshake.muxer == YAMUX:
            self.done = True
            return session.decrypt(rest)
        self._negotiation = self._role((YAMUX,))
        self._to_send += session.encrypt(self._negotiation.data_to_send())
        self._stage = self._agree_on_muxer
        return rest

    def _agree_on_muxer(self, data: bytes) -> bytes:
        assert self._noise is not None
        rest = self._negotiation.receive(self._noise.decrypt(data))
        self._to_send += self._noise.encrypt(self._negotiation.data_to_send())
        if self._negotiation.outcome is Outcome.REFUSED:
            raise PeerError("no-common-muxer", "the peer does not speak yamux")
        self.done = self._negotiation.outcome is Outcome.AGREED
        return rest
