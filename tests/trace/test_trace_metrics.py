"""Metrics of small traces, each figure computed by hand beside the trace."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.trace import (
    ControlMeta,
    DeliverMessage,
    DropRPC,
    DuplicateMessage,
    FailPublish,
    GraftMeta,
    IHaveMeta,
    Join,
    Leave,
    MessageMeta,
    NodeDown,
    NodeUp,
    OperationMeta,
    Penalise,
    PublishMessage,
    RecvRPC,
    Refuse,
    RejectMessage,
    RpcMeta,
    SendRPC,
    SkipPublish,
    SubMeta,
    UndeliverableMessage,
)
from rumormill.trace.metrics import Metrics, nearest_rank
from trace_payloads import entries

A, B, C, D = b"a", b"b", b"c", b"d"
M = b"m"


def data(*message_ids, size=100, data_size=80):
    messages = tuple(MessageMeta(message_id, "t") for message_id in message_ids)
    return RpcMeta(messages=messages, size=size, data_size=data_size)


def summary_of(trace):
    metrics = Metrics()
    metrics.observe(trace)
    metrics.close()
    return metrics.summary()


def joined(*peers):
    return [(0.0, peer, payload) for peer in peers for payload in (NodeUp(), Join("t"))]


def line_of_four():
    """A publishes; A sends to B, B to C and back to A, C to D: three hops, one duplicate."""
    return [
        *joined(A, B, C, D),
        (1.0, A, PublishMessage(M, "t")),
        (1.0, A, DeliverMessage(M, "t", A)),
        (1.0, A, SendRPC(B, data(M))),
        (1.1, B, RecvRPC(A, data(M))),
        (1.1, B, DeliverMessage(M, "t", A)),
        (1.1, B, SendRPC(C, data(M))),
        (1.1, B, SendRPC(A, data(M))),
        (1.2, A, RecvRPC(B, data(M))),
        (1.2, A, DuplicateMessage(M, B, "t")),
        (1.3, C, RecvRPC(B, data(M))),
        (1.3, C, DeliverMessage(M, "t", B)),
        (1.3, C, SendRPC(D, data(M))),
        (1.7, D, RecvRPC(C, data(M))),
        (1.7, D, DeliverMessage(M, "t", C)),
    ]


def test_deliveries_of_a_line():
    """Four pairs, all delivered, three of them remote; four copies sent, one duplicate."""
    summary = summary_of(line_of_four())
    assert summary["published"] == 1
    assert summary["expected_deliveries"] == summary["delivered"] == 4
    assert summary["delivery_ratio"] == 1.0
    assert summary["remote_deliveries"] == 3
    assert summary["messages_sent"] == 4
    assert summary["messages_per_delivery"] == pytest.approx(4 / 3)
    assert summary["duplicates_per_delivery"] == pytest.approx(1 / 3)
    assert summary["rmr"] == pytest.approx(4 / 3 - 1)
    assert summary["pending"] == 0
    assert summary["dropped"] == {}


def test_every_copy_has_one_cause():
    """Of five copies two were asked for, and one came although it was not wanted any more."""
    asked = RpcMeta((MessageMeta(M, "t"), MessageMeta(b"2", "t")), cause="iwant")
    trace = [
        *line_of_four()[:-2],
        (1.5, C, SendRPC(A, asked)),
        (1.6, A, DuplicateMessage(M, C, "t", cause="choke race")),
    ]
    summary = summary_of(trace)
    assert summary["messages_sent"] == 6
    assert summary["copies_by_cause"] == {"spread": 3, "choke race": 1, "iwant": 2}


def test_latencies_and_hops_of_a_line():
    """Latencies 0.1, 0.3, 0.7; hops 1, 2, 3. Nearest rank: p50 is the second of three."""
    summary = summary_of(line_of_four())
    assert summary["latency_p50"] == 0.3
    assert summary["latency_p90"] == summary["latency_p99"] == summary["latency_max"] == 0.7
    assert (summary["hops_max"], summary["hops_mean"]) == (3, 2.0)


def test_times_to_reach_of_a_line():
    """Of four subscribers 50 % are two (A at once, B after 0.1); 90 % and more are all four."""
    reach = summary_of(line_of_four())["time_to_reach"]
    assert reach["50"] == {"events": 1, "median": 0.1, "max": 0.1}
    assert reach["90"] == reach["99"] == reach["100"] == {"events": 1, "median": 0.7, "max": 0.7}


def test_bytes_and_load_of_a_line():
    """Four RPCs of 100 bytes with 80 of data each; loads 1, 2, 1, 0, so the mean is 1."""
    summary = summary_of(line_of_four())
    assert (summary["data_bytes"], summary["control_bytes"]) == (320, 80)
    assert summary["load_max_over_mean"] == 2.0
    assert summary["load_p99_over_mean"] == 2.0


def test_hops_count_relays_that_do_not_subscribe():
    """A to B to C where B only relays: C is two hops away."""
    summary = summary_of(
        [
            *joined(A, C),
            (1.0, A, PublishMessage(M, "t")),
            (1.1, B, RecvRPC(A, data(M))),
            (1.2, C, RecvRPC(B, data(M))),
            (1.2, C, DeliverMessage(M, "t", B)),
        ]
    )
    assert (summary["hops_max"], summary["hops_mean"]) == (2, 2.0)


def test_hops_need_no_received_rpcs():
    """Where a trace lacks RECV_RPC the deliveries' `receivedFrom` is enough."""
    trace = [entry for entry in line_of_four() if not isinstance(entry[2], RecvRPC)]
    summary = summary_of(trace)
    assert (summary["hops_max"], summary["hops_mean"]) == (3, 2.0)


def test_hops_follow_the_first_copy_and_not_a_later_shorter_one():
    """C gets it from B first (two hops), then from A: two it stays."""
    summary = summary_of(
        [
            *joined(A, B, C),
            (1.0, A, PublishMessage(M, "t")),
            (1.1, B, RecvRPC(A, data(M))),
            (1.1, B, DeliverMessage(M, "t", A)),
            (1.2, C, RecvRPC(B, data(M))),
            (1.3, C, RecvRPC(A, data(M))),
            (1.4, C, DeliverMessage(M, "t", B)),
        ]
    )
    assert summary["hops_max"] == 2


def test_an_unknown_path_gives_no_hops():
    """The copy came from a peer that is not known to have had the event."""
    trace = [*joined(A, C), (1.0, A, PublishMessage(M, "t")), (1.2, C, DeliverMessage(M, "t", B))]
    summary = summary_of(trace)
    assert (summary["hops_max"], summary["hops_mean"]) == (None, None)
    assert summary["latency_max"] == 0.2


def test_what_has_no_denominator_is_none():
    """An empty trace has counts of zero and no ratios."""
    summary = summary_of([])
    assert summary["published"] == summary["expected_deliveries"] == summary["messages_sent"] == 0
    for name in (
        "delivery_ratio",
        "messages_per_delivery",
        "duplicates_per_delivery",
        "rmr",
        "latency_p50",
        "latency_max",
        "hops_max",
        "hops_mean",
        "load_max_over_mean",
        "load_p99_over_mean",
    ):
        assert summary[name] is None, name
    assert summary["time_to_reach"]["100"] == {"events": 0, "median": None, "max": None}


def test_redundancy_is_the_mean_over_events_that_reached_anybody():
    """First event: 3 copies, 1 receiver (2.0). Second: 1 copy, 1 receiver (0.0). Third: none."""
    trace = joined(A, B)
    for message_id, copies, delivered in ((b"1", 3, True), (b"2", 1, True), (b"3", 5, False)):
        trace.append((1.0, A, PublishMessage(message_id, "t")))
        trace += [(1.0, A, SendRPC(B, data(message_id)))] * copies
        if delivered:
            trace.append((1.1, B, DeliverMessage(message_id, "t", A)))
    assert summary_of(trace)["rmr"] == pytest.approx(1.0)


def test_a_late_joiner_counts_as_extra_and_not_in_latency():
    """D joins after the event was published."""
    summary = summary_of(
        [
            *joined(A, B),
            (1.0, A, PublishMessage(M, "t")),
            (1.1, B, DeliverMessage(M, "t", A)),
            (9.0, D, Join("t")),
            (9.5, D, DeliverMessage(M, "t", A)),
        ]
    )
    assert summary["extra_deliveries"] == 1
    assert summary["latency_max"] == 0.1
    assert summary["expected_deliveries"] == 2


def test_an_undeliverable_own_copy_is_no_remote_delivery():
    """The publisher's own queue was full: no own delivery is subtracted for it."""
    summary = summary_of(
        [
            *joined(A, B),
            (1.0, A, PublishMessage(M, "t")),
            (1.0, A, DeliverMessage(M, "t", A)),
            (1.0, A, UndeliverableMessage(M, "t", "queue-full")),
            (1.1, B, DeliverMessage(M, "t", A)),
        ]
    )
    assert (summary["delivered"], summary["remote_deliveries"]) == (1, 1)
    assert summary["dropped"] == {"undeliverable": 1}


def test_control_messages_are_counted_by_kind():
    """Each IHAVE, GRAFT, subscription and operation counts once, whatever it lists."""
    meta = RpcMeta(
        subscription=(SubMeta(True, "t"), SubMeta(False, "u"), SubMeta(True, "v")),
        control=ControlMeta(
            ihave=(IHaveMeta("t", (M, M)), IHaveMeta("u")), graft=(GraftMeta("t"),)
        ),
        operations=(OperationMeta("lease"),),
        size=50,
    )
    summary = summary_of([(0.0, A, SendRPC(B, meta))])
    assert summary["control_messages"] == {
        "graft": 1,
        "ihave": 2,
        "lease": 1,
        "subscribe": 2,
        "unsubscribe": 1,
    }
    assert (summary["control_bytes"], summary["data_bytes"]) == (50, 0)


def test_reasons_are_counted_each_in_its_own_table():
    """Lost RPCs, rejected messages, refused input, penalties, and dropped pairs."""
    summary = summary_of(
        [
            *joined(A, B, C),
            (1.0, A, PublishMessage(M, "t")),
            (1.0, A, DropRPC(B, data(M), "loss")),
            (1.0, A, DropRPC(D, data(M), "")),
            (1.1, C, RejectMessage(M, A, "validation failed", "t")),
            (1.2, C, Refuse(A, "ihave-limit", "t", 7)),
            (1.2, C, Refuse(A, "ihave-limit", "t", 2)),
            (1.3, C, Penalise(A, "broken-promise", 3.0)),
            (1.4, A, NodeDown("crash")),
        ]
    )
    assert summary["rpcs_dropped"] == {"loss": 1, "unspecified": 1}
    assert summary["rejected"] == {"validation failed": 1}
    assert summary["refused"] == {"ihave-limit": 9}
    assert summary["penalties"] == {"broken-promise": 1}
    assert summary["dropped"] == {"loss": 1, "subscriber-down": 1, "validation failed": 1}
    assert (summary["delivery_ratio"], summary["pending"]) == (0.0, 0)


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 10), (50, 20), (51, 30), (75, 30), (90, 40), (100, 40)]
)
def test_percentiles_are_nearest_rank(percent, expected):
    """Of four values the median is the second: rank ceil(q·n/100)."""
    assert nearest_rank([10, 20, 30, 40], percent) == expected


@given(st.lists(entries(), max_size=30), st.integers(0, 30))
def test_any_trace_gives_the_same_keys_as_json_however_it_is_batched(trace, border):
    """No sequence of entries breaks the metrics, and batch borders do not show."""
    metrics = Metrics()
    metrics.observe(trace[:border])
    metrics.observe(trace[border:])
    metrics.close()
    summary = metrics.summary()
    assert list(summary) == list(summary_of([]))
    assert json.dumps(summary) == json.dumps(summary_of(trace))


def test_a_refusal_to_publish_does_not_look_better_than_a_loss():
    """One of two planned publications is refused: half of what was owed is delivered, and the event
    that never was is never complete. One planned for a peer that was away is owed to nobody."""
    unmade = [(2.0, A, FailPublish("t", "refused")), (3.0, A, SkipPublish("t", "publisher down"))]
    summary = summary_of([*line_of_four(), *unmade])
    assert (summary["planned"], summary["published"]) == (3, 1)
    assert summary["failed_publications"] == {"refused": 1}
    assert summary["skipped_publications"] == {"publisher down": 1}
    assert (summary["delivery_ratio"], summary["dropped"]) == (0.5, {"not-published": 4})
    assert summary["complete_ratio"] == 0.5
    assert (summary["time_to_complete"]["events"], summary["time_to_complete"]["incomplete"]) == (
        2,
        1,
    )


def test_what_reaches_a_peer_after_it_has_left():
    """Two copies of D's come after it left, one of them is even delivered; joining ends it, and
    what concerns other topics is none of it."""
    left = [
        (1.4, D, Leave("t")),
        *line_of_four()[-2:],
        (1.8, D, RecvRPC(B, data(M))),
        (1.8, D, RecvRPC(B, RpcMeta(messages=(MessageMeta(b"o", "other"),)))),
        (1.9, D, Join("t")),
        (2.0, D, RecvRPC(A, data(M))),
    ]
    summary = summary_of([*line_of_four()[:-2], *left])
    assert summary["unsubscribed"] == {"left": 1, "deliveries": 1, "copies": 2}
    assert summary_of(line_of_four())["unsubscribed"] == {"left": 0, "deliveries": 0, "copies": 0}
