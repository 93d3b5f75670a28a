"""Why a membership message was not acted upon: the reasons under which it is counted."""

from typing import Final

TOO_MANY_MESSAGES: Final = "too many membership messages"
TOO_MANY_NEWCOMERS: Final = "too many newcomers"
VIEW_FULL: Final = "active view full"
NOT_NEIGHBOUR: Final = "not a neighbour"
NOT_CONNECTED: Final = "not connected"
UNASKED_REPLY: Final = "unasked reply"
UNKNOWN_KIND: Final = "unknown membership message"
NO_PEER: Final = "membership message without a peer"
HOPS_CLAMPED: Final = "hops clamped"
BAD_MINIMA: Final = "bad size estimate"
EPOCH_AHEAD: Final = "epoch ahead of time"
