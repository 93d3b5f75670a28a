"""Records on disk: written as they change, read back after a start, and judged then."""

from typing import Any

import pytest
from kad_rig import KEY, OWN, VALUE, Rig

from rumormill.core import trace
from rumormill.core.effects import Ask, KeepNote, Load, Records
from rumormill.core.event import KeptRecord
from rumormill.core.inputs import Loaded, Start, TimerFired
from rumormill.overlay.kademlia.config import HOUR
from rumormill.overlay.kademlia.keeping import BAD_RECORD, LOAD
from rumormill.overlay.kademlia.messages import KadMessage, KadType, Record
from rumormill.overlay.kademlia.operations import KadTimer
from rumormill.overlay.kademlia.stores import OWN_FULL, PEER_FULL, STORE_FULL

PUT = KadMessage(KadType.PUT_VALUE, KEY, Record(KEY, VALUE, proof=b"proof"))


def on_disk(**changes: Any) -> Rig:
    """A peer that has a disk."""
    return Rig(disk=True, **changes)


def kept(rig: Rig) -> list[KeptRecord]:
    return [each.note for each in rig.all(KeepNote) if isinstance(each.note, KeptRecord)]


def record(key: bytes = KEY, value: bytes | None = VALUE, **fields: Any) -> KeptRecord:
    return KeptRecord(key, value, **{"since": 1_000_000.0, "source": b"a", **fields})


def read(rig: Rig, *records: KeptRecord, more: bool = False) -> None:
    rig.give(Loaded(LOAD, more=more, records=records))


def test_what_is_held_for_others_is_written_with_all_that_is_known_of_it() -> None:
    rig = on_disk()
    assert rig.ask(b"a", PUT) is not None
    assert kept(rig) == [record(proof=b"proof", since=rig.now)]
    assert rig.ask(b"b", PUT) is not None
    assert kept(rig) == [], "it was there"


def test_what_is_published_is_written_as_our_own() -> None:
    rig = on_disk()
    rig.do("put_value", KEY, VALUE, proof=b"proof")
    assert kept(rig) == [record(proof=b"proof", since=rig.now, own=True, source=b"")]


def test_a_start_reads_everything_piece_by_piece() -> None:
    """And what was read is held, answered for, and not written again."""
    rig = on_disk()
    rig.give(Start())
    assert rig.all(Load) == [Load(LOAD, "", Records())]
    read(rig, record(proof=b"proof"), more=True)
    assert rig.all(Load) == [Load(LOAD, "", Records(KEY))]
    assert kept(rig) == []
    read(rig)
    assert rig.all(Load) == []
    answer = rig.ask(b"b", KadMessage(KadType.GET_VALUE, KEY))
    assert answer is not None
    assert answer.record is not None
    assert (answer.record.value, answer.record.proof) == (VALUE, b"proof")


@pytest.mark.parametrize(
    ("bad", "limits", "reason"),
    [
        (record(value=b"another"), {}, BAD_RECORD),
        (record(value=None), {}, BAD_RECORD),
        (record(key=b"nobody judges this"), {}, BAD_RECORD),
        (record(proof=bytes(5000)), {}, BAD_RECORD),
        (record(), {"limits.value_bytes": 2}, BAD_RECORD),
        (record(), {"records_bytes": 5}, STORE_FULL),
        (record(), {"records_per_peer_bytes": 5}, PEER_FULL),
    ],
)
def test_what_should_not_be_there_is_refused_counted_and_removed(
    bad: KeptRecord, limits: dict[str, int], reason: str
) -> None:
    rig = on_disk(**limits)
    read(rig, bad)
    assert rig.all(trace.Refuse) == [trace.Refuse(OWN, reason)]
    assert kept(rig) == [KeptRecord(bad.key)]
    assert len(rig.kad.records) == 0


def test_more_of_our_own_than_there_may_be_are_refused() -> None:
    rig = on_disk(own_records=1)
    other = b"/pk/\x00\x01k"
    read(rig, record(own=True), record(other, b"k", own=True))
    assert rig.refused == [OWN_FULL]
    assert rig.kad.records.own(KEY) is not None


def test_what_is_newer_in_memory_stays() -> None:
    rig = on_disk()
    rig.do("put_value", KEY, VALUE)
    read(rig, record(since=5.0))
    assert rig.kad.records.counts == {"held": 0, "bytes": 0, "own": 1}


def test_what_expired_while_all_holders_were_away_is_put_again() -> None:
    """Without replication by holders it is gone instead."""
    rig = on_disk(replicate_interval=HOUR)
    read(rig, record(since=rig.now - 1000 * HOUR))
    assert kept(rig) == []
    held = rig.kad.records.get(KEY, rig.now)
    assert held is not None
    assert rig.now <= held.due <= rig.now + HOUR
    rig.befriend(b"a")
    rig.now += HOUR
    rig.give(TimerFired(KadTimer("tick")))
    assert [each.message.key for each in rig.all(Ask) if each.peer == b"a"] == [KEY]  # type: ignore[attr-defined]
    rig = on_disk()
    read(rig, record(since=rig.now - 1000 * HOUR))
    assert kept(rig) == [KeptRecord(KEY)]


def test_our_own_are_published_again_when_they_are_due() -> None:
    """Counted from the last time, a restart in between or not."""
    rig = on_disk(republish_interval=10 * HOUR)
    read(rig, record(own=True, since=rig.now - 9 * HOUR))
    own = rig.kad.records.own(KEY)
    assert own is not None
    assert own.due == rig.now + HOUR


def test_without_company_nothing_that_we_hold_grows_old() -> None:
    """Nobody else could have it."""
    rig = on_disk(replicate_interval=HOUR)
    read(rig, record(since=rig.now))
    for _ in range(100):
        rig.now += HOUR
        rig.give(TimerFired(KadTimer("tick")))
    assert rig.kad.records.get(KEY, rig.now) is not None


def test_a_table_that_is_not_durable_neither_writes_nor_reads() -> None:
    rig = on_disk(durable=False)
    rig.give(Start())
    assert rig.all(Load) == []
    assert rig.ask(b"a", PUT) is not None
    assert kept(rig) == []
