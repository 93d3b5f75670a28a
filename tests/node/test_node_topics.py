"""Topics of real nodes: created with options, published in by request, remembered on disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run, take, until
from rumormill.core.api import Receipt
from rumormill.core.errors import ConfigError, LocalError
from rumormill.core.event import Note
from rumormill.node.node import Node
from rumormill.node.sync import SyncNode
from rumormill.protocols.pulsarcast.commands import SubscribeTo
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.wire.keys import PeerId, PrivateKey

QUICK = {
    "kademlia.bootstrap_delay": 0.05,
    "subscribe_retry_delay": 0.1,
    "request_retry": 0.5,
    "request_timeout": 5.0,
}
CAROL = str(PrivateKey(bytes(32)).peer_id)


def pulsar(home: Path | None = None) -> Node:
    return Node(home, protocol="pulsarcast", parameters=QUICK)


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Node, Node]]:
    """Ann and Bob, who are connected."""
    async with pulsar() as ann, pulsar() as bob:
        await bob.connect(ann.tickets[0])
        yield ann, bob


# Options.


def test_a_topic_is_created_as_its_options_say() -> None:
    """Publishers, requesters, linking, sub-topics, versions: all in the descriptor, to be seen."""

    async def story() -> None:
        async with pulsar() as ann:
            other = await ann.create_topic("other", allowed_publishers="anyone")
            topic = await ann.create_topic(
                "news",
                allowed_publishers=["author", CAROL],
                request_to_publish=[CAROL],
                linking="custom",
                sub_topics={"else": other.name},
                parent=other.name,
            )
            shown = await ann.describe_topic(topic.name)
            own = str(PeerId(ann.id))
            assert shown["cid"] == topic.name
            readable = shown["readable"]
            assert (readable["name"], readable["author"]) == ("news", own)
            assert readable["parent"] == other.name
            metadata = readable["metadata"]
            assert metadata["allowedPublishers"] == [own, CAROL]
            assert metadata["requestToPublish"] == [CAROL]
            assert metadata["eventLinking"] == "CUSTOM"
            assert shown["sub_topics"]["else"]["name"] == "other"
            assert shown["sub_topics"]["meta"]["name"] == "meta-other"
            assert [each["cid"] for each in shown["versions"]] == [other.name, topic.name]
            described = await ann.describe_topic(other.name)
            assert described["readable"]["metadata"]["allowedPublishers"] is False

    run(story)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"request_to_publish": True}, True),
        ({"request_to_publish": False}, False),
        ({"request_to_publish": []}, False),
    ],
)
def test_who_may_ask_to_publish(options: dict[str, Any], expected: bool) -> None:
    """Everybody unless said otherwise; a list of nobody is nobody."""

    async def story() -> None:
        async with pulsar() as ann:
            topic = await ann.create_topic("news", **options)
            metadata = (await ann.describe_topic(topic.name))["readable"]["metadata"]
            assert metadata["requestToPublish"] is expected
            assert metadata["allowedPublishers"] == [str(PeerId(ann.id))]

    run(story)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"allowed_publishers": ["nobody's id"]}, 'allowed_publishers: "nobody\'s id" is not a'),
        ({"allowed_publishers": ["anyone", "author"]}, "anyone stands alone"),
        ({"request_to_publish": ["12D3Koo"]}, "request_to_publish: '12D3Koo' is not a peer id"),
        ({"linking": "none"}, "linking: 'none' is not one of last-seen, custom"),
        ({"sub_topics": {"else": "news"}}, "'news' names no topic"),
        ({"sub_topics": {"meta": cids.text(cids.of(b"x"))}}, "meta is made, not chosen"),
        ({"parent": "zdpu"}, "'zdpu' names no topic"),
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any], words: str) -> None:
    """One sentence says which and why; nothing is created."""

    async def story() -> None:
        async with pulsar() as ann:
            with pytest.raises(LocalError, match=words.replace("'", ".")):
                await ann.create_topic("news", **options)
            assert ann.log.topics() == []

    run(story)


def test_a_topic_that_exists_is_not_created_again() -> None:
    """A CID is no name for a new topic; the same name twice makes two topics."""

    async def story() -> None:
        async with pulsar() as ann:
            first = await ann.create_topic("news")
            with pytest.raises(LocalError, match="is a topic already"):
                await ann.create_topic(first.name)
            assert (await ann.create_topic("news")).name != first.name

    run(story)


@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub", "radius"])
def test_other_protocols_refuse_the_options(protocol: str) -> None:
    """In one sentence that names the option; without any, the topic is joined as ever."""

    async def story() -> None:
        async with Node(None, protocol=protocol) as node:
            for options in (
                {"allowed_publishers": "anyone"},
                {"request_to_publish": False},
                {"linking": "custom"},
                {"parent": "old"},
                {"sub_topics": {"a": "b"}},
            ):
                (name,) = options
                with pytest.raises(ConfigError, match=f"^{name}: topics of {protocol} have no"):
                    await node.create_topic("news", **options)  # type: ignore[arg-type]
            assert (await node.create_topic("news")).name == "news"
            with pytest.raises(LocalError, match="has a name and no description"):
                await node.describe_topic("news")

    run(story)


# Publishing by request.


def test_who_may_not_publish_asks_and_gets_a_receipt() -> None:
    """It has the event's id, and says that another has published it."""

    async def story() -> None:
        async with pair() as (ann, bob):
            topic = (await ann.create_topic("news")).name
            await bob.command(SubscribeTo(topic=topic))
            events = await bob.subscribe(topic)
            own = await ann.publish(topic, b"by ann")
            assert (own.requested, own.offset) == (False, 0)
            asked = await bob.publish(topic, b"by bob")
            many = await bob.publish_many(topic, [b"1", b"2", b"3"])
            assert all(receipt.requested for receipt in (asked, *many))
            assert (asked.offset, asked.durable_at, asked.topic) == (-1, None, topic)
            assert "at our request" in asked.note
            heard = [await anext(events) for _ in range(5)]
            assert [event.data for event in heard] == [b"by ann", b"by bob", b"1", b"2", b"3"]
            assert [event.id for event in heard[1:]] == [each.id for each in (asked, *many)]
            assert {event.author for event in heard[1:]} == {bob.id}
            assert [event.parents for event in heard[1:2]] == [(own.id,)]

    run(story)


def test_the_topic_is_found_before_the_event_is_published() -> None:
    """A node that has never heard of a topic publishes in it all the same, itself if it may."""

    async def story() -> None:
        async with pair() as (ann, bob):
            free = (await ann.create_topic("free", allowed_publishers="anyone")).name
            strict = (await ann.create_topic("strict")).name
            events = [await ann.subscribe(topic) for topic in (free, strict)]
            first = await bob.publish(free, b"hello")
            assert (first.requested, first.offset) == (False, 0)
            assert (await bob.publish(strict, b"please")).requested
            assert [await take(each, 1) for each in events] == [[b"hello"], [b"please"]]

    run(story)


def test_a_refusal_names_the_rule() -> None:
    """No permission, not on the list of requesters, notes that nobody could keep."""

    async def story() -> None:
        async with pair() as (ann, bob):
            closed = (await ann.create_topic("closed", request_to_publish=False)).name
            listed = (await ann.create_topic("listed", request_to_publish=[CAROL])).name
            asking = (await ann.create_topic("asking")).name
            for topic in (closed, listed):
                with pytest.raises(LocalError, match="not among the topic's allowed publishers"):
                    await bob.publish(topic, b"x")
                with pytest.raises(LocalError, match="may-not-publish"):
                    await bob.publish(topic, b"now that the topic is known")
            with pytest.raises(LocalError, match="cannot be published at once"):
                await bob.publish_noted([(asking, b"x", Note("a program", b"1"))])
            with pytest.raises(LocalError, match="names no topic"):
                await bob.publish("news", b"x")
            for topic in (closed, listed, asking):
                assert await ann.history(topic) == []

    run(story)


def test_a_request_fails_with_the_last_publisher() -> None:
    """The author is gone: the asker is told that nobody could publish its event."""

    async def story() -> None:
        async with pair() as (ann, bob):
            topic = (await ann.create_topic("news")).name
            await bob.command(SubscribeTo(topic=topic))
            await ann.close()
            with pytest.raises(LocalError, match=r"no-publisher-reached|timed-out"):
                await bob.publish(topic, b"anybody?")

    run(story)


def test_a_node_closes_while_it_asks() -> None:
    """The publisher hears of it; nothing is left behind."""

    async def story() -> None:
        async with pair() as (ann, bob):
            topic = (await ann.create_topic("news")).name
            await bob.command(SubscribeTo(topic=topic))
            await ann.close()
            waiting = asyncio.ensure_future(bob.publish(topic, b"x"))
            requests = bob._driver.protocol._requests  # type: ignore[attr-defined]
            await until(lambda: requests._open, "it asks")
            await bob.close()
            with pytest.raises(LocalError):
                await waiting

    run(story)


def test_without_asyncio() -> None:
    """`SyncNode` makes topics, describes them, and publishes by request."""
    with (
        SyncNode(None, protocol="pulsarcast", parameters=QUICK) as ann,
        SyncNode(None, protocol="pulsarcast", parameters=QUICK) as bob,
    ):
        bob.connect(ann.tickets[0])
        topic = ann.create_topic("news", allowed_publishers=["author"], linking="last-seen")
        assert bob.describe_topic(topic)["readable"]["name"] == "news"
        events = ann.subscribe(topic)
        receipt = bob.publish(topic, b"please")
        assert isinstance(receipt, Receipt)
        assert receipt.requested
        assert next(events).id == receipt.id


def test_a_subscription_to_a_topic_that_does_not_exist_ends_with_an_error() -> None:
    """When it has been looked for long enough; one to a topic that is found goes on."""

    async def story() -> None:
        hasty = {**QUICK, "subscribe_retries": 1}
        async with Node(None, protocol="pulsarcast", parameters=hasty) as ann:
            events = await ann.subscribe(cids.text(cids.of(b"nobody has this")))
            with pytest.raises(LocalError, match="no-such-topic"):
                await anext(events)
            topic = await ann.create_topic("news")
            found = await topic.subscribe()
            await topic.publish(b"here")
            assert await take(found, 1) == [b"here"]

    run(story)


# Memory.


def test_a_home_remembers_its_topics(tmp_path: Path) -> None:
    """Its node comes back alone, knows its topics, and goes on publishing in them."""

    async def story() -> None:
        async with pulsar(tmp_path) as ann:
            first = (await ann.create_topic("news")).name
            second = (await ann.create_topic("news", parent=first)).name
            await ann.publish(first, b"before")
        async with pulsar(tmp_path) as ann:
            shown = await ann.describe_topic(first)
            assert [each["cid"] for each in shown["versions"]] == [first, second]
            assert shown["sub_topics"]["meta"]["name"] == "meta-news"
            await ann.subscribe(first)
            assert (await ann.publish(first, b"after")).offset == 1
            heard = await ann.history(first)
            assert heard[1].parents == (heard[0].id,)

    run(story)
