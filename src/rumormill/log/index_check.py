"""Whether the index of histories says what the events say.

Every event up to where its topic is indexed has its key, every key its event or its refusal, and
every sum is what its keys add up to. As in `check`, nothing is changed here.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import pairwise

from rumormill.core.history import BEGIN, END, Key, Summary, summary_of
from rumormill.log.errors import Finding, FindingKind
from rumormill.log.index_rows import (
    LEVELS,
    Node,
    get_keys,
    get_nodes,
    get_record,
    get_refusals,
    stored_key,
)
from rumormill.log.rows import OFFSET_BITS, TopicRow

_KEYS = f"""SELECT stamp, history_keys.id, place, events.id, author, created
    FROM history_keys LEFT JOIN events
        ON place >= 0 AND events.key = history_keys.topic_id << {OFFSET_BITS} | place
    WHERE history_keys.topic_id = ? AND (stamp, history_keys.id) >= (?, ?)
        AND (stamp, history_keys.id) < (?, ?) ORDER BY stamp, history_keys.id"""


def check_index(db: sqlite3.Connection, topics: Iterable[TopicRow]) -> list[Finding]:
    """What is wrong with topics' histories; of each the first that is found."""
    findings = []
    for topic in topics:
        try:
            complaint = next(_complaints(db, topic), None)
        except sqlite3.Error as error:
            complaint = str(error)
        if complaint is not None:
            detail = f"the history of topic {topic.name!r}: {complaint}"
            findings.append(Finding(FindingKind.INDEX, detail=detail))
    return findings


def _complaints(db: sqlite3.Connection, topic: TopicRow) -> Iterator[str]:
    number = topic.topic_id
    record = get_record(db, number)
    if record is None:
        if get_keys(db, number, BEGIN, END, 1):
            yield "it has keys and no record"
        return
    start, stop = topic.first_offset, record.indexed_to
    if not start <= stop <= topic.next_offset:
        yield f"it is indexed up to offset {stop}"
    refused = {refusal.place: refusal.key for refusal in get_refusals(db, number)}
    (written,) = db.execute(
        "SELECT count(*) FROM refusals WHERE topic_id = ?", (number,)
    ).fetchone()
    if len(refused) < written:
        yield "a refusal is damaged"
    query = "SELECT count(*) FROM events WHERE key BETWEEN ? AND ?"
    (stored,) = db.execute(query, (topic.key(start), topic.key(stop) - 1)).fetchone()
    levels = [get_nodes(db, number, level, BEGIN, END) for level in range(LEVELS)]
    if not all(nodes and nodes[0].first == BEGIN for nodes in levels):
        yield "it has no beginning"
    for chunk, end in _with_ends(levels[0]):
        keys = []
        for stamp, event_id, place, *fields in db.execute(_KEYS, (number, *chunk.first, *end)):
            key = Key(stamp, event_id)
            keys.append(key)
            if place < 0 and refused.pop(place, None) != key:
                yield f"a key of {stamp} has no refusal"
            elif place >= 0:
                stored -= 1
                if not start <= place < stop or stored_key(topic, *fields) != key:
                    yield f"a key of {stamp} has no event"
        if summary_of(topic.name, keys) != chunk.summary:
            yield f"the sum at {chunk.first.stamp} is wrong"
    if stored or refused:
        yield f"{stored} events and {len(refused)} refusals have no key"
    for below, above in pairwise(levels):
        yield from _wrong_sums(below, above)


def _wrong_sums(below: list[Node], above: list[Node]) -> Iterator[str]:
    """Nodes of a level that are not what the nodes of the level below add up to."""
    firsts = [node.first for node in below]
    for node, end in _with_ends(above):
        children = below[bisect_left(firsts, node.first) : bisect_left(firsts, end)]
        total = sum((child.summary for child in children), Summary())
        if not children or children[0].first != node.first or total != node.summary:
            yield f"the sum above {node.first.stamp} is wrong"


def _with_ends(nodes: list[Node]) -> Iterator[tuple[Node, Key]]:
    """Nodes, each with where it ends."""
    for node, following in pairwise([*nodes, Node(END, Summary())]):
        yield node, following.first
