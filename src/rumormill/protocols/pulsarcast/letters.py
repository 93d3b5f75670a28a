"""The RPCs that hold a tree together, as its parts write them."""

from rumormill.core.ids import PeerId
from rumormill.protocols.pulsarcast import dates
from rumormill.protocols.pulsarcast.rpc import (
    JoinReply,
    JoinStatus,
    Operation,
    PeerAddress,
    Rpc,
    RpcMessage,
    Terms,
    addition,
    leave,
)

__all__ = ["accepted", "join", "leave", "redirect", "refusal"]


def join(topic: bytes, terms: Terms, now: float) -> Rpc:
    """Ask to become, or to remain, a child; the original reads the JOIN and skips the terms."""
    return Rpc((RpcMessage(Operation.JOIN_TOPIC, dates.iso_at(now), topic),), (terms,))


def accepted(topic: bytes, terms: Terms | None) -> Rpc:
    """Tell a peer that it is our child; `terms` hold what we have of the range that it named."""
    reply = JoinReply(topic, JoinStatus.ACCEPTED)
    return addition(reply) if terms is None else addition(reply, terms)


def redirect(topic: bytes, target: PeerId, addresses: tuple[bytes, ...]) -> Rpc:
    """Hand a peer on."""
    peers = (PeerAddress(target, addresses),)
    return addition(JoinReply(topic, JoinStatus.REDIRECTED, peers=peers))


def refusal(topic: bytes, reason: str) -> Rpc:
    """Turn a peer away."""
    return addition(JoinReply(topic, JoinStatus.REFUSED, reason=reason))
