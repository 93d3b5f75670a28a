"""Settings of the pub/sub layer, common to FloodSub and GossipSub."""

from enum import Enum
from typing import Final

from rumormill.core.config import Config, require

ENDLESS: Final = 2**63
"""No time and no count is this large: back-offs travel as 64-bit numbers of seconds."""


class SignPolicy(Enum):
    """Whether messages carry an author, a sequence number and a signature (pubsub README)."""

    STRICT_SIGN = "strict-sign"
    """Every message is signed; unsigned or wrongly signed ones are rejected."""
    STRICT_NO_SIGN = "strict-no-sign"
    """No message may carry author, sequence number, signature or key."""


class PubSubConfig(Config, frozen=True, kw_only=True):
    """Settings of the pub/sub layer."""

    sign_policy: SignPolicy = SignPolicy.STRICT_SIGN
    """The specification's recommended policy and go's default."""

    seen_ttl: float = 120.0
    """Seconds for which a message id is remembered. GossipSub 1.0, `seen_ttl`: 2 minutes."""

    seen_limit: int = 1_000_000
    """Ids remembered at most; the oldest go first. Our choice: at 8,000 messages per second the
    two minutes of `seen_ttl` fill it, which is what one core can verify."""

    max_rpc_size: int = 1 << 20
    """Bytes of an RPC at most, so of a message too; larger RPCs are split, a larger message
    cannot be published. go's `DefaultMaxMessageSize`: 1 MiB."""

    max_topic_length: int = 1024
    """Bytes of a topic name at most. Our choice: names stay readable and tables small."""

    max_subscriptions: int = 5000
    """Own subscriptions at most. Our choice: what one hello RPC may announce to a peer."""

    max_subscriptions_per_peer: int = 1024
    """Topics remembered per peer at most. nim's limit; rust's default of 100 would refuse
    honest peers of applications with a topic per document."""

    max_pending_validations: int = 8192
    """Messages that wait for a deferred verdict at most. go's global validation throttle."""

    announce_retry: float = 1.0
    """Seconds until a subscription announcement that could not be sent is sent again. go waits
    up to 1 s."""

    def validate(self) -> None:
        """Refuse impossible values."""
        require(0 < self.seen_ttl < ENDLESS, "seen_ttl", "must be positive and finite")
        require(self.seen_limit >= 1, "seen_limit", "must be at least 1")
        require(
            self.max_rpc_size >= 1024,
            "max_rpc_size",
            "must be at least 1024, or control messages do not fit",
        )
        require(self.max_topic_length >= 1, "max_topic_length", "must be at least 1")
        require(self.max_subscriptions >= 1, "max_subscriptions", "must be at least 1")
        require(
            self.max_subscriptions_per_peer >= 1,
            "max_subscriptions_per_peer",
            "must be at least 1",
        )
        require(
            self.max_pending_validations >= 0,
            "max_pending_validations",
            "must not be negative",
        )
        require(0 < self.announce_retry < ENDLESS, "announce_retry", "must be positive and finite")
