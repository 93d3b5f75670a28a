"""Metrics: the proposal's names, true numbers, no peers in labels."""

import asyncio
import platform
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from live_nodes import run, take, until
from metrics_parser import parse
from rumormill import Event, __version__
from rumormill.core import trace
from rumormill.core.api import Health
from rumormill.core.histogram import Histogram
from rumormill.core.inputs import Verdict
from rumormill.log import DiskFullError, Retention, StoreConfig, StoreFailedError
from rumormill.log.arrow import read_batches
from rumormill.node.metrics import MAX_LABELS, METRICS, OTHER, Counts, Values
from rumormill.node.metrics_page import render_metrics
from rumormill.node.node import Node
from rumormill.protocols.pubsub.reasons import (
    INVALID_SIGNATURE,
    VALIDATION_FAILED,
    VALIDATION_IGNORED,
    VALIDATION_THROTTLED,
)
from rumormill.wire.keys import PeerId

PROPOSED = (
    "topic_subscription_status", "topic_peers_count", "mesh_peer_counts", "peers_per_protocol",
    "invalid_messages", "accepted_messages", "ignored_messages", "rejected_messages",
    "topic_msg_published", "topic_msg_sent_counts", "topic_msg_sent_bytes",
    "topic_msg_recv_counts_unfiltered", "topic_msg_recv_counts", "topic_msg_recv_bytes",
)  # fmt: skip


def test_the_names_are_those_of_the_proposal_and_ours_say_so() -> None:
    """What the proposal has no name for begins with `rumormill_`, or is what every process has."""
    others = [name for name in METRICS if not name.startswith(("rumormill_", "process_"))]
    assert others == list(PROPOSED)


def test_what_full_tables_gave_up_is_counted() -> None:
    """A table that is too small forgets early, and says so by its name."""

    async def story() -> None:
        small = {"seen_limit": 5, "gater": "{}"}
        async with Node(None, parameters=small) as node:
            await node.publish_many("news", [b"%d" % number for number in range(20)])
            found = node.metrics()["rumormill_evicted"]
            assert found["seen ids"] == 15
            assert {name for name, count in found.items() if not count} == {
                "addresses",
                "messages",
                "back-offs",
                "promises",
                "scores",
                "delivery records",
                "gater accounts",
            }

    run(story)


def test_two_nodes_count_what_they_exchange() -> None:
    """Ten messages from one to the other appear at both, in every metric that they concern."""

    async def story() -> None:
        async with Node(None) as alice, Node(None) as bob:
            await bob.connect(alice.tickets[0])
            events = await alice.subscribe("news")
            await bob.wait_until_ready("news")
            for number in range(10):
                await bob.publish("news", b"%d" % number)
            assert len(await take(events, 10)) == 10
            sent, got = bob.metrics(), alice.metrics()
            assert sent.keys() == got.keys() == METRICS.keys()
            assert sent["topic_msg_published"] == {"news": 10}
            assert sent["topic_msg_sent_counts"] == {"news": 10}
            assert sent["topic_peers_count"] == {"news": 1}
            assert sent["topic_subscription_status"] == {"news": 0}
            assert sent["accepted_messages"] == {}
            assert got["topic_msg_recv_counts"] == {"news": 10}
            assert got["topic_msg_recv_counts_unfiltered"] == {"news": 10}
            assert got["accepted_messages"] == {"news": 10}
            assert got["topic_msg_recv_bytes"] == sent["topic_msg_sent_bytes"]
            assert got["topic_subscription_status"] == {"news": 1}
            assert list(got["peers_per_protocol"].values()) == [1]
            assert got["rumormill_log_appended"] == {"": 10}
            assert sum(got["rumormill_connections"].values()) == 1
            page = render_metrics(got) + render_metrics(sent)
            for node in (alice, bob):
                assert str(PeerId(node.id)) not in page
            assert got["rumormill_log_bytes"].keys() == {"news"}
            assert sent["rumormill_publish_seconds"]["+Inf"] == 10
            assert got["rumormill_delivery_seconds"]["+Inf"] == 10
            assert 0 < got["rumormill_log_commit_seconds"]["+Inf"] <= 10

    run(story)


def test_segments_are_counted_by_what_became_of_them(tmp_path: Path) -> None:
    """Two ranges of four events: sealed by the first bulk read, used by the second."""

    async def story() -> None:
        config = StoreConfig(segment_rows=4)
        async with Node(tmp_path / "home", store=config) as node:
            await node.publish_many("news", [b"%d" % number for number in range(8)])
            for _ in range(2):
                await asyncio.to_thread(list, read_batches(node.log, "news", 0, 8))
            segments = node.metrics()["rumormill_log_segments"]
            assert segments == {"used": 2, "sealed": 2, "stale": 0, "damaged": 0, "refused": 0}
            page = render_metrics(node.metrics())
            assert 'rumormill_log_segments_total{outcome="sealed"} 2\n' in page

    run(story)


def test_a_rejected_message_is_counted_with_its_reason() -> None:
    async def story() -> None:
        async with Node(None) as alice, Node(None) as bob:
            alice.set_validator("news", lambda event, peer: Verdict.REJECT)
            await bob.connect(alice.tickets[0])
            await alice.subscribe("news")
            await bob.wait_until_ready("news")
            await bob.publish("news", b"spam")
            await until(lambda: alice.metrics()["rejected_messages"], "the message was rejected")
            found = alice.metrics()
            assert found["rejected_messages"] == {"news": 1}
            assert found["rumormill_rejected"] == {VALIDATION_FAILED: 1}
            assert found["accepted_messages"] == {}

    run(story)


def counted(*payloads: trace.TracePayload) -> dict[str, Values]:
    """What is counted of a trace, without what is zero."""
    counts = Counts()
    counts.observe([(1.0, b"me", payload) for payload in payloads])
    return {
        name: {label: value for label, value in values.items() if value}
        for name, values in counts.values.items()
        if any(values.values())
    }


def test_every_drop_refusal_and_penalty_is_counted_by_reason() -> None:
    """What the trace gives a reason for can be seen on a dashboard by that reason."""
    meta = trace.RpcMeta(size=10)
    assert counted(
        trace.DropRPC(b"p", meta, "queue full"),
        trace.DropRPC(b"q", meta, "queue full"),
        trace.Refuse(b"p", "graft: flood", "t", 3),
        trace.Penalise(b"p", "broken promise", 2.5),
        trace.UndeliverableMessage(b"i", "t", "full"),
        trace.RejectMessage(b"i", b"p", INVALID_SIGNATURE, "t"),
        trace.RejectMessage(b"i", b"p", VALIDATION_IGNORED, "t"),
        trace.RejectMessage(b"i", b"p", VALIDATION_THROTTLED, "t"),
        trace.Graft(b"p", "t"),
        trace.Prune(b"p", "t"),
        trace.DuplicateMessage(b"i", b"p", "t"),
        trace.DeliverMessage(b"i", "t", b"me"),
    ) == {
        "rumormill_rpc_dropped": {"queue full": 2},
        "rumormill_refused": {"graft: flood": 3},
        "rumormill_penalties": {"broken promise": 1},
        "rumormill_undelivered": {"full": 1},
        "rumormill_rejected": {
            INVALID_SIGNATURE: 1, VALIDATION_IGNORED: 1, VALIDATION_THROTTLED: 1,
        },
        "invalid_messages": {"t": 1},
        "ignored_messages": {"t": 1},
        "rumormill_grafts": {"t": 1},
        "rumormill_prunes": {"t": 1},
        "rumormill_duplicates": {"t": 1},
    }  # fmt: skip


def test_the_bytes_of_an_rpc_are_shared_among_its_messages() -> None:
    messages = (trace.MessageMeta(b"1", "a"), trace.MessageMeta(b"2", "b"))
    found = counted(trace.RecvRPC(b"p", trace.RpcMeta(messages, size=120, data_size=100)))
    assert found["topic_msg_recv_bytes"] == {"a": 50, "b": 50}
    assert found["rumormill_rpc_received_bytes"] == {"": 120}


def test_labels_are_bounded() -> None:
    """A peer that invents topics makes no endless page."""
    found = counted(*(trace.PublishMessage(b"i", f"t{n}") for n in range(MAX_LABELS + 50)))
    values = found["topic_msg_published"]
    assert len(values) == MAX_LABELS + 1
    assert values[OTHER] == 50


def test_topics_that_peers_make_up_leave_labels_for_our_own() -> None:
    """Five hundred messages in topics of nobody would have hidden ours under `(other)` for good."""
    made_up = [trace.DuplicateMessage(b"i", b"p", f"junk{n}") for n in range(600)]
    ours = [trace.Join("ours"), trace.DuplicateMessage(b"i", b"p", "ours")]
    values = counted(*made_up, *ours)["rumormill_duplicates"]
    assert values["ours"] == 1
    assert len(values) == MAX_LABELS // 2 + 2
    assert values[OTHER] == 600 - MAX_LABELS // 2


def test_any_topic_name_makes_a_valid_page() -> None:
    values = {'a"b\\c\nd': 2.0, "ü": 1e20, "": 1.0, "a,b": 3.0}
    for openmetrics, name in ((False, "topic_msg_published_total"), (True, "topic_msg_published")):
        page = render_metrics({"topic_msg_published": values}, openmetrics=openmetrics)
        assert 'topic_msg_published_total{topic="a\\"b\\\\c\\nd"} 2\n' in page
        assert len(parse(page, openmetrics=openmetrics)[name].samples) == 4


@pytest.mark.parametrize("openmetrics", [False, True])
def test_the_whole_page_is_what_its_format_demands(tmp_path: Path, openmetrics: bool) -> None:
    """By a strict reader, over HTTP, of a node that has done something."""
    accept = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain"

    async def story() -> None:
        async with (
            Node(tmp_path) as node,
            node.serve(metrics="127.0.0.1:0") as doors,
            Node(None) as peer,
        ):
            await peer.connect(node.tickets[0])
            await node.publish_many("news", [b"%d" % number for number in range(20)])
            request = Request(f"http://{doors.metrics}/metrics", headers={"Accept": accept})
            with await asyncio.to_thread(urlopen, request) as answer:
                page = answer.read().decode()
                assert answer.headers["Content-Type"].startswith(accept)
            for name in ("healthz", "readyz"):
                url = f"http://{doors.metrics}/{name}"
                with await asyncio.to_thread(urlopen, url) as answer:
                    assert answer.read() == b"ok\n"
        found = parse(page, openmetrics=openmetrics)
        assert len(found) == len(METRICS)
        if openmetrics:
            assert found.keys() == METRICS.keys()
            assert {name: each.kind for name, each in found.items()} == {
                name: about.kind for name, about in METRICS.items()
            }
        build = found["rumormill_build" if openmetrics else "rumormill_build_info"]
        ((_, labels),) = build.samples
        assert dict(labels) == {
            "version": __version__,
            "python": platform.python_version(),
            "protocol": "gossipsub",
        }
        one = {name: [*each.samples.values()] for name, each in found.items()}
        assert one["process_cpu_seconds" + ("" if openmetrics else "_total")][0] > 0
        if sys.platform == "linux":
            assert one["process_resident_memory_bytes"][0] > 1 << 20
            assert abs(one["process_start_time_seconds"][0] - time.time()) < 3 * 86400
            assert 0 < one["process_open_fds"][0] < one["process_max_fds"][0]
        assert one["rumormill_disk_free_bytes"][0] > 0

    run(story)


def test_what_operators_watch_is_on_the_page(tmp_path: Path) -> None:
    """Process and build, latency and fsync, the log by topic, peers by kind, what sync lacks."""

    async def story() -> None:
        async with Node(tmp_path) as node, Node(None) as peer:
            await peer.create_topic("news")
            await peer.connect(node.tickets[0])
            await node.wait_until_ready("news")
            await node.publish("news", b"one")
            page = parse(render_metrics(node.metrics(), openmetrics=True), openmetrics=True)
        for name, kind, labels in (
            ("process_cpu_seconds", "counter", []),
            ("process_resident_memory_bytes", "gauge", []),
            ("process_open_fds", "gauge", []),
            ("rumormill_build", "info", ["protocol", "python", "version"]),
            ("rumormill_log_commit_seconds", "histogram", ["le"]),
            ("rumormill_publish_seconds", "histogram", ["le"]),
            ("rumormill_delivery_seconds", "histogram", ["le"]),
            ("rumormill_log_bytes", "gauge", ["topic"]),
            ("rumormill_connections_by_kind", "gauge", ["kind"]),
            ("rumormill_sync_backlog", "gauge", []),  # where there is a gap
        ):
            found = page[name]
            assert found.kind == kind, name
            taken = {label for _, pairs in found.samples for label, _ in pairs}
            assert taken >= set(labels), (name, taken)
        counters = [each for each in page.values() if each.kind == "counter"]
        assert all(name.endswith("_total") for each in counters for name, _ in each.samples)

    run(story)


@pytest.mark.parametrize(
    "wrong",
    [
        "# HELP a text\n# TYPE a counter\na 1\n# EOF\n",
        "# HELP a_total text\n# TYPE a_total counter\na_total_total 1\n# EOF\n",
        "# HELP a text\n# TYPE a gauge\na 1\na 1\n# EOF\n",
        "# HELP a text\n# TYPE a gauge\na{b=c} 1\n# EOF\n",
        "# HELP a text\n# TYPE a gauge\nb 1\n# EOF\n",
        '# HELP a text\n# TYPE a histogram\na_bucket{le="+Inf"} 2\na_count 3\na_sum 1\n# EOF\n',
        "# HELP a text\n# TYPE a gauge\na 1\n",
    ],
)
def test_the_reader_of_pages_is_strict(wrong: str) -> None:
    with pytest.raises((AssertionError, AttributeError)):
        parse(wrong, openmetrics=True)


def test_of_many_topics_the_largest_are_named_and_the_rest_is_summed() -> None:
    async def story() -> None:
        async with Node(None) as node:
            events = [
                Event(f"t{n}", bytes(n), b"a", b"%d" % n, received=1.0)
                for n in range(MAX_LABELS + 50)
            ]
            await asyncio.wrap_future(node.log.append(events))
            found = node.metrics()["rumormill_log_bytes"]
            assert len(found) == MAX_LABELS
            sizes = {each.name: each.size for each in node.log.topics()}
            assert sum(found.values()) == sum(sizes.values())
            assert found[f"t{MAX_LABELS + 49}"] == sizes[f"t{MAX_LABELS + 49}"]
            assert "t0" not in found
            assert found[OTHER] > 0

    run(story)


def test_a_histogram_counts_a_value_in_the_first_box_that_holds_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.2, 5.0):
        histogram.add(value)
    assert [*histogram.boxes()] == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]
    assert (histogram.count, histogram.sum) == (4, pytest.approx(5.35))
    for values in ([], [0.2, 0.3], [0.05, 0.2, 5.0]):
        histogram.add_all(values)
    assert [*histogram.boxes()] == [("0.1", 3), ("1.0", 7), ("+Inf", 9)]
    assert (histogram.count, histogram.sum) == (9, pytest.approx(11.1))


async def fill(node: Node) -> None:
    """Publish until there is no room."""
    for _ in range(100):
        await node.publish("news", bytes(20_000))


def test_a_node_whose_disk_is_full_is_alive_and_not_ready(tmp_path: Path) -> None:
    """And ready again when it has stored something; when its log has failed, it is neither."""

    async def story() -> None:
        async with Node(tmp_path, store=StoreConfig(max_database_bytes=512 * 1024)) as node:
            assert node.health() == Health(healthy=True, ready=True, why="ok")
            with pytest.raises(DiskFullError):
                await fill(node)
            assert node.health() == Health(
                healthy=True, ready=False, why="the log has no room for events"
            )
            assert node.metrics()["rumormill_log_full"] == {"": 1.0}
            await node.retention(rules=Retention(max_events=1), apply=True)
            await node.publish("news", b"there is room")
            assert node.health().ready
            node._journal.failure = StoreFailedError("the disk has failed")
            assert node.health() == Health(healthy=False, ready=False, why="the disk has failed")
            node._journal.failure = None
        assert not node.health().healthy

    run(story)
