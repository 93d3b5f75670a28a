"""Two stores that compare their histories, without a network between them: every message is encoded
and decoded, and its bytes are counted."""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from rumormill.core.errors import PeerError
from rumormill.core.event import Event
from rumormill.core.history import SUM_BITS, HistoryQuery, Key, stamp_of
from rumormill.core.ids import Topic
from rumormill.sim.journal import Journal
from rumormill.sync.messages import (
    Body,
    Compare,
    Events,
    Fetch,
    Probe,
    SyncMessage,
    decode_sync,
    encode_sync,
)
from rumormill.sync.ranges import AnswerCompare, AnswerFetch, AnswerProbe
from rumormill.sync.session import Arrived, Session

NOW = 2_000_000_000.0
AUTHOR = b"author"
SALT = b"0123456789abcdef"


def event(nanoseconds: int, topic: Topic = "news", author: bytes = AUTHOR) -> Event:
    """An event whose id is its author and a date, as in GossipSub."""
    return Event(topic, b"data", author, author + nanoseconds.to_bytes(8, "big"))


def dated(seconds: float, topic: Topic = "news", author: bytes = AUTHOR) -> Event:
    """An event of a time."""
    return event(int(seconds * 1e9), topic, author)


def undated(name: bytes, topic: Topic = "news") -> Event:
    """An event that carries no date."""
    return Event(topic, b"data", b"", name)


def store_of(events: Iterable[Event], limit: int = 1 << 30, sum_bits: int = SUM_BITS) -> Journal:
    """A store with these events, in this order, which keeps so many."""
    journal = Journal(limit=limit, indexed=True, sum_bits=sum_bits)
    for each in events:
        received = max(NOW - 1e6, stamp_of(each) / 1e6) if stamp_of(each) / 1e6 < NOW else NOW
        journal.keep(each, received)
    return journal


def ids_of(store: Journal, topic: Topic = "news") -> set[bytes]:
    """What a store has of a topic."""
    history = store.history(topic)
    if history is None:
        return set()
    keys = history.keys(Key(0, b""), Key(2**63 - 1, b""), 1 << 30)
    return {each.id for each in history.events(keys, 1 << 40)}


def answer(store: Journal, body: Body) -> Body:
    """What an honest peer answers."""
    query: HistoryQuery
    if isinstance(body, Probe):
        query = AnswerProbe(body)
    elif isinstance(body, Compare):
        query = AnswerCompare(body)
    else:
        assert isinstance(body, Fetch)
        query = AnswerFetch(body)
    return query.work_out(store)  # type: ignore[return-value]


class Cost(msgspec.Struct):
    """What a session has cost."""

    outcome: str = ""
    asked: int = 0
    control: int = 0
    """Bytes both ways, without the events themselves."""
    events: int = 0
    loads: int = 0
    refused: str = ""


def reconcile(
    asker: Journal,
    answerer: Callable[[Body], Body],
    topics: Iterable[Topic] = ("news",),
    *,
    since: int = 0,
    settle: float = 0.0,
    now: float = NOW,
    salt: bytes = SALT,
    audit: int = -1,
) -> Cost:
    """Run one session of `asker`, to its end."""
    wanted = tuple((topic, since) for topic in topics)
    session = Session(b"partner", wanted, salt, settle, offered=False, audit=audit)
    cost = Cost()
    number = 0
    while (step := session.next(now, number)) is not None:
        if isinstance(step, Arrived):
            for topic, sent in step.events:
                taken = Event(topic, sent.data, sent.author, sent.id, proof=sent.proof)
                cost.events += asker.keep(taken, now)
            session.note_stored(Counter(topic for topic, _ in step.events), 0, now)
            session.storing -= 1
        elif isinstance(step, HistoryQuery):
            cost.loads += 1
            session.on_worked_out(step.work_out(asker))
        else:
            cost.asked += 1
            reply = carried(answerer(carried(step, cost)), cost)
            try:
                session.on_answered(number, reply, now)
            except PeerError as error:
                cost.refused = error.reason
                return cost
        number += 1
    cost.outcome = session.outcome
    return cost


def carried(body: Body, cost: Cost) -> Body:
    """A message as it arrives, and what it takes."""
    message = SyncMessage(body)
    encoded = encode_sync(message)
    assert len(encoded) == message.meta.size
    cost.control += len(encoded) - (message.meta.data_size if isinstance(body, Events) else 0)
    return decode_sync(encoded).body
