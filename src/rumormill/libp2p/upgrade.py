"""From a bare socket to an encrypted connection with streams, as one machine.

The upgrade is a chain: multistream agrees on noise, noise proves who is there, and multistream
agrees on yamux, unless noise did already. Each link hands on the bytes that lie behind it.
"""

from collections.abc import Callable

from rumormill.core.errors import PeerError
from rumormill.libp2p.multistream import Initiator, Listener, Outcome
from rumormill.libp2p.noise import NOISE, NoiseHandshake, NoiseSession, RemoteIdentity
from rumormill.libp2p.yamux import YAMUX
from rumormill.wire.keys import PeerId, PrivateKey


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
    ) -> None:
        """Prove that we own `key`; a dialler refuses any peer but the expected one."""
        self.session: NoiseSession | None = None
        self.remote: RemoteIdentity | None = None
        self.done = False
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
        return data

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the peer; once done, return those of yamux, decrypted."""
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
        self.session, self.remote = session, handshake.remote
        if handshake.muxer == YAMUX:
            self.done = True
            return session.decrypt(rest)
        self._negotiation = self._role((YAMUX,))
        self._to_send += session.encrypt(self._negotiation.data_to_send())
        self._stage = self._agree_on_muxer
        return rest

    def _agree_on_muxer(self, data: bytes) -> bytes:
        assert self.session is not None
        rest = self._negotiation.receive(self.session.decrypt(data))
        self._to_send += self.session.encrypt(self._negotiation.data_to_send())
        if self._negotiation.outcome is Outcome.REFUSED:
            raise PeerError("no-common-muxer", "the peer does not speak yamux")
        self.done = self._negotiation.outcome is Outcome.AGREED
        return rest
