"""A topic with 50,000 stored events: whoever asks about it never holds up the event loop.

Every test is held against `loop_watch`: one callback of more than 100 ms of work fails it. Before
histories were read in pieces by a thread, a JOIN took the loop for 4 to 5 seconds.
"""

from pathlib import Path
from typing import Any

import msgspec

from live_nodes import run, until
from rumormill.core.event import Event
from rumormill.log import Durability, EventLog, StoreConfig
from rumormill.node.node import Node
from rumormill.overlay.patricia import EVERYTHING, HASH_BYTES, Summary
from rumormill.protocols.skipring.envelope import Author
from rumormill.protocols.skipring.publication_messages import CheckTrie

EVENTS = 50_000
TOPIC = "news"
QUICK_STORE = StoreConfig(durability=Durability.OS)


class Hasty:
    """An author that signs nothing: what a node has stored it does not verify again."""

    peer = b"author"
    public_key = b""

    def sign(self, payload: bytes) -> bytes:
        return bytes(64)

    def verify(self, *_: object) -> bool:
        return True


def keep(home: Path, events: list[Event]) -> None:
    """Put events into a node's log before the node runs."""
    with EventLog(home, QUICK_STORE) as log:
        for start in range(0, len(events), 1000):
            part = events[start : start + 1000]
            log.append([msgspec.structs.replace(event, received=1.0) for event in part])


def test_a_check_of_a_large_trie(tmp_path: Path) -> None:
    """A ring member that has just come back is asked about its trie, again and again."""
    author = Author(Hasty())
    made = [author.compose(TOPIC, b"%d" % n, 1e9 + n, 256).to_event() for n in range(EVENTS)]
    keep(tmp_path, made)

    async def story() -> None:
        async with Node(tmp_path, protocol="skipring", supervises=True) as node:
            await node.create_topic(TOPIC)
            driver: Any = node._driver
            publications = driver.machine.members[TOPIC].publications
            question = CheckTrie(TOPIC, (Summary(EVERYTHING, bytes(HASH_BYTES)),))
            asked = 0

            def whole() -> bool:
                nonlocal asked
                asked += 1
                driver.receive(b"curious %d" % (asked % 50), question)
                return bool(publications.whole)

            await until(whole, "the history is read")
            assert len(publications.trie) == EVENTS
            for peer in range(50):
                driver.receive(b"another %d" % peer, question)

    run(story)
