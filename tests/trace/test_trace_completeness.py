"""Whether everybody has everything in the end: small traces, each figure computed beside it."""

from typing import Any

import pytest

from rumormill.core.trace import (
    DeliverMessage,
    DuplicateMessage,
    Join,
    Leave,
    MessageMeta,
    NodeDown,
    NodeUp,
    OperationMeta,
    PublishMessage,
    RecvRPC,
    RpcMeta,
    SendRPC,
    SyncEnded,
    UndeliverableMessage,
)
from rumormill.trace.entries import Batch
from rumormill.trace.metrics import Metrics

A, B, C, D = b"a", b"b", b"c", b"d"
M, N = b"m", b"n"


def summary_of(trace: Batch) -> dict[str, Any]:
    metrics = Metrics()
    metrics.observe(trace)
    metrics.close()
    return metrics.summary()


def joined(*peers: bytes) -> Batch:
    return [(0.0, peer, payload) for peer in peers for payload in (NodeUp(), Join("t"))]


def published(at: float, message_id: bytes = M) -> Batch:
    """A publishes, and has it itself."""
    return [(at, A, PublishMessage(message_id, "t")), (at, A, DeliverMessage(message_id, "t", A))]


def away() -> Batch:
    """B hears of M at once; C is down from 0.5 to 3, and fetches it from B at 5."""
    return [
        *joined(A, B, C),
        (0.5, C, NodeDown("crash")),
        *published(1.0),
        (1.1, B, DeliverMessage(M, "t", A)),
        (3.0, C, NodeUp()),
        (3.0, C, Join("t")),
        (5.0, C, DeliverMessage(M, "t", B, "sync")),
    ]


def test_who_was_away_is_owed_what_it_missed() -> None:
    """Three pairs, of which the ledger expects two: C was down. Counted from its return, at 3."""
    summary = summary_of(away())
    assert (summary["expected_deliveries"], summary["extra_deliveries"]) == (2, 1)
    assert summary["complete_ratio"] == 1.0
    assert summary["time_to_complete"] == {
        "events": 1, "incomplete": 0, "p50": 2.0, "p99": 2.0, "max": 2.0,
    }  # fmt: skip


def test_who_has_it_before_its_publication_has_it() -> None:
    """B's clock is a little behind A's: everybody has everything, and B has it at once."""
    trace = [*joined(A, B), (0.9997, B, DeliverMessage(M, "t", A)), *published(1.0)]
    summary = summary_of(trace)
    assert (summary["delivered"], summary["delivery_ratio"]) == (2, 1.0)
    assert (summary["complete_ratio"], summary["time_to_complete"]["max"]) == (1.0, 0.0)
    assert (summary["latency_max"], summary["hops_max"]) == (0.0, 1)


def test_what_it_never_gets_is_missing() -> None:
    """Two of three pairs; everything is delivered that the ledger expects."""
    summary = summary_of(away()[:-1])
    assert summary["delivery_ratio"] == 1.0
    assert summary["complete_ratio"] == pytest.approx(2 / 3)
    assert summary["time_to_complete"] == {
        "events": 1, "incomplete": 1, "p50": None, "p99": None, "max": None,
    }  # fmt: skip


def test_who_is_down_at_the_end_is_owed_nothing() -> None:
    """Nobody can give C anything."""
    summary = summary_of([entry for entry in away()[:-1] if entry[0] != 3.0])
    assert summary["complete_ratio"] == 1.0


def test_who_has_left_or_came_later_is_owed_nothing() -> None:
    """B left, D joined when M was out: A's own pair remains, and what the others got counts not."""
    summary = summary_of(
        [
            *joined(A, B),
            *published(1.0),
            (1.1, B, DeliverMessage(M, "t", A)),
            (1.2, B, Leave("t")),
            (2.0, D, Join("t")),
            (9.0, D, DeliverMessage(M, "t", A, "sync")),
        ]
    )
    assert summary["complete_ratio"] == 1.0
    assert summary["time_to_complete"]["max"] == 0.0


def test_who_leaves_and_joins_again_is_owed_what_is_published_from_then_on() -> None:
    """Of two events the first is A's alone."""
    again = [(1.5, B, Leave("t")), (1.6, B, Join("t"))]
    summary = summary_of([*joined(A, B), *published(1.0), *again, *published(2.0, N)])
    assert summary["complete_ratio"] == pytest.approx(2 / 3)
    assert summary["time_to_complete"]["incomplete"] == 1


def test_a_second_join_takes_no_right_away() -> None:
    """Whoever restarts joins again, and has not left."""
    again = [(2.0, B, NodeDown("crash")), (3.0, B, NodeUp()), (3.0, B, Join("t"))]
    assert summary_of([*joined(A, B), *published(1.0), *again])["complete_ratio"] == 0.5


def test_the_time_counts_from_the_publication_when_that_comes_later() -> None:
    """M is complete before the last fault, at 3, and took no time; N takes from 4 to 4.7."""
    summary = summary_of(
        [
            *joined(A, B),
            *published(1.0),
            (1.4, B, DeliverMessage(M, "t", A)),
            (2.0, B, NodeDown("crash")),
            (3.0, B, NodeUp()),
            *published(4.0, N),
            (4.7, B, DeliverMessage(N, "t", A)),
        ]
    )
    assert summary["time_to_complete"] == {
        "events": 2, "incomplete": 0, "p50": 0.0, "p99": 0.7, "max": 0.7,
    }  # fmt: skip


def test_a_first_start_is_no_fault() -> None:
    """C starts when M is out; M takes from 1 to 1.5."""
    late = [(1.2, C, NodeUp()), (1.2, C, Join("t")), (1.5, B, DeliverMessage(M, "t", A))]
    assert summary_of([*joined(A, B), *published(1.0), *late])["time_to_complete"]["max"] == 0.5


def test_what_is_not_complete_takes_longer_than_anything() -> None:
    """Of three events one is not complete: the median is known, the longest time is not."""
    trace = joined(A, B)
    for number, at in enumerate((1.0, 2.0, 3.0)):
        trace += published(at, bytes([number]))
        if number:
            trace.append((at + number, B, DeliverMessage(bytes([number]), "t", A)))
    assert summary_of(trace)["time_to_complete"] == {
        "events": 3, "incomplete": 1, "p50": 2.0, "p99": None, "max": None,
    }  # fmt: skip


def test_what_the_application_had_no_room_for_is_missing_until_it_comes_again() -> None:
    """Taken back at 1.2, delivered again at 6."""
    trace = [
        *joined(A, B),
        *published(1.0),
        (1.1, B, DeliverMessage(M, "t", A)),
        (1.2, B, UndeliverableMessage(M, "t", "queue-full")),
    ]
    assert summary_of(trace)["complete_ratio"] == 0.5
    again = summary_of([*trace, (6.0, B, DeliverMessage(M, "t", A, "sync"))])
    assert (again["complete_ratio"], again["time_to_complete"]["max"]) == (1.0, 5.0)


def test_without_events_nothing_is_said() -> None:
    """No ratio, no times, no sessions."""
    summary = summary_of([])
    assert summary["complete_ratio"] is None
    assert summary["time_to_complete"] == {
        "events": 0, "incomplete": 0, "p50": None, "p99": None, "max": None,
    }  # fmt: skip
    assert summary["sync"] == {
        "sessions": {}, "events": 0, "deliveries": 0, "control_bytes": 0, "data_bytes": 0,
    }  # fmt: skip


def lossy() -> Batch:
    """A sends M to B and C, both up; the copy to C is lost, and C fetches M from B at 21."""
    meta = RpcMeta(messages=(MessageMeta(M, "t"),), size=100, data_size=80)
    return [
        *joined(A, B, C),
        *published(1.0),
        (1.0, A, SendRPC(B, meta)),
        (1.0, A, SendRPC(C, meta)),
        (1.1, B, RecvRPC(A, meta)),
        (1.1, B, DeliverMessage(M, "t", A)),
        (1.2, B, DuplicateMessage(M, A, "t")),
    ]


def asked(name: str, size: int, data_size: int = 0) -> SendRPC:
    return SendRPC(B, RpcMeta(operations=(OperationMeta(name),), size=size, data_size=data_size))


FETCHED: Batch = [
    (20.8, C, asked("sync probe", 40)),
    (20.9, C, asked("sync fetch", 60)),
    (21.0, C, DeliverMessage(M, "t", B, "sync")),
    (21.0, C, SyncEnded(B, "complete", 1, 1, 1)),
    (22.0, B, SyncEnded(C, "equal", 1)),
    (23.0, B, SyncEnded(C, "equal", 1)),
]


def test_what_came_by_sync_is_delivered_as_late_as_it_is() -> None:
    """It is a delivery of the ledger, with its 20 seconds, one hop behind B."""
    summary = summary_of(lossy() + FETCHED)
    assert (summary["delivery_ratio"], summary["remote_deliveries"]) == (1.0, 2)
    assert summary["latency_p50"] == 0.1
    assert summary["latency_max"] == summary["time_to_reach"]["100"]["max"] == 20.0
    assert summary["hops_max"] == 2


def test_what_a_protocol_sends_is_set_against_what_it_delivered_itself() -> None:
    """Two copies and one duplicate for the one delivery that copies made, with sync or without."""
    with_sync, without = summary_of(lossy() + FETCHED), summary_of(lossy())
    for summary in (with_sync, without):
        assert summary["messages_per_delivery"] == 2.0
        assert summary["duplicates_per_delivery"] == 1.0
        assert summary["rmr"] == 1.0


def test_a_delivery_by_sync_that_is_taken_back_counts_no_more() -> None:
    """The application of C had no room for it."""
    taken = [(21.1, C, UndeliverableMessage(M, "t", "queue-full"))]
    summary = summary_of([*lossy(), *FETCHED, *taken])
    assert (summary["remote_deliveries"], summary["sync"]["deliveries"]) == (1, 0)
    assert (summary["messages_per_delivery"], summary["rmr"]) == (2.0, 1.0)


def test_sessions_of_sync_and_what_they_cost() -> None:
    """Sessions by outcome; bytes are those of operations whose names begin with `sync`."""
    answer = [(20.95, B, asked("sync events", 200, 180)), (20.0, B, asked("synchronise", 7, 3))]
    summary = summary_of([*lossy(), *FETCHED, *answer])
    assert summary["sync"] == {
        "sessions": {"complete": 1, "equal": 2},
        "events": 1,
        "deliveries": 1,
        "control_bytes": 40 + 60 + 20,
        "data_bytes": 180,
    }
    assert summary["data_bytes"] == 2 * 80 + 180 + 3, "all bytes, those of sync included"
