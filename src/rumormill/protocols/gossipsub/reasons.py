"""Why GossipSub did not act on something, and what it charged peers for: fixed labels.

And what a rejected message (`protocols.pubsub.reasons`) means to those who keep account of peers.
"""

from typing import Final

from rumormill.protocols.pubsub import reasons as common
from rumormill.protocols.pubsub.reasons import (
    INVALID_SIGNATURE,
    MISSING_SIGNATURE,
    UNEXPECTED_AUTH_INFO,
    UNEXPECTED_SIGNATURE,
)

BELOW_GRAYLIST = "score below graylist threshold"
BELOW_GOSSIP_THRESHOLD = "score below gossip threshold"
BELOW_PX_THRESHOLD = "score below px threshold"
NEGATIVE_SCORE = "negative score"
THROTTLED = "throttled by the gater"

GRAFT_UNKNOWN_TOPIC = "graft: unknown topic"
GRAFT_NOT_SUBSCRIBED = "graft: sender not subscribed"
GRAFT_NO_MESH = "graft: sender speaks floodsub"
GRAFT_LIMITED = "graft: through a limited relay"
GRAFT_DIRECT_PEER = "graft: direct peer"
GRAFT_DURING_BACKOFF = "graft: during backoff"
GRAFT_FLOOD = "graft: flood"
GRAFT_AGAIN = "graft: linked already"
GRAFT_MESH_FULL = "graft: mesh full"

PRUNE_TOO_MANY = "prune: too many per heartbeat"
IHAVE_TOO_MANY_MESSAGES = "ihave: too many per heartbeat"
IHAVE_TOO_MANY_IDS = "ihave: too many ids"
IWANT_UNKNOWN = "iwant: not in the cache"
IWANT_TOO_OFTEN = "iwant: asked too often"
IDONTWANT_TOO_MANY_MESSAGES = "idontwant: too many per heartbeat"
IDONTWANT_TOO_MANY_IDS = "idontwant: too many ids"
PX_TOO_MANY_PEERS = "px: too many peers"
PX_BAD_RECORD = "px: record not valid"

EXTENSIONS_AGAIN = "extensions named again"
TRUNK_NOT_OFFERED = "trunk: not offered"
WISH_TOO_MANY = "trunk: too many wishes per heartbeat"
PROBE_TOO_MANY = "probe: too many"
HAVE_TOO_MANY = "have: too many per heartbeat"

BROKEN_PROMISE = "broken promise"
EMPTY_ANNOUNCEMENT = "trunk: announced and not sent"

OBVIOUSLY_INVALID: Final = frozenset(
    {
        MISSING_SIGNATURE,
        INVALID_SIGNATURE,
        UNEXPECTED_SIGNATURE,
        UNEXPECTED_AUTH_INFO,
    }
)
"""Refused on sight: the sender is charged, and the id proves nothing, so it is not recorded."""

BLAMELESS: Final = common.BLAMELESS | {THROTTLED, GRAFT_MESH_FULL}
"""What peers are refused that do as they should: here because of how many others there are."""

UNSIGNED: Final = frozenset({MISSING_SIGNATURE, INVALID_SIGNATURE})
"""Anybody can make such a message up: it fulfils no promise."""
