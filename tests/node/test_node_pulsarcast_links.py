"""Linked events on real nodes: named by publishers, in one order everywhere, across `kill -9`."""

import json
import random
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from pulsarcast_nodes import QUICK, SET

from live_nodes import run, take_events
from processes import Terminal, rumormill
from rumormill import LocalError, Node, SyncNode


def test_a_publisher_names_what_its_event_follows() -> None:
    """With a receipt, by id or CID, with a key, also at a request; all read the same order."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(Node(None, protocol="pulsarcast", parameters=QUICK))
                for _ in range(4)
            ]
            for before, node in pairwise(nodes):
                await node.connect(before.tickets[0])
            topic = await nodes[0].create_topic("replies", linking="custom")
            heard = [await node.subscribe(topic.name) for node in nodes]
            for node in nodes[1:]:
                await node.wait_until_ready(topic.name)
            receipts = [await topic.publish(b"root")]
            draws = random.Random(1)
            for number in range(12):  # most of them ask the author to publish for them
                parent = draws.choice(receipts).id
                publisher = nodes[number % 4]
                name = parent.hex() if number % 2 else parent
                data = b"%d" % number
                receipt = await publisher.publish(topic.name, data, parents=[name], key=data)
                assert receipt.requested == (number % 4 != 0)
                receipts.append(receipt)
            orders = []
            for node, subscription in zip(nodes, heard, strict=True):
                events = await take_events(subscription, 13)
                place = {event.id: event.offset for event in events}
                assert all(place[event.parents[0]] < event.offset for event in events[1:])
                assert all(event.key == event.data for event in events[1:])
                assert sorted(place) == sorted(receipt.id for receipt in receipts)
                linked = await node.history(topic.name, order="links")
                orders.append([event.id for event in linked])
            assert orders == [orders[0]] * 4
            first = await nodes[3].history(topic.name, order="links", limit=1)
            assert [event.data for event in first] == [b"root"]
            with pytest.raises(LocalError, match="names no event"):
                await topic.publish(b"x", parents=["news"])
            with pytest.raises(LocalError, match="follows one other, not 2"):
                await topic.publish(b"x", parents=[receipts[0].id, receipts[1].id])

    run(story)


def test_other_protocols_say_that_they_link_nothing() -> None:
    """One sentence that names the option."""
    with SyncNode(None) as node:
        with pytest.raises(LocalError, match="parents: topics of gossipsub have no such thing"):
            node.publish("news", b"x", parents=["zdpu"])
        with pytest.raises(LocalError, match="order: topics of gossipsub have no such thing"):
            node.history("news", order="links")
        assert node.publish("news", b"x", parents=[]).offset == 0


def test_links_hold_across_kill_9(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A subscriber dies in the middle; afterwards it has every event behind its parent."""
    homes = tmp_path_factory.mktemp("h")
    author, reader = homes / "a", homes / "b"
    node = ("node", "--protocol", "pulsarcast", *SET)

    def say(topic: str, data: str, *parent: str) -> str:
        named = [word for each in parent for word in ("--parent", each)]
        done = rumormill("pub", topic, data, *named, "--json", "--home", author)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["id"])

    def linked(home: Path, topic: str) -> list[str]:
        done = rumormill("history", topic, "--order", "links", "--json", "--home", home)
        assert done.returncode == 0, done.stderr
        return [json.loads(each)["data"] for each in done.stdout.splitlines()]

    with Terminal(*node, "--home", author) as a:
        ticket = a.prints()[0]
        done = rumormill("topics", "create", "replies", "--linking", "custom", "--home", author)
        topic = done.stdout.strip()
        joins = (*node, "--home", reader, "--topic", topic, "--join", ticket)
        with Terminal(*joins) as b:
            b.prints()
            first = say(topic, "first")
            done = rumormill(
                "sub", topic, "--all", "--count", "1", "--wait", "60", "--home", reader
            )
            assert done.stdout == "first\n"
            b.kill()
        second = say(topic, "second", first)
        say(topic, "aside", first)
        say(topic, "third", second)
        with Terminal(*joins) as b:
            b.prints()
            done = rumormill(
                "sub", topic, "--all", "--count", "4", "--wait", "60", "--home", reader
            )
            said = done.stdout.split()
            assert said.index("first") < said.index("second") < said.index("third")
            assert linked(reader, topic) == linked(author, topic)
            assert linked(reader, topic) == ["first", "second", "aside", "third"]
        done = rumormill("pub", topic, "x", "--parent", "zdpu", "--home", author)
        assert (done.returncode, done.stdout) == (1, "")
        assert "'zdpu' names no event" in done.stderr
