"""A topic with 50,000 stored events: whoever asks about it never holds up the event loop.

Every test is held against `loop_watch`: one callback of more than 100 ms of work fails it. Before
histories were read in pieces by a thread, a JOIN took the loop for 4 to 5 seconds.
"""

from pathlib import Path
from typing import Any

import msgspec

from live_nodes import run, until
from rumormill.core.event import Event, Note
from rumormill.core.inputs import PeerConnected
from rumormill.log import Durability, EventLog, StoreConfig
from rumormill.node.identity import KEY_FILE, NodeIdentity, load_or_create_key
from rumormill.node.node import Node
from rumormill.overlay.patricia import EVERYTHING, HASH_BYTES, Summary
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.context import OURS
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.additions import Terms
from rumormill.protocols.pulsarcast.format.codec import stored
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor, TopicDescriptor
from rumormill.protocols.pulsarcast.format.rpc import join
from rumormill.protocols.pulsarcast.format.signing import sign_event
from rumormill.protocols.pulsarcast.tree.known_topics import note_of
from rumormill.protocols.skipring.envelope import Author
from rumormill.protocols.skipring.messages import CheckTrie

EVENTS = 50_000
TOPIC = "news"
QUICK_STORE = StoreConfig(durability=Durability.OS)


class Hasty:
    """An author that signs nothing: what a node has stored it does not verify again."""

    public_key = b""

    def __init__(self, peer: bytes = b"author") -> None:
        self.peer = peer

    def sign(self, payload: bytes) -> bytes:
        return bytes(64)

    def verify(self, *_: object) -> bool:
        return True


def keep(home: Path, events: list[Event], *notes: Note) -> None:
    """Put events and notes into a node's log before the node runs."""
    with EventLog(home, QUICK_STORE) as log:
        log.append([], notes=notes)
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
            publications = driver.protocol.members[TOPIC].publications
            question = CheckTrie(TOPIC, (Summary(EVERYTHING, bytes(HASH_BYTES)),))
            asked = 0

            def whole() -> bool:
                nonlocal asked
                asked += 1
                driver.receive(b"curious %d" % (asked % 50), [question])
                return bool(publications.whole)

            await until(whole, "the history is read")
            assert len(publications.trie) == EVENTS
            for peer in range(50):
                driver.receive(b"another %d" % peer, [question])

    run(story)


def test_joins_for_a_topic_with_a_long_history(tmp_path: Path) -> None:
    """Peers want to be children in the tree of a topic that a node has kept and does not follow."""
    own = Hasty(NodeIdentity(load_or_create_key(tmp_path / KEY_FILE)).peer)
    descriptor = TopicDescriptor("news", own.peer, dates.iso_at(1e9))
    made: list[Event] = []
    parent: bytes | None = None
    for number in range(EVENTS):
        date = dates.iso_at(1e9 + number)
        said = EventDescriptor(descriptor.cid, own.peer, b"%d" % number, date, own.peer, parent)
        made.append(stored(sign_event(said, own)))
        parent = said.cid
    keep(tmp_path, made, note_of(descriptor, 1e9))

    async def story() -> None:
        async with Node(tmp_path, protocol="pulsarcast") as node:
            driver: Any = node._driver
            question = join(descriptor.cid, Terms(descriptor.cid, silent=True), 1e9)
            joiners = [b"joiner %d" % number for number in range(20)]
            for joiner in joiners:
                driver.feed(PeerConnected(joiner, OURS))

            def admitted() -> bool:
                for joiner in joiners:
                    driver.receive(joiner, [question])
                return any(driver.machine.view().links["child"].values())

            await until(admitted, "somebody is a child")
            feed = driver.protocol.feeds.open[descriptor.cid]
            assert feed.timeline.dates, "it has read its history"

    run(story)


def test_who_is_not_taken_in_has_nothing_read_for_it(tmp_path: Path) -> None:
    """Admission is decided first: a JOIN that is turned away costs no look at the history."""
    author = Hasty()
    descriptor = TopicDescriptor("news", author.peer, dates.iso_at(1e9))
    said = EventDescriptor(descriptor.cid, author.peer, b"x", dates.iso_at(1e9), author.peer, None)
    keep(tmp_path, [stored(sign_event(said, author))], note_of(descriptor, 1e9))

    async def story() -> None:
        async with Node(tmp_path, protocol="pulsarcast") as node:
            driver: Any = node._driver
            driver.feed(PeerConnected(author.peer, OURS))
            question = join(descriptor.cid, Terms(descriptor.cid, silent=True), 1e9)

            def refused() -> bool:
                driver.receive(author.peer, [question])
                return reasons.NOT_FARTHER in node.metrics()["rumormill_refused"]

            await until(refused, "its author cannot be below us")
            feeds = driver.protocol.feeds
            assert descriptor.cid not in feeds.opening
            assert descriptor.cid not in feeds.open

    run(story)
