"""The timers of a Pulsarcast peer besides a branch's own (`branch.BranchTimer`)."""

import msgspec


class HoldTimer(msgspec.Struct, frozen=True):
    """An ordered topic's events have waited long enough for an ancestor."""

    topic: bytes


class GapTimer(msgspec.Struct, frozen=True):
    """A missing parent should have arrived by itself."""

    topic: bytes
    cid: bytes


class HuntTimer(msgspec.Struct, frozen=True):
    """A neighbour should have answered for a missing block."""

    cid: bytes


class RequestTimer(msgspec.Struct, frozen=True):
    """A request to publish is to be sent again, or has failed."""

    cid: bytes


class PullTimer(msgspec.Struct, frozen=True):
    """A peer should have answered for a range of events."""

    topic: bytes


class LookTimer(msgspec.Struct, frozen=True):
    """A topic that somebody asks about was not found, and is looked for once more."""

    topic: bytes


class SubscribeTimer(msgspec.Struct, frozen=True):
    """A topic that was not found is looked for once more."""

    topic: bytes
