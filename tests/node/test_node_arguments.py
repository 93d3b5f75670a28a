"""What a caller does wrong is said in one sentence that tells what to pass."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from live_nodes import run
from rumormill.core.errors import LocalError
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.sync import SyncNode

CALLS: dict[str, tuple[Callable[[Any], Awaitable[Any]], str]] = {
    "no topic": (lambda node: node.publish(None, b"x"), "a topic's name must be a string"),
    "a number": (lambda node: node.publish("t", 5), "data: give bytes or text, not int"),
    "None": (lambda node: node.publish("t", None), "data: give bytes or text, not NoneType"),
    "half a character": (lambda node: node.publish("t", "\ud800"), "not text that UTF-8 can"),
    "key": (lambda node: node.publish("t", b"x", key=5), "key: give bytes or text, not int"),
    "headers": (
        lambda node: node.publish("t", b"x", headers=["a"]),
        "headers: give a dict of text by name, not list",
    ),
    "a header": (lambda node: node.publish("t", b"x", headers={"a": 1}), "'a' is text, not int"),
    "content type": (
        lambda node: node.publish("t", b"x", content_type=5),
        "content_type is text, not int",
    ),
    "one for many": (
        lambda node: node.publish_many("t", b"abc"),
        "items: give a list of events, not bytes; `publish` takes one",
    ),
    "text for many": (lambda node: node.publish_many("t", "abc"), "items: give a list of events"),
    "none of many": (lambda node: node.publish_many("t", None), "items: give a list of events"),
    "one of many": (lambda node: node.publish_many("t", [b"x", 5]), "data: give bytes or text"),
    "no ticket": (lambda node: node.connect(None), "a ticket is text such as /ip4/127.0.0.1/tcp"),
    "no topic to follow": (lambda node: node.subscribe(None), "a topic's name must be a string"),
    "no topic to read": (lambda node: node.history(None), "a topic's name must be a string"),
    "no topic to wait for": (lambda node: node.wait_until_ready(5), "name must be a string"),
    "no filter": (lambda node: node.subscribe("t", where=5), "give a filter as text, not int"),
    "buffer": (lambda node: node.subscribe("t", buffer="5"), "buffer: '5'"),
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


def test_a_validator_is_a_function() -> None:
    node = Node(None)
    with pytest.raises(LocalError, match="give a function of an event and a peer, or None, not 5"):
        node.set_validator("t", 5)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="a topic's name must be a string"):
        node.set_validator(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tickets", "peers", "refusals", "id", "log"])
def test_what_a_node_knows_when_it_runs_is_not_known_before(name: str) -> None:
    with pytest.raises(LocalError, match="the node is not running; use"):
        getattr(Node(None), name)


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


def test_a_fork_is_refused_and_does_not_disturb_the_node() -> None:
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
