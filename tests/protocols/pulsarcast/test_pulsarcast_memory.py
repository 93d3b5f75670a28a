"""The bounded memories of a peer: which events it knows, what it holds back, whom it blames."""

from hypothesis import given
from hypothesis import strategies as st
from pulsarcast_rig import event_by

from rumormill.core.effects import Disconnect, Effects
from rumormill.protocols.pulsarcast.context import PeerPenalties
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.history.feed import HoldBack
from rumormill.protocols.pulsarcast.history.timeline import BUCKET, Timeline, milliseconds, whole

TOPIC = cids.of(b"topic")
DATED = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 60_000)), unique_by=lambda item: item[0]
)


def named(number: int) -> bytes:
    """An id."""
    return cids.of(b"%d" % number)


@given(DATED, st.integers(0, 60), st.integers(0, 60))
def test_a_digest_is_that_of_the_events_in_the_range(
    dated: list[tuple[int, int]], one: int, other: int
) -> None:
    """Whatever order events come in: the count and the checksum are those of the range's ids."""
    start, end = sorted((one * BUCKET, other * BUCKET))
    timeline = Timeline(10_000)
    for number, date in dated:
        assert timeline.add(named(number), date)
        assert not timeline.add(named(number), date)
    inside = [named(number) for number, date in dated if start <= date < end]
    checksum = 0
    for cid in inside:
        checksum ^= int.from_bytes(cid[-8:])
    assert timeline.digest(start, end) == (len(inside), checksum)
    assert sorted(timeline.between(start, end)) == sorted(inside)


@given(DATED, st.integers(1, 20))
def test_a_timeline_forgets_the_oldest_and_says_from_when_it_is_complete(
    dated: list[tuple[int, int]], limit: int
) -> None:
    """What is dated from `start` on is all there; what is older is gone and stays out."""
    timeline = Timeline(limit)
    for number, date in dated:
        timeline.add(named(number), date)
    assert len(timeline) <= limit
    assert all(date >= timeline.start for date in timeline.dates.values())
    if timeline.start:
        assert not timeline.add(cids.of(b"late"), timeline.start - 1)


def test_dates_fall_into_whole_buckets() -> None:
    """A bucket begins at a full second."""
    assert whole(12_345) == 12_000
    assert milliseconds(1.5) == 1500


@given(st.permutations(range(8)))
def test_held_events_are_released_in_the_order_of_their_links(order: list[int]) -> None:
    """In whatever order a chain's links arrive, they come out parents first, each once."""
    chain = [event_by(0, TOPIC, b"0", "2020-01-01T00:00:00.000Z")]
    for number in range(1, 9):
        created = f"2020-01-01T00:00:0{number}.000Z"
        chain.append(event_by(0, TOPIC, b"%d" % number, created, chain[-1].cid))
    hold = HoldBack(100)
    for place in order:
        event = chain[place + 1]
        assert event.event.parent is not None
        hold.hold(event.event.parent, event, 1.0)
    assert (hold.missing(0.5), hold.missing(1.0)) == ([], [chain[0].cid])
    assert [each.cid for each in hold.release(chain[0].cid)] == [each.cid for each in chain[1:]]
    assert (hold.held, hold.missing(1.0)) == ({}, [])


def test_a_missing_ancestor_is_given_up_and_remembered_as_overtaken() -> None:
    """The events behind it go on; those behind a held one wait for that."""
    first = event_by(0, TOPIC, b"1", "2020-01-01T00:00:01.000Z", cids.of(b"lost"))
    second = event_by(0, TOPIC, b"2", "2020-01-01T00:00:02.000Z", first.cid)
    hold = HoldBack(100)
    hold.hold(first.cid, second, 5.0)
    hold.hold(cids.of(b"lost"), first, 6.0)
    assert hold.give_up(5.5) == []
    assert hold.give_up(6.0) == [cids.of(b"lost")]
    assert cids.of(b"lost") in hold.overtaken
    released = hold.release(cids.of(b"lost"))
    assert [each.event.payload for each in released] == [b"1", b"2"]


def test_points_fade_and_pile_up_to_a_ban() -> None:
    """Half is forgotten after the half-life; at the limit the connection ends for a while."""
    penalties = PeerPenalties(limit=100.0, half_life=60.0, ban_time=30.0)
    effects: Effects = []
    penalties.penalise(b"a", "lies", 80.0, 0.0, effects)
    assert penalties.points(b"a", 60.0) == 40.0
    assert not penalties.is_banned(b"a", 60.0)
    penalties.penalise(b"a", "lies", 60.0, 60.0, effects)
    assert [each.peer for each in effects if isinstance(each, Disconnect)] == [b"a"]
    assert penalties.is_banned(b"a", 61.0)
    assert not penalties.is_banned(b"a", 91.0)
    assert penalties.points(b"a", 91.0) == 0.0


def test_records_of_misbehaviour_are_bounded() -> None:
    """A crowd of liars fills the memory no further than its limit."""
    penalties = PeerPenalties(limit=100.0, half_life=60.0, ban_time=30.0)
    for number in range(10_000):
        penalties.penalise(b"%d" % number, "lies", 1.0, 0.0, [])
        penalties.penalise(b"%d!" % number, "lies", 100.0, 0.0, [])
    assert len(penalties._points) <= 4096
    assert len(penalties.banned) <= 4096
