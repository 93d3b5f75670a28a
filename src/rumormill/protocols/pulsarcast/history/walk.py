"""What a neighbour's question finds in a feed: the events that it wants, and those before them.

Each is taken from memory or read from the log, within what one answer may hold.
"""

from collections.abc import Iterator

from rumormill.protocols.pulsarcast.config import PulsarcastConfig
from rumormill.protocols.pulsarcast.context import PeerOperation
from rumormill.protocols.pulsarcast.format.additions import Fetch
from rumormill.protocols.pulsarcast.format.codec import encode_event
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.pulsarcast.history.feed import Feed


class FetchAnswer(PeerOperation, frozen=True):
    """A neighbour asks for events, and the log is read for it."""

    question: Fetch
    asking: tuple[bytes, ...] = ()
    """What the log is asked for now."""
    asked: tuple[bytes, ...] = ()
    """What it was asked for before."""
    read: tuple[SignedEvent, ...] = ()
    """What it had of that."""


class Walk:
    """What a question finds: the wanted events and their ancestors, parents first."""

    def __init__(self, feed: Feed, answer: FetchAnswer, config: PulsarcastConfig) -> None:
        question = self._question = answer.question
        self._feed = feed
        self._asked = dict.fromkeys(answer.asked)
        self._read = {signed.cid: signed for signed in answer.read}
        self._most = self._left = config.fetch_batch
        self._room = config.limits.rpc_bytes // 2
        self._unread: list[bytes] = []
        self.found: dict[bytes, SignedEvent] = {}
        self.missing: list[bytes] = []
        for cid in question.wanted:
            if cid != question.topic:
                chain = list(self._chain(cid))
                if not chain and cid not in self.found:
                    self.missing.append(cid)
                self.found.update((signed.cid, signed) for signed in reversed(chain))

    def _chain(self, cid: bytes) -> Iterator[SignedEvent]:
        """An event and so many before it, as far as they are known, wanted and fit."""
        question = self._question
        wanted: bytes | None = cid
        for _ in range(question.ancestors + 1):
            if wanted is None or wanted == question.known or self._left <= 0 or self._room <= 0:
                return
            signed = None if wanted in self.found else self._get(wanted)
            if signed is None:
                return
            yield signed
            self._left -= 1
            self._room -= len(encode_event(signed))
            wanted = signed.event.parent

    def _get(self, cid: bytes) -> SignedEvent | None:
        signed = self._feed.at_hand(cid) or self._read.get(cid)
        if signed is None and cid in self._feed.timeline and cid not in self._asked:
            self._unread.append(cid)
        return signed

    def to_read(self) -> tuple[bytes, ...]:
        """What the log should be asked for: events that are known and not at hand, and where the
        chain before one is wanted, its neighbours by date, which are probably that."""
        most, asked = self._most, self._asked
        if len(asked) >= 2 * most:
            return ()
        ids = dict.fromkeys(self._unread)
        if ids and self._question.ancestors:
            ids |= dict.fromkeys(self._feed.timeline.before(self._unread[0], most))
        return tuple([cid for cid in ids if cid not in asked and cid not in self.found])[:most]
