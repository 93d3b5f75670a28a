"""The message cache: what can be gossiped about, and what can still be asked for.

Messages lie in windows, one per heartbeat. `shift` opens a new window and forgets the messages of
the oldest. The newest `history_gossip` windows are gossiped about; all `history_length` windows
answer requests, since a request comes some time after the gossip that caused it.

Peers may know a message by another name (`dialects`); it is found by those as well.

The cache is bounded in messages and in bytes. A message that does not fit makes the oldest windows
go early; when the newest alone fills the cache, the message is not kept. Both are counted.
"""

from collections.abc import Callable
from typing import Final

from rumormill.core.errors import ConfigError
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.pubsub.messages import Message

MESSAGES_MAX: Final = 100_000
"""Our choice: 20,000 messages a second over the 5 heartbeats of the specification."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""Our choice: a second of a saturated 100 Mbit/s link per heartbeat of history."""
TRANSMISSIONS_MAX: Final = 100_000
"""Our choice: (message, peer) pairs counted; more are refused until the next heartbeats."""
TOO_OFTEN: Final = 1 << 31
"""The count given when no more can be counted: above any limit."""

_EMPTY: Final[dict[Topic, list[MessageId]]] = {}
"""A window without messages, as most are: one for all, into which nothing is put."""


class MessageCache:
    """Messages of the last heartbeats, by id and by topic."""

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_gossip",
        "_messages_max",
        "_transmissions",
        "_transmissions_counted",
        "_windows",
        "aliases",
        "evicted",
        "messages",
        "names",
        "refused",
    )

    def __init__(
        self,
        history_length: int,
        history_gossip: int,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        if not 0 <= history_gossip <= history_length:
            raise ConfigError("history_gossip: must be between 0 and history_length")
        self.evicted = 0
        """Messages that left before their time to make room."""
        self.refused = 0
        """Messages that were not kept because there was no room."""
        self.messages: dict[MessageId, Message] = {}
        self.names: list[Callable[[Message], MessageId]] = []
        """What else messages are called, besides their ids."""
        self.aliases: dict[MessageId, MessageId] = {}
        """Ids by those other names."""
        # Newest first. A window maps a topic to the ids of its messages, in order of arrival. A
        # list, since there are few windows and an empty deque takes ten times the memory.
        self._windows: list[dict[Topic, list[MessageId]]] = [_EMPTY] * history_length
        self._gossip = history_gossip
        self._transmissions: dict[MessageId, dict[PeerId, int]] = {}
        self._transmissions_counted = 0
        self._bytes = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max

    def put(self, message: Message) -> bool:
        """Keep a message in the newest window; false if it is there already or finds no room."""
        messages = self.messages
        message_id = message.id
        if message_id in messages or not self._windows:
            return False
        size = (message.cached_meta or message.meta).size
        if len(messages) >= self._messages_max or self._bytes + size > self._bytes_max:
            self._make_room(size)
            if len(messages) >= self._messages_max or self._bytes + size > self._bytes_max:
                self.refused += 1
                return False
        messages[message_id] = message
        for name in self.names:
            self.aliases[name(message)] = message_id
        self._bytes += size
        window = self._windows[0]
        if not window:  # it may be everybody's
            window = self._windows[0] = {}
        ids = window.get(message.topic)
        if ids is None:
            window[message.topic] = [message_id]
        else:
            ids.append(message_id)
        return True

    def name_also(self, name: Callable[[Message], MessageId]) -> None:
        """Find messages by other names from now on."""
        self.names.append(name)
        for message in self.messages.values():
            self.aliases[name(message)] = message.id

    def _make_room(self, size: int) -> None:
        if size > self._bytes_max:
            return
        for age in range(len(self._windows) - 1, 0, -1):
            before = len(self.messages)
            self._forget(self._windows[age])
            self._windows[age] = _EMPTY
            self.evicted += before - len(self.messages)
            if len(self.messages) < self._messages_max and self._bytes + size <= self._bytes_max:
                return

    def get_for_peer(self, message_id: MessageId, peer: PeerId) -> tuple[Message | None, int]:
        """The message, and how often this peer has now asked for it."""
        message = self.messages.get(message_id)
        if message is None:
            return None, 0
        counts = self._transmissions.get(message_id)
        if counts is None:
            counts = self._transmissions[message_id] = {}
        count = counts.get(peer, 0) + 1
        if count == 1:
            if self._transmissions_counted >= TRANSMISSIONS_MAX:
                return message, TOO_OFTEN
            self._transmissions_counted += 1
        counts[peer] = count
        return message, count

    def gossip_ids(self, topic: Topic, windows: int | None = None) -> list[MessageId]:
        """The ids to gossip about in a topic: a new list, newest window first.

        There are fewer if only so many of the newest windows count.
        """
        ids: list[MessageId] = []
        for age in range(self._gossip if windows is None else min(windows, self._gossip)):
            found = self._windows[age].get(topic)
            if found is not None:
                ids += found
        return ids

    def shift(self) -> None:
        """Open a new window and forget the oldest."""
        windows = self._windows
        if windows:
            oldest = windows.pop()
            self._forget(oldest)
            windows.insert(0, _EMPTY)

    def _forget(self, window: dict[Topic, list[MessageId]]) -> None:
        for ids in window.values():
            for message_id in ids:
                message = self.messages.pop(message_id)
                self._bytes -= (message.cached_meta or message.meta).size
                for name in self.names:
                    self.aliases.pop(name(message), None)
                counts = self._transmissions.pop(message_id, None)
                if counts is not None:
                    self._transmissions_counted -= len(counts)

    def forget_peer(self, peer: PeerId) -> None:
        """Drop the counts of a peer that is gone."""
        for counts in self._transmissions.values():
            if counts.pop(peer, None) is not None:
                self._transmissions_counted -= 1
