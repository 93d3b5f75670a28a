"""What a caller does wrong is said in one sentence that tells what to pass."""

import asyncio
import contextlib
import inspect
import math
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from live_nodes import run
from rumormill.core.errors import LocalError
from rumormill.daemon.doors import Doors
from rumormill.node.client import connect
from rumormill.node.cloudevents import from_cloudevent, to_cloudevent
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.subscribing import SubscribeOptions
from rumormill.node.sync import SyncNode
from rumormill.node.sync_client import connect_sync

CALLS: dict[str, tuple[Callable[[Any], Awaitable[Any]], str]] = {
    "no topic": (lambda node: node.publish(None, b"x"), "topic: give text, not None"),
    "a number": (lambda node: node.publish("t", 5), "data: give bytes or text, not int"),
    "None": (lambda node: node.publish("t", None), "data: give bytes or text, not NoneType"),
    "half a character": (lambda node: node.publish("t", "\ud800"), "not text that UTF-8 can"),
    "key": (lambda node: node.publish("t", b"x", key=5), "key: give bytes or text, not int"),
    "headers": (
        lambda node: node.publish("t", b"x", headers=["a"]),
        "headers: give a dict of text by name or None, not",
    ),
    "a header": (
        lambda node: node.publish("t", b"x", headers={"a": 1}),
        "give a dict of text by name",
    ),
    "content type": (
        lambda node: node.publish("t", b"x", content_type=5),
        "content_type: give text or None, not 5",
    ),
    "one for many": (
        lambda node: node.publish_many("t", b"abc"),
        "items: give a list of events, not bytes; `publish` takes one",
    ),
    "text for many": (lambda node: node.publish_many("t", "abc"), "items: give a list of events"),
    "none of many": (lambda node: node.publish_many("t", None), "items: give a list of events"),
    "one of many": (lambda node: node.publish_many("t", [b"x", 5]), "data: give bytes or text"),
    "a dict for many": (
        lambda node: node.publish_many("t", {"a": b"x"}),
        "items: give a list of events, not dict",
    ),
    "fewer copies than none": (
        lambda node: node.publish("t", b"x", copies=-1),
        "copies: give a whole number from 0 on, not -1",
    ),
    "a time that is over": (
        lambda node: node.publish("t", b"x", copies=1, timeout=-1),
        "timeout: give a number from 0 on, not -1",
    ),
    "no ticket": (lambda node: node.connect(None), "a ticket is text such as /ip4/127.0.0.1/tcp"),
    "no topic to follow": (lambda node: node.subscribe(None), "topic: give text, not None"),
    "no topic to read": (lambda node: node.history(None), "topic: give text, not None"),
    "no topic to wait for": (lambda node: node.wait_until_ready(5), "topic: give text, not 5"),
    "no filter": (lambda node: node.subscribe("t", where=5), "give a filter as text, not int"),
    "buffer": (
        lambda node: node.subscribe("t", buffer="5"),
        "buffer: give a whole number, not '5'",
    ),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_wrong_argument_of_a_call(what: str) -> None:
    """Nothing is published, and the node goes on."""
    call, sentence = CALLS[what]

    async def main() -> None:
        async with Node(None) as node:
            with pytest.raises(LocalError, match=sentence):
                await call(node)
            assert node.log.topics() == []
            await node.publish("t", b"it goes on")

    run(main)


def wrong_calls(kind: type, value: object) -> list[tuple[str, dict[str, Any]]]:
    """Every public call of a class, with each of its arguments once as a value."""
    usual = {"topic": "t", "data": b"x", "items": [b"x"], "validator": None, "body": object()}
    found = []
    for name in dir(kind):
        if name[0] != "_" and callable(getattr(kind, name)):
            _, *taken = inspect.signature(getattr(kind, name)).parameters.values()
            needed = [each.name for each in taken if each.default is each.empty]
            rest = {each: usual.get(each, "x") for each in needed if each != "options"}
            if "timeout" in [each.name for each in taken]:
                rest["timeout"] = 0.01
            options = get_type_hints(SubscribeOptions) if "options" in needed else ()
            wrong = [each.name for each in taken if each.name != "options"]
            found += [(name, rest | {each: value}) for each in (*wrong, *options)]
    return found


async def tried(call: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """What a call raises, unless it is a sentence of ours."""
    with contextlib.suppress(LocalError):
        answer = call(**arguments)
        if isinstance(answer, Doors):
            await answer.close()
        elif inspect.isawaitable(answer):
            await answer


@pytest.mark.parametrize(
    "value",
    [object(), "\ud800", "a\0", [object()], {5}, range(2), {"a": object()}, {5: 5}, math.nan],
)
def test_no_argument_is_taken_for_what_it_is_not(value: object, tmp_path: Path) -> None:
    """Of any call of a node or of a client: one sentence of ours, or the value is fine; none fails
    in the words of Python, and none waits for ever."""

    async def main() -> None:
        home = tmp_path / "home"
        async with Node(home) as node, node.serve(control=True), connect(home) as client:
            for thing in (node, client):
                for name, arguments in wrong_calls(type(thing), value):
                    await tried(getattr(thing, name), arguments)
        _, *taken = inspect.signature(Node.__init__).parameters
        for name in taken:
            with contextlib.suppress(LocalError):
                async with Node(**{"home": None, name: value}):  # type: ignore[arg-type]
                    pass

    run(main)


def test_what_is_called_beside_a_node_says_what_to_give() -> None:
    """Subscriptions, keys, CloudEvents and `connect`."""
    with SyncNode(None) as node, node.subscribe("t", name="w", auto_ack=False) as events:
        wrong: list[tuple[Callable[..., object], str]] = [
            (events.ack, "events: give an Event or a whole number, not None"),
            (events.nack, "events: give an Event or a whole number, not None"),
            (events.batch, "limit: give a whole number, not None"),
            (node.access.add_policy, "path: give text or a path, not None"),
            (from_cloudevent, "given: give a dict, not None"),
            (to_cloudevent, "event: give an Event, not None"),
        ]
        for call, sentence in wrong:
            with pytest.raises(LocalError, match=sentence):
                call(None)
        for connecting in (connect, connect_sync):
            with pytest.raises(LocalError, match="home: give text, a path or None, not 5"):
                connecting(5)  # type: ignore[operator]


def test_an_option_that_a_client_does_not_have_is_refused(tmp_path: Path) -> None:
    """As Python refuses one of a node."""

    async def main() -> None:
        async with Node(tmp_path) as node, node.serve(control=True), connect(tmp_path) as client:
            for each in (node, client):
                with pytest.raises(TypeError, match="nmae"):
                    await each.subscribe("t", nmae="x")  # type: ignore[call-arg]
                with pytest.raises(LocalError, match="limit: give 0 or more, not -1"):
                    await each.history("t", limit=-1)

    run(main)


def test_text_is_published_in_utf_8() -> None:
    async def main() -> None:
        async with Node(None) as node:
            await node.publish("t", "grün")
            await node.publish("t", bytearray(b"x"))
            await node.publish("t", memoryview(b"y"))
            assert [event.data for event in await node.history("t")] == [
                "grün".encode(),
                b"x",
                b"y",
            ]

    run(main)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"listen": []}, "listen: name at least one TCP address, such as /ip4"),
        ({"listen": None}, "listen: name at least one TCP address"),
        ({"announce": [5]}, "a TCP address is text such as /ip4/127.0.0.1/tcp/4001, not 5"),
        ({"config": {"max_connections": 5}}, "config: give a NodeConfig, not dict"),
        ({"store": {}}, "store: give a StoreConfig, not dict"),
        ({"sync": {}}, "sync: give a SyncConfig, not dict"),
        ({"members": {}}, "members: give a MembersConfig, not dict"),
    ],
)
def test_a_wrong_argument_of_a_node(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        Node(None, **options)


def test_an_id_may_be_any_kind_of_bytes() -> None:
    """As data may: what is wrong with one is a sentence of ours."""

    async def main() -> None:
        async with Node(None, protocol="pulsarcast") as node:
            for event in (b"x", bytearray(b"x"), memoryview(b"x")):
                with pytest.raises(LocalError, match="names no event"):
                    await node.fetch(event, timeout=0.01)  # type: ignore[arg-type]

    run(main)


def test_a_validator_is_a_function() -> None:
    node = Node(None)
    with pytest.raises(LocalError, match="give a function of an event and a peer, or None, not 5"):
        node.set_validator("t", 5)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="topic: give text, not None"):
        node.set_validator(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tickets", "peers", "refusals", "id", "log"])
def test_what_a_node_knows_when_it_runs_is_not_known_before(name: str) -> None:
    with pytest.raises(LocalError, match="the node is not running; use"):
        getattr(Node(None), name)


def test_a_call_from_another_event_loop_is_refused() -> None:
    """Nothing is published; by way of the node's own loop, another thread may call."""

    async def main() -> None:
        async with Node(None) as node:
            loop = asyncio.get_running_loop()
            await node.publish("t", b"here")

            def publish() -> None:
                asyncio.run(node.publish("t", b"there"))

            def publish_here() -> None:
                asyncio.run_coroutine_threadsafe(node.publish("t", b"from there"), loop).result()

            with pytest.raises(LocalError, match="runs in another event loop: call it there"):
                await asyncio.to_thread(publish)
            await asyncio.to_thread(publish_here)
            assert [event.data for event in await node.history("t")] == [b"here", b"from there"]

    run(main)


def in_a_fork(attempt: Callable[[], object]) -> str:
    """What an attempt raises in a fork of this process."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        said = "something else"
        try:
            attempt()
            said = "nothing"
        except LocalError as error:
            said = str(error)
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


def test_a_fork_is_refused_and_does_not_disturb_the_node(tmp_path: Path) -> None:
    """A copy has the sockets and the file of another process, and none of its threads."""

    async def main() -> None:
        async with Node(None, config=NodeConfig()) as node:
            await node.publish("t", b"before")

            def publish() -> None:
                node.publish("t", b"from a fork").send(None)

            assert "forked from; make one here" in in_a_fork(publish)
            assert "forked from; make one here" in in_a_fork(lambda: node.tickets)
            assert "forked from" in in_a_fork(lambda: node.start().send(None))
            await node.publish("t", b"after")
            assert len(await node.history("t")) == 2

    run(main)
    with SyncNode(None) as script:
        assert "forked from; make one here" in in_a_fork(lambda: script.publish("t", b"x"))
        assert in_a_fork(script.close) == "nothing"
        script.publish("t", b"after")
        with script.serve(control=True, home=tmp_path), connect_sync(tmp_path) as client:
            assert "forked from; make one here" in in_a_fork(client.groups)
            assert in_a_fork(client.close) == "nothing"
            assert client.groups() == []
