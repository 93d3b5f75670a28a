"""Whose fault it was: every error rumormill raises on purpose is one of these.

Two families matter to a runtime. A `PeerError` means that the remote side broke a rule: the peer
pays for it (penalty, closed connection) and nobody else notices. A `LocalError` means that our own
caller did, and is raised to that caller. Anything else that escapes is a bug.
"""


class RumormillError(Exception):
    """The root of all errors that rumormill raises on purpose."""


class LocalError(RumormillError):
    """The caller on this side asked for something that cannot be."""


class ConfigError(LocalError):
    """A configuration value is impossible; the message names the key and what is allowed."""


class LimitError(LocalError):
    """A local request would exceed a configured bound."""


class OutOfTimeError(LocalError):
    """What was asked for did not come within the time that the caller gave it."""


class PeerError(RumormillError):
    """The remote peer sent something that breaks the protocol.

    `reason` is a short fixed label under which the refusal is counted; `detail` is for people.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class DecodeError(PeerError):
    """Bytes from a peer are not a message of the expected format, or exceed its limits."""
