"""Descriptors, their names, their dates and who may do what."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulsarcast_vectors import PEERS, block_cid

from rumormill.core.errors import DecodeError
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dag_cbor, dates
from rumormill.protocols.pulsarcast.format.dag_cbor import Link
from rumormill.protocols.pulsarcast.format.descriptors import (
    PROTOCOL,
    EventDescriptor,
    EventLinking,
    TopicDescriptor,
    is_foreign,
    meta_topic,
    read_event,
    read_topic,
)

ALICE, BOB, CAROL = PEERS["alice"], PEERS["bob"], PEERS["carol"]
CREATED = "2021-06-30T23:59:59.007Z"

peer_ids = st.binary(min_size=1, max_size=40)
some_cids = st.integers(0, 9).map(lambda number: block_cid(str(number)))
created = st.integers(0, 2**42).map(dates.iso)
topics = st.builds(
    TopicDescriptor,
    name=st.text(max_size=20),
    author=peer_ids,
    created=created,
    parent=st.none() | some_cids,
    sub_topics=st.dictionaries(st.text(max_size=8), some_cids, max_size=5),
    allowed_publishers=st.none() | st.lists(peer_ids, max_size=3).map(tuple),
    request_to_publish=st.none() | st.lists(peer_ids, max_size=3).map(tuple),
    event_linking=st.sampled_from(EventLinking),
    protocol_version=st.text(min_size=1, max_size=10),
    extra=st.sampled_from((b"", dag_cbor.encode({"name": "weather", "z": [1, None]}))),
    cached_dag=st.just(b""),
    cached_cid=st.just(b""),
)
events = st.builds(
    EventDescriptor,
    topic=some_cids,
    author=peer_ids,
    payload=st.binary(max_size=300),
    created=created,
    publisher=st.none() | peer_ids,
    parent=st.none() | some_cids,
    protocol_version=st.text(min_size=1, max_size=10),
    extra=st.sampled_from((b"", dag_cbor.encode({"name": "weather", "z": [1, None]}))),
    cached_cid=st.just(b""),
)


@given(topics)
def test_topics_come_back(topic: TopicDescriptor) -> None:
    """A topic is what its block says, and the block is canonical."""
    block = topic.dag()
    assert dag_cbor.encode(dag_cbor.decode(block)) == block
    assert read_topic(block) == topic
    assert cids.of(block) == topic.cid


@given(events)
def test_events_come_back(event: EventDescriptor) -> None:
    """An event is what its block says, and the block is canonical."""
    block = event.dag()
    assert dag_cbor.encode(dag_cbor.decode(block)) == block
    assert read_event(block) == event
    assert cids.of(block) == event.cid


@given(st.binary(max_size=200), events, topics)
def test_other_bytes_are_no_descriptor(
    data: bytes, event: EventDescriptor, topic: TopicDescriptor
) -> None:
    """Anything else is the one error, also where it is the other kind of descriptor."""
    for read in (read_topic, read_event):
        with pytest.raises(DecodeError):
            read(data)
    with pytest.raises(DecodeError):
        read_topic(event.dag())
    with pytest.raises(DecodeError):
        read_event(topic.dag())


def event_value() -> dict[str, dag_cbor.Value]:
    """An event as a plain value, to be spoilt."""
    value = dag_cbor.decode(
        EventDescriptor(block_cid("t"), ALICE, b"x", CREATED, ALICE, block_cid("p")).dag()
    )
    assert isinstance(value, dict)
    return value


def topic_value() -> dict[str, dag_cbor.Value]:
    """A topic as a plain value, to be spoilt."""
    value = dag_cbor.decode(TopicDescriptor("news", ALICE, CREATED).dag())
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("topic", {}),
        ("topic", Link(b"\x12\x20" + bytes(32))),
        ("author", "alice"),
        ("author", bytes(65)),
        ("parent", None),
        ("parent", Link(b"\0")),
        ("payload", "text"),
        ("payload", None),
        ("publisher", {}),
        ("metadata", {"created": CREATED}),
        ("metadata", {"created": CREATED, "protocolVersion": ""}),
        ("metadata", {"created": "2021-06-30T23:59:59Z", "protocolVersion": PROTOCOL}),
        ("metadata", {"created": CREATED, "protocolVersion": PROTOCOL, "more": bytes(5000)}),
        ("more", 1),
    ],
)
def test_spoilt_events_are_refused(key: str, wrong: dag_cbor.Value) -> None:
    """Nothing may be missing, of another kind, or there besides."""
    assert read_event(dag_cbor.encode(event_value()))
    with pytest.raises(DecodeError):
        read_event(dag_cbor.encode({**event_value(), key: wrong}))


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("eventLinking", 2),
        ("eventLinking", True),
        ("eventLinking", "LAST_SEEN"),
        ("allowedPublishers", {"enabled": False, "peers": [ALICE]}),
        ("allowedPublishers", {"enabled": 1, "peers": []}),
        ("allowedPublishers", {"enabled": True}),
        ("allowedPublishers", []),
        ("requestToPublish", {"enabled": True, "peers": ["alice"]}),
    ],
)
def test_spoilt_topics_are_refused(key: str, wrong: dag_cbor.Value) -> None:
    """A list that is off and has members would be read back as an empty one: another name."""
    value = topic_value()
    metadata = value["metadata"]
    assert isinstance(metadata, dict)
    assert read_topic(dag_cbor.encode(value))
    with pytest.raises(DecodeError):
        read_topic(dag_cbor.encode({**value, "metadata": {**metadata, key: wrong}}))


def test_who_may_publish_and_who_may_ask() -> None:
    """No list lets everybody publish; an empty one nobody. For requests empty means everybody."""
    everybody = TopicDescriptor("open", ALICE, CREATED)
    assert everybody.may_publish(BOB)
    assert everybody.may_request(BOB)
    nobody = TopicDescriptor("shut", ALICE, CREATED, allowed_publishers=(), request_to_publish=None)
    assert not nobody.may_publish(ALICE)
    assert not nobody.may_request(BOB)
    listed = TopicDescriptor(
        "some", ALICE, CREATED, allowed_publishers=(ALICE,), request_to_publish=(BOB,)
    )
    assert listed.may_publish(ALICE)
    assert not listed.may_publish(BOB)
    assert listed.may_request(BOB)
    assert not listed.may_request(CAROL)


def test_a_published_request_keeps_its_authors_part() -> None:
    """Publisher and parent change the name; what is left without them is the request again."""
    request = EventDescriptor(block_cid("t"), BOB, b"please", CREATED)
    event = request.published(ALICE, block_cid("p"))
    assert event.cid != request.cid
    assert event.request() == request
    assert (event.author, event.created, event.publisher) == (BOB, CREATED, ALICE)


def test_the_meta_topic_is_the_authors() -> None:
    """`meta-<name>`, published by the author alone, open to requests."""
    meta = meta_topic("news", ALICE, CREATED)
    assert meta.name == "meta-news"
    assert meta.may_publish(ALICE)
    assert not meta.may_publish(BOB)
    assert meta.may_request(BOB)
    topic = TopicDescriptor("news", ALICE, CREATED, sub_topics={"meta": meta.cid})
    assert topic.meta == meta.cid
    assert meta.meta is None


def test_cids_are_read_in_two_ways_and_no_third() -> None:
    """base58btc and base32 in their one form; other codecs, hashes and bases are refused."""
    cid = block_cid("x")
    assert cids.parse(cids.text(cid)) == cids.parse(cids.text32(cid)) == cid
    for wrong in (
        "",
        "Qm" + "1" * 44,
        cids.text(cid)[1:],
        cids.text(cid)[:-1],
        cids.text32(cid).upper(),
        cids.text32(cid)[:-1],
        cids.text(b"\x01\x70\x12\x20" + bytes(32)),
        cids.text(cid + b"\0"),
        "z" * 200,
        "f" + cid.hex(),
    ):
        with pytest.raises(DecodeError):
            cids.parse(wrong)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_dates_are_those_of_the_calendar(milliseconds: int) -> None:
    """Years 1 to 9999 as the standard library has them, and back."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    moment += datetime.timedelta(milliseconds=milliseconds)
    expected = moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    assert dates.iso(milliseconds) == expected
    assert dates.parse(expected) == milliseconds
    assert dates.normal(expected) == expected


@given(st.integers(-dates.MAX_MILLISECONDS, dates.MAX_MILLISECONDS))
def test_every_date_of_javascript_comes_back(milliseconds: int) -> None:
    """Before year 0 and behind year 9999 too."""
    assert dates.parse(dates.iso(milliseconds)) == milliseconds


@given(st.text(max_size=80))
def test_any_text_is_a_date_or_not(text: str) -> None:
    """Reading never raises, and what it accepts is normal from then on."""
    found = dates.normal(text)
    assert found is None or dates.normal(found) == found


def test_dates_outside_the_range() -> None:
    """What JavaScript cannot hold is our caller's mistake to write."""
    with pytest.raises(ValueError, match="range"):
        dates.iso(dates.MAX_MILLISECONDS + 1)
    with pytest.raises(ValueError, match="date"):
        dates.seconds("yesterday")
    assert dates.seconds("1970-01-01T00:00:01.500Z") == 1.5
    assert dates.iso_at(1.5) == "1970-01-01T00:00:01.500Z"


def test_metadata_that_we_do_not_know_is_kept() -> None:
    """A later minor version may add fields: the descriptor keeps them, its name, and its bytes."""
    later = {"protocolVersion": "/pulsarcast/1.7.0", "name": "weather", "seal": b"\0"}
    for value, read in ((topic_value(), read_topic), (event_value(), read_event)):
        metadata = value["metadata"]
        assert isinstance(metadata, dict)
        data = dag_cbor.encode({**value, "metadata": {**metadata, **later}})
        found = read(data)
        assert (found.dag(), found.cid) == (data, cids.of(data))
        assert found.protocol_version == "/pulsarcast/1.7.0"
        assert dag_cbor.decode(found.extra) == {"name": "weather", "seal": b"\0"}


def test_the_version_tells_what_is_another_protocol() -> None:
    """Its first number conveys a breaking change; whatever it says can be looked at."""
    for version, foreign in (
        (PROTOCOL, False),
        ("/pulsarcast/1.9.3", False),
        ("/pulsarcast/2.0.0", True),
        ("/pulsarcast/0.1", True),
        ("something else", False),
    ):
        assert is_foreign(version) is foreign
        data = TopicDescriptor("news", ALICE, CREATED, protocol_version=version).dag()
        assert read_topic(data).protocol_version == version
