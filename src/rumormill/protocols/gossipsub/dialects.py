"""Peers that call messages by other names than we do.

Implementations differ in their default ids, so in a mixed network IHAVE, IWANT and IDONTWANT of one
peer mean nothing to another, and who asks for what it cannot recognise takes the answers for broken
promises. The names of the known defaults look different, and can be computed from a message. So a
peer is spoken to by the names that it uses itself: the first id of its own that it sends tells (an
IWANT repeats ours). Who may use other names, by what its identify says of it, is for some
heartbeats not told of anything. What a peer names by a function of its own is not understood.

Only topics that have our general preset are translated: another one for a topic, or a function of
the application, is an agreement with its peers.
"""

from collections.abc import Callable
from typing import Final

from rumormill.core.ids import MessageId, PeerId
from rumormill.protocols.gossipsub.message_cache import MessageCache
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.message_ids import NAMINGS, MessageNaming, naming_of
from rumormill.protocols.pubsub.messages import Message
from rumormill.protocols.registry import Hooks

Name = Callable[[Message], MessageId]

_DEFAULTS: Final = (MessageNaming.LIBP2P, MessageNaming.JS, MessageNaming.RUST)
_AGENTS: Final = ("js-libp2p/", "rust-libp2p/")
"""Who names messages otherwise than the specification unless told so."""
_PATIENCE: Final = 3
"""Heartbeats for which they are waited for; our choice: as long as they gossip about a message."""
_LOOKS: Final = 8
"""Ids of a peer that are looked at: the first may be of a topic whose names are agreed on."""


class Dialects:
    """How each peer names messages, where it is not as we do."""

    __slots__ = (
        "_agents", "_agreed", "_cache", "_looks", "_own", "_spoken", "_translates", "_waited",
        "heartbeats", "names",
    )  # fmt: skip

    def __init__(self, config: PubSubConfig, hooks: Hooks, cache: MessageCache) -> None:
        self.names: dict[PeerId, Name] = {}
        """The function by which a peer names messages, where it is not ours."""
        self._own = config.message_id
        self._agreed = config.message_ids
        self._translates = hooks.message_id is None and self._own in _DEFAULTS
        self._agents = hooks.agents
        self._cache = cache
        self._looks: dict[PeerId, int] = {}
        """How many ids of each peer have been looked at."""
        self.heartbeats = 0
        self._waited: dict[PeerId, int] = {}
        """The heartbeat from which on a peer is waited for."""
        self._spoken: dict[MessageNaming, Name] = {}
        """The names that some peer uses, or has used, besides our own."""

    def hear(self, peer: PeerId, message_ids: tuple[MessageId, ...]) -> None:
        """Learn from the ids that a peer sends how it names messages."""
        looks = self._looks.get(peer, 0)
        if message_ids and looks < _LOOKS and self._translates:
            naming = naming_of(message_ids[0])
            self._looks[peer] = looks + 1 if naming is None else _LOOKS
            self._note(peer, naming)

    def waits_for(self, peer: PeerId) -> bool:
        """Whether a peer that may use other names could show them before it is told of ours."""
        if peer in self._looks or not self._translates:
            return False
        if not self._agents.get(peer, "").startswith(_AGENTS):
            return False
        return self.heartbeats < self._waited.setdefault(peer, self.heartbeats) + _PATIENCE

    def _note(self, peer: PeerId, naming: MessageNaming | None) -> None:
        if naming is self._own:
            self.names.pop(peer, None)
        elif naming is not None:
            if naming not in self._spoken:
                name = self._spoken[naming] = self._translation(NAMINGS[naming])
                self._cache.name_also(name)
            self.names[peer] = self._spoken[naming]

    def _translation(self, name: Name) -> Name:
        agreed = self._agreed
        return lambda message: message.id if message.topic in agreed else name(message)

    def forget_peer(self, peer: PeerId) -> None:
        """A peer is gone."""
        self._looks.pop(peer, None)
        self._waited.pop(peer, None)
        self.names.pop(peer, None)
