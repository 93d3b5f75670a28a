"""The synchronous node: the same promises as `Node`, from a thread without an event loop."""

import inspect
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from processes import PATIENCE, Program, environment
from rumormill import (
    Client,
    ClientSubscription,
    LocalError,
    Node,
    Subscription,
    SyncClient,
    SyncNode,
    SyncSubscription,
    SyncTopic,
    Topic,
    Verdict,
    connect_sync,
)
from rumormill.log.model import Retention
from rumormill.node.subscribing import SubscribeOptions


def test_it_takes_the_options_of_a_node() -> None:
    """The two constructors cannot drift apart."""
    assert inspect.signature(SyncNode) == inspect.signature(Node)


def test_a_script_publishes_reads_and_closes(tmp_path: Path) -> None:
    """Receipt, history and peers as in `Node`; the home is free afterwards."""
    with SyncNode(tmp_path) as node:
        receipts = [node.publish("news", b"%d" % number) for number in range(3)]
        who = node.id
        assert [receipt.offset for receipt in receipts] == [0, 1, 2]
        assert receipts[0].durable_at is not None
        assert "no connected peer" in receipts[0].note
        assert [event.data for event in node.history("news", since_offset=1)] == [b"1", b"2"]
        assert node.peers == []
    with SyncNode(tmp_path) as again:
        assert again.id == who


def test_two_nodes_talk() -> None:
    """Connect, wait, publish, iterate; where nothing more comes in time, the iteration ends."""
    with SyncNode(None) as alice, SyncNode(None) as bob:
        events = bob.subscribe("news", timeout=PATIENCE)
        peer = alice.connect(bob.tickets[0])
        alice.wait_until_ready("news", timeout=PATIENCE)
        assert [view.id for view in alice.peers] == [peer]
        sent = [b"%d" % number for number in range(600)]
        for data in sent:
            assert alice.publish("news", data).peers == 1
        first = events.next()
        assert first is not None
        assert [first.data, *(event.data for event in islice(events, 599))] == sent
        assert (events.topic, events.dropped) == ("news", 0)
        assert list(bob.subscribe("news", since_offset=600, timeout=0.05)) == []


def test_replay_and_the_end_of_a_subscription() -> None:
    """A closed subscription ends the iteration behind what has arrived."""
    with SyncNode(None) as node:
        node.create_topic("news")
        for number in range(5):
            node.publish("news", b"%d" % number)
        with node.subscribe("news", since_offset=2) as events:
            assert next(events).offset == 2
        assert [event.offset for event in events] == [3, 4]
        assert events.next() is None
        open_end = node.subscribe("news")
        node.unsubscribe("news")
        assert list(open_end) == []


def test_a_timeout_is_not_an_event() -> None:
    """`next` gives None when nothing comes, and nothing is lost by having asked."""
    with SyncNode(None) as node:
        events = node.subscribe("news")
        assert events.next(timeout=0.01) is None
        node.publish("news", b"late")
        event = events.next(timeout=PATIENCE)
        assert event is not None
        assert event.data == b"late"


def test_errors_reach_the_caller(tmp_path: Path) -> None:
    """A start that fails raises and leaves no thread; calls outside the life of a node raise."""
    node = SyncNode(None)
    with pytest.raises(LocalError, match="not running"):
        node.publish("news", b"")
    with SyncNode(tmp_path), pytest.raises(Exception, match=str(tmp_path)):
        SyncNode(tmp_path).start()
    with node:
        with pytest.raises(LocalError, match="running already"):
            node.start()
        with pytest.raises(LocalError):
            node.publish("", b"")
        with pytest.raises(LocalError, match="not a ticket"):
            node.connect("nowhere")
        with pytest.raises(LocalError, match="0 of 1 wanted"):
            node.wait_until_ready("news", timeout=0.01)
    with pytest.raises(LocalError, match="not running"):
        node.publish("news", b"")
    node.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("rumormill")]


def test_a_waiting_thread_is_told_when_the_node_closes() -> None:
    """A subscription that another thread reads ends; nobody hangs."""
    node = SyncNode(None).start()
    events = node.subscribe("news")
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(list(events)))
    reader.start()
    node.close()
    reader.join(PATIENCE)
    assert not reader.is_alive()
    assert found in ([[]], [])


def test_a_validator_cannot_wait_for_its_own_thread() -> None:
    """A call from the node's thread is refused instead of locking up; the node lives."""
    with SyncNode(None) as alice, SyncNode(None) as bob:

        def validator(event: object, peer: bytes) -> Verdict:
            bob.publish("news", b"echo")
            return Verdict.ACCEPT

        bob.set_validator("news", validator)
        events = bob.subscribe("news")
        alice.connect(bob.tickets[0])
        alice.wait_until_ready("news", timeout=PATIENCE)
        alice.publish("news", b"refused")
        bob.publish("news", b"own")
        event = events.next(timeout=PATIENCE)
        assert event is not None
        assert event.data == b"own"


SCRIPT = """
import sys
from rumormill import SyncNode
with SyncNode(sys.argv[1]) as node:
    node.publish("news", b"before")
    events = node.subscribe("news")
    try:
        print("waiting", flush=True)
        events.next()
    except KeyboardInterrupt:
        print(node.publish("news", b"after").offset, flush=True)
        raise
"""


def test_an_interrupt_ends_the_wait_and_closes_the_node(tmp_path: Path) -> None:
    """Ctrl-C while waiting: the node still works in the handler and closes cleanly."""
    with Program([sys.executable, "-c", SCRIPT, tmp_path]) as program:
        assert program.hears() == "waiting"
        assert program.stop(signal.SIGINT) != 0
    assert program.output[1:] == ["1"], program.errors
    assert program.errors[-1] == "KeyboardInterrupt"
    with SyncNode(tmp_path) as node:
        assert [event.data for event in node.history("news")] == [b"before", b"after"]


def test_a_forgotten_node_is_closed_when_the_program_ends(tmp_path: Path) -> None:
    """A notebook that never calls `close` still leaves a good log and no complaint.

    Until then the node works, although Python has ended its pools of threads by now.
    """
    script = (
        "import atexit, sys; from rumormill import SyncNode; node = SyncNode(sys.argv[1]).start();"
        "node.subscribe('news'); node.publish('news', b'kept');"
        "atexit.register(lambda: node.publish('news', b'last words'));"
        "atexit.register(lambda: node.subscribe('more news'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    with SyncNode(tmp_path) as node:
        assert [event.data for event in node.history("news")] == [b"kept", b"last words"]


def test_named_subscriptions_without_asyncio(tmp_path: Path) -> None:
    with SyncNode(tmp_path) as node:
        node.publish_many("work", [b"0", b"1", b"2"])
        with node.subscribe("work", name="w", since_offset=0, auto_ack=False) as events:
            given = [next(events), next(events)]
            events.ack(given[0])
            assert (events.name, events.pending, events.lag) == ("w", 1, 1)
            events.nack()
            assert next(events).via == "again"
        assert [view.name for view in node.groups()] == ["w"]
        with node.subscribe("work", name="w", timeout=PATIENCE) as events:
            assert {next(events).offset, next(events).offset} == {1, 2}
            events.ack()
    with SyncNode(tmp_path) as node:
        with node.subscribe("work", name="w", timeout=0.05) as events:
            assert (events.pending, events.lag) == (0, 0)
            assert [event.offset for event in events] == []
        node.forget_group("work", "w")


def test_subscribe_takes_what_that_of_a_node_takes() -> None:
    asked = inspect.signature(Node.subscribe).parameters
    assert [*SubscribeOptions.__annotations__] == [*asked][2:]


def test_requests_without_asyncio() -> None:
    with (
        SyncNode(None) as node,
        node.subscribe("sums") as requests,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(node.request, "sums", b"a", timeout=PATIENCE)
        node.reply(next(requests), b"A")
        assert asked.result().data == b"A"
        for patience in (0.3, 3.0, 30.0):  # all that come in time; a busy machine needs more
            many = pool.submit(node.replies, "sums", b"b", timeout=patience)
            request = next(requests)
            for _ in range(2):
                node.reply(request, b"B")
            replies = [reply.data for reply in many.result()]
            if len(replies) == 2:
                break
        assert replies == [b"B", b"B"]


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if name[0] != "_"}


def taken(method: object) -> dict[str, inspect.Parameter]:
    """What a call takes, by name, but whom it is called on."""
    found = inspect.signature(inspect.unwrap(method))  # type: ignore[arg-type]
    return {name: each for name, each in [*found.parameters.items()][1:] if name != "options"}


ITS_OWN_BUSINESS = {"check_process", "forked"}
"""What is public in `Node` for the package's sake."""


def test_they_have_every_call_of_a_node_and_of_a_client() -> None:
    """With the same arguments; what a client has of a node, tests/node/test_client.py says."""
    assert public(Node) - public(SyncNode) == ITS_OWN_BUSINESS
    assert public(Topic) == public(SyncTopic)
    assert public(Client) - public(SyncClient) == set()
    assert public(SyncClient) - public(SyncNode) == {"home", "protocol"}
    for outer, inner in ((SyncNode, Node), (SyncClient, Client)):
        for name in public(outer) & public(inner) - {"subscribe"}:
            theirs, ours = getattr(inner, name), getattr(outer, name)
            if inspect.isfunction(ours):
                assert taken(ours) == taken(theirs), (outer, name)
    for_users = {"topic", "name", "dropped", "pending", "lag", "ack", "nack", "batch", "close"}
    for each in (Subscription, ClientSubscription, SyncSubscription):
        assert for_users - public(each) <= {"topic", "name", "dropped"}, "but what is set later"


def test_all_its_calls_work() -> None:
    """A sample of each kind."""
    with SyncNode(None) as node:
        node.publish("news", b"x")
        assert [line.name for line in node.topics()] == ["news"]
        assert node.subscribers("news") == 0
        assert node.metrics()["topic_msg_published"] == {"news": 1.0}
        assert node.log.topics()[0].next_offset == 1
        assert node.network_ticket().endswith(str(node.id))
        assert (node.refusals, node.links, node.callback_failures) == ({}, [], 0)
        assert node.sync("news", timeout=PATIENCE).answered == 0
        news = node.topic("news")
        assert (news.publish(b"y").offset, news.subscribers, repr(news)) == (
            1,
            0,
            "SyncTopic('news')",
        )
        assert [event.data for event in news.history(since_offset=1)] == [b"y"]
        with news.subscribe(since_offset=0) as events:
            assert [event.data for event in events.batch(2)] == [b"x", b"y"]
            assert events.batch(timeout=0.05) == []
            assert not events.closed
        assert events.closed
        assert node.health().ready
        node.set_retention(Retention(max_events=1))
        assert [line.deleted for line in node.retention(apply=True)] == [1]
        with pytest.raises(LocalError, match="a pattern of names"):
            node.topic("*")


def test_a_client_without_asyncio(tmp_path: Path) -> None:
    """It uses the node of another program, reads it as a `SyncNode` is read, and leaves it be."""
    with SyncNode(tmp_path / "home") as node, node.serve(control=True):
        with connect_sync(tmp_path / "home") as client:
            assert (client.id, client.tickets, client.peers) == (node.id, node.tickets, [])
            assert (client.protocol, client.home) == ("gossipsub", tmp_path / "home")
            with client.subscribe("work", name="w", auto_ack=False, ack_within=0.05) as events:
                assert client.publish("work", b"a", key="k").offset == 0
                first = events.next(timeout=PATIENCE)
                again = events.next(timeout=PATIENCE)
                assert first is not None
                assert again is not None
                assert (first.key, again.offset, again.via) == (b"k", 0, "again")
                events.ack(again)
                assert (events.pending, events.lag) == (0, 0)
                assert [each.late >= 1 for each in client.groups()] == [True]
            assert client.subscribers("work") == 0
            assert client.metrics()["topic_msg_published"] == {"work": 1.0}
            assert client.health() == node.health()
            assert client.backup(tmp_path / "copy").events == 1
            for call in (client.publish, client.history, client.subscribers):
                with pytest.raises(LocalError, match="a pattern of names"):
                    call("*", *([b"x"] if call == client.publish else []))  # type: ignore[operator]
        with pytest.raises(LocalError, match="not running"):
            client.groups()
        assert node.publish("work", b"b").offset == 1
    with pytest.raises(LocalError, match="no daemon runs"):
        connect_sync(tmp_path / "home")
