"""Histories: links, heads, gaps, forks, order, drawings and what verification finds."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulsarcast_vectors import block_cid

from rumormill.core.errors import LimitError
from rumormill.core.event import Event
from rumormill.node.identity import NodeIdentity, SignatureVerifier
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.codec import stored
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor, TopicDescriptor
from rumormill.protocols.pulsarcast.format.signing import (
    BAD_SIGNATURE,
    SignedEvent,
    sign_event,
    sign_request,
)
from rumormill.protocols.pulsarcast.history.graph import (
    MAX_COLUMNS,
    NOT_ALLOWED,
    NOT_PUBLISHED,
    WRONG_FIELDS,
    WRONG_TOPIC,
    EventGraph,
    Fault,
    Fork,
    Gap,
    HistoryReport,
    HistoryVerifier,
    draw,
)
from rumormill.wire.keys import PrivateKey

ALICE, BOB = (NodeIdentity(PrivateKey(bytes([number]) * 32)) for number in (1, 2))
TOPIC = TopicDescriptor("news", ALICE.peer, dates.iso(0), allowed_publishers=(ALICE.peer,))


def an_event(
    number: int, parent: bytes | None, who: NodeIdentity = ALICE, topic: bytes = TOPIC.cid
) -> SignedEvent:
    """Event `number` of a history, dated so many seconds after 1970."""
    created = dates.iso(number * 1000)
    event = EventDescriptor(topic, who.peer, b"event %d" % number, created, who.peer, parent)
    return sign_event(event, who)


def a_chain(length: int) -> list[SignedEvent]:
    """Events that follow one another."""
    found: list[SignedEvent] = []
    for number in range(length):
        found.append(an_event(number, found[-1].cid if found else None))
    return found


def verified(events: list[Event]) -> HistoryReport:
    """The report on some kept events."""
    verifier = HistoryVerifier(TOPIC.cid, SignatureVerifier(), TOPIC)
    for event in events:
        verifier.check(event)
    return verifier.report()


parent_lists = st.lists(st.integers(-1, 30), min_size=1, max_size=30).map(
    lambda chosen: [min(parent, number - 1) for number, parent in enumerate(chosen)]
)
"""A forest: the number of each event's parent, which comes before it, or -1."""


@given(parent_lists, st.randoms(use_true_random=False), st.data())
def test_heads_gaps_and_order_do_not_depend_on_arrival(
    parents: list[int], shuffle: object, draw_: st.DataObject
) -> None:
    """Whatever comes first, and whatever is lost, the graph says what a look at all of it says."""
    names = [block_cid(str(number)) for number in range(len(parents))]
    lost = draw_.draw(st.sets(st.integers(0, len(parents) - 1), max_size=5))
    there = [number for number in range(len(parents)) if number not in lost]
    shuffle.shuffle(there)  # type: ignore[attr-defined]
    graph = EventGraph()
    for number in there:
        parent = parents[number]
        assert graph.add(names[number], None if parent < 0 else names[parent], float(number))
        assert not graph.add(names[number], None)
    followed = {parents[number] for number in there}
    assert set(graph.heads) == {names[number] for number in there if number not in followed}
    assert set(graph.roots) == {names[number] for number in there if parents[number] < 0}
    assert set(graph.missing) == {names[number] for number in lost & followed}
    # Numbers are dates and parents have lower ones, so the order is that of the numbers.
    assert graph.order() == [names[number] for number in sorted(there)]
    assert len(graph) == len(there)


@given(parent_lists, st.data())
def test_drawings_show_every_event_once(parents: list[int], draw_: st.DataObject) -> None:
    """Every event and every missing parent has its line, newest first, in a free column."""
    lost = draw_.draw(st.sets(st.integers(0, len(parents) - 1), max_size=3))
    graph = EventGraph()
    for number, parent in enumerate(parents):
        if number not in lost:
            graph.add(b"%d" % number, None if parent < 0 else b"%d" % parent, float(number))
    lines = list(draw(graph, bytes.decode))
    shown = [line.rpartition(" ")[2] for line in lines if line[-1].isdigit()]
    events = [int(each) for each in shown if each.encode() in graph]
    assert events == sorted(events, reverse=True)
    assert len(events) == len(graph)
    assert {int(each) for each in shown} - set(events) == {int(each) for each in graph.missing}
    for line in lines:
        picture = line.rpartition(" ")[0] if line[-1].isdigit() else line
        assert set(picture) <= set("|*?/_ ")
        assert picture.count("*") + picture.count("?") == (1 if line[-1].isdigit() else 0)


def test_a_drawing() -> None:
    """Branches, a gap and a second beginning."""
    graph = EventGraph()
    for created, (cid, parent) in enumerate(
        [(b"a", None), (b"b", b"a"), (b"c", b"b"), (b"d", b"b"), (b"e", b"c"), (b"f", b"x")]
    ):
        graph.add(cid, parent, float(created))
    assert list(draw(graph, bytes.decode)) == [
        "* f",
        "? x",
        "* e",
        "| * d",
        "* | c",
        "|/",
        "* b",
        "* a",
    ]


def test_a_drawing_has_so_much_room() -> None:
    """More branches than columns are refused in a sentence."""
    graph = EventGraph()
    graph.add(b"root", None)
    for number in range(MAX_COLUMNS + 1):
        graph.add(b"%d" % number, b"root", 1.0)
    with pytest.raises(LimitError, match="branches"):
        list(draw(graph, bytes.decode))


def test_a_graph_is_bounded() -> None:
    """It refuses more events than it has room for."""
    graph = EventGraph(limit=1)
    graph.add(b"a", None)
    with pytest.raises(LimitError):
        graph.add(b"b", None)
    events = [stored(signed) for signed in a_chain(2)]
    verifier = HistoryVerifier(TOPIC.cid, SignatureVerifier(), limit=1)
    verifier.check(events[0])
    with pytest.raises(LimitError):
        verifier.check(events[1])


def test_a_whole_chain_is_found_whole() -> None:
    """One head, one root, no gap: what a single publisher's history is."""
    chain = a_chain(5)
    events = [stored(signed) for signed in chain]
    report = verified(list(reversed(events)))
    assert report.is_whole
    assert report.is_chain
    assert report.events == 5
    assert report.heads == (chain[-1].cid,)
    assert report.roots == (chain[0].cid,)


def test_what_is_missing_is_named() -> None:
    """A gap names the event that is not there and those that need it."""
    chain = a_chain(4)
    report = verified([stored(signed) for signed in (chain[0], chain[1], chain[3])])
    assert not report.is_whole
    assert not report.is_chain
    assert report.gaps == (Gap(chain[2].cid, (chain[3].cid,)),)
    assert report.heads == (chain[1].cid, chain[3].cid)


def test_forks_are_named_and_no_fault() -> None:
    """Two publishers that link to the same event make a fork; nothing is wrong with that."""
    first = an_event(0, None)
    others = [an_event(1, first.cid), an_event(2, first.cid), an_event(3, None)]
    report = verified([stored(signed) for signed in (first, *others)])
    assert report.is_whole
    assert not report.is_chain
    assert report.forks == (
        Fork(None, (first.cid, others[2].cid)),
        Fork(first.cid, (others[0].cid, others[1].cid)),
    )


def test_every_kind_of_forgery_is_found() -> None:
    """A changed payload, a foreign topic, a foreign signature, a publisher without permission."""
    good = an_event(0, None)
    changed = msgspec.structs.replace(stored(an_event(1, None)), data=b"other")
    foreign = stored(an_event(2, None, topic=block_cid("other topic")))
    other_key = sign_event(an_event(3, None).event, BOB).publisher_signature
    forged = stored(SignedEvent(an_event(3, None).event, other_key))
    stranger = stored(an_event(4, None, BOB))
    relinked = msgspec.structs.replace(stored(an_event(5, good.cid)), parents=())
    request = stored(sign_request(EventDescriptor(TOPIC.cid, ALICE.peer, b"", dates.iso(6)), ALICE))
    report = verified([stored(good), changed, foreign, forged, stranger, relinked, request])
    assert report.faults == (
        Fault(changed.id, "wrong-cid"),
        Fault(foreign.id, WRONG_TOPIC),
        Fault(forged.id, BAD_SIGNATURE),
        Fault(stranger.id, NOT_ALLOWED),
        Fault(relinked.id, WRONG_FIELDS),
        Fault(request.id, NOT_PUBLISHED),
    )
    assert report.heads == (good.cid,)
    assert not report.is_whole


def test_unsigned_events_are_counted() -> None:
    """Their CIDs hold, their authors cannot be checked: events of the original."""
    report = verified([stored(SignedEvent(an_event(0, None).event))])
    assert report.unsigned == 1
    assert report.is_whole
