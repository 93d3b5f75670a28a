"""Peers that call messages by other names than we do.

Implementations differ in their default ids, so in a mixed network IHAVE, IWANT and IDONTWANT of one
peer mean nothing to another, and who asks for what it cannot recognise takes the answers for broken
promises. The names of the known defaults look different, and can be computed from a message. So a
peer is spoken to by the names that it uses itself: the first id that it sends tells, and before
that what its identify says of it. What it names by a function of its own is not understood.

Only topics that have our general preset are translated: another one for a topic, or a function of
the application, is an agreement with its peers.
"""

from collections.abc import Callable, Mapping
from typing import Final

from rumormill.core.ids import MessageId, PeerId
from rumormill.protocols.pubsub.config import PubSubConfig
from rumormill.protocols.pubsub.message_ids import NAMINGS, MessageNaming, naming_of
from rumormill.protocols.pubsub.messages import Message
from rumormill.protocols.registry import Hooks

Name = Callable[[Message], MessageId]

_DEFAULTS: Final = (MessageNaming.LIBP2P, MessageNaming.JS, MessageNaming.RUST)
_AGENTS: Final = {"js-libp2p/": MessageNaming.JS, "rust-libp2p/": MessageNaming.RUST}
"""Who names messages so unless told otherwise; what still calls itself so was told nothing, most
likely."""


class Dialects:
    """How each peer names messages, where it is not as we do."""

    def __init__(self, config: PubSubConfig, hooks: Hooks) -> None:
        self._own = config.message_id
        self._agreed = config.message_ids
        self._agents: Mapping[PeerId, str] = hooks.agents
        self._translates = hooks.message_id is None and self._own in _DEFAULTS
        self._met: dict[PeerId, bool] = {}
        """Who has been looked at, and whether it has said an id."""
        self._names: dict[PeerId, Name] = {}
        self.spoken: dict[MessageNaming, Name] = {}
        """The names that some peer uses, or has used, besides our own."""

    def hear(self, peer: PeerId, message_ids: tuple[MessageId, ...]) -> None:
        """Learn from the ids that a peer sends how it names messages."""
        if not self._met.get(peer) and self._translates and message_ids:
            naming = naming_of(message_ids[0])
            if naming is not None:
                self._met[peer] = True
                self._note(peer, naming)

    def name(self, peer: PeerId) -> Name | None:
        """The function by which a peer names messages; None if it is ours."""
        if peer not in self._met and self._translates:
            agent = self._agents.get(peer)
            if agent is not None:
                self._met[peer] = False
                for begins, naming in _AGENTS.items():
                    if agent.startswith(begins):
                        self._note(peer, naming)
        return self._names.get(peer)

    def _note(self, peer: PeerId, naming: MessageNaming) -> None:
        if naming is self._own:
            self._names.pop(peer, None)
            return
        if naming not in self.spoken:
            self.spoken[naming] = self._translation(NAMINGS[naming])
        self._names[peer] = self.spoken[naming]

    def _translation(self, name: Name) -> Name:
        agreed = self._agreed
        return lambda message: message.id if message.topic in agreed else name(message)

    def forget_peer(self, peer: PeerId) -> None:
        """A peer is gone."""
        self._met.pop(peer, None)
        self._names.pop(peer, None)
