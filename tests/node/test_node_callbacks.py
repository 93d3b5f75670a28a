"""Functions of the application inside live nodes: ids, scores, filters, and what fails in them."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from live_nodes import run, take, take_events, until
from rumormill import LocalError, Node, SyncNode
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.pubsub.control_codec import MAX_ID_BYTES
from rumormill.protocols.pubsub.message_ids import content_hash


def by_data(_topic: Topic, data: bytes, _author: PeerId, _seqno: bytes) -> MessageId:
    """Name a message by the hash of its data, as Filecoin's nodes do."""
    return hashlib.blake2b(data, digest_size=32).digest()


GOSSIP_ONLY: dict[str, Any] = {
    "D": 0,
    "D_lo": 0,
    "D_hi": 0,
    "D_out": 0,
    "flood_publish": False,
    "heartbeat_interval": 0.05,
}
"""No message is pushed: whoever wants one asks for it by its id."""


@pytest.mark.parametrize(
    "options",
    [{}, {"protocol": "floodsub"}, {"parameters": {"sign_policy": "strict-no-sign"}}],
    ids=["gossipsub", "floodsub", "unsigned"],
)
@pytest.mark.parametrize("message_id", [by_data, content_hash])
def test_both_sides_name_a_message_by_the_same_function(
    options: dict[str, Any], message_id: Callable[..., bytes]
) -> None:
    """Receipt, delivered event and both logs have the function's id, and the event only once."""

    async def main() -> None:
        node: dict[str, Any] = {"message_id": message_id, **options}
        async with Node(None, **node) as alice, Node(None, **node) as bob:
            events = await bob.subscribe("news")
            own = await alice.subscribe("news")
            await alice.connect(bob.tickets[0])
            await alice.wait_until_ready("news")
            await bob.wait_until_ready("news")
            receipt = await alice.publish("news", b"hello")
            (event,) = await take_events(events, 1)
            assert receipt.id == event.id == message_id("news", b"hello", b"", b"")
            assert (await bob.publish("news", b"hello")).note.startswith("a message with this id")
            await bob.publish("news", b"the end")
            assert await take(own, 2) == [b"hello", b"the end"]
            for each in (alice, bob):
                assert [known.id for known in await each.history("news")] == [
                    message_id("news", data, b"", b"") for data in (b"hello", b"the end")
                ]

    run(main)


def test_ihave_and_iwant_use_the_ids_of_the_function() -> None:
    """What was gossiped about is asked for under the same name, found, and nobody broke a word."""

    async def main() -> None:
        node: dict[str, Any] = {"message_id": by_data, "parameters": GOSSIP_ONLY}
        async with Node(None, **node) as alice, Node(None, **node) as bob:
            events = await bob.subscribe("news")
            await alice.subscribe("news")
            await alice.connect(bob.tickets[0])
            await alice.wait_until_ready("news")
            receipt = await alice.publish("news", b"hello")
            assert receipt.peers == 0
            (event,) = await take_events(events, 1)
            assert event.id == receipt.id
            driver: Any = bob._driver
            assert driver.protocol.gossip.promises.count == 0

    run(main)


@pytest.mark.parametrize(
    "answer", ["a text", b"", b"x" * (MAX_ID_BYTES + 1), None, ZeroDivisionError]
)
def test_an_id_that_is_none_is_the_default_one(answer: Any) -> None:
    """Whatever the function does, the message travels, and the node lives."""

    def unable(*_: object) -> Any:
        if answer is ZeroDivisionError:
            raise answer
        return answer

    async def main() -> None:
        async with Node(None, message_id=unable) as alice, Node(None, message_id=unable) as bob:
            events = await bob.subscribe("news")
            await alice.connect(bob.tickets[0])
            await alice.wait_until_ready("news")
            receipt = await alice.publish("news", b"hello")
            (event,) = await take_events(events, 1)
            assert event.id == receipt.id
            assert event.id.startswith(alice.id)
            assert (bob.callback_failures > 0) == (not isinstance(answer, bytes))

    run(main)


def test_the_applications_opinion_moves_a_peers_score() -> None:
    """P5: the score follows what the application says; far enough down, nothing is taken."""
    opinion = 0.0

    async def main() -> None:
        nonlocal opinion
        async with Node(None) as alice, Node(None, application_score=lambda _: opinion) as bob:
            events = await bob.subscribe("news")
            await alice.connect(bob.tickets[0])
            await alice.wait_until_ready("news")
            await until(lambda: bob.peers[0].score is not None, "alice has a score")
            opinion = 7.0
            assert bob.peers[0].score == pytest.approx(7.0, abs=1.0)
            opinion = -1000.0
            assert (bob.peers[0].score or 0.0) < -900
            await alice.publish("news", b"not heard")
            refused = "score below graylist threshold"
            await until(
                lambda: bob.metrics()["rumormill_refused"].get(refused, 0) > 0,
                "bob has refused alice's message",
            )
            opinion = 0.0
            await alice.publish("news", b"heard")
            assert await take(events, 1) == [b"heard"]
            assert alice.peers[0].score is not None

    run(main)


def test_protocols_without_scores_show_none() -> None:
    """FloodSub keeps no scores."""

    async def main() -> None:
        flood: dict[str, Any] = {"protocol": "floodsub"}
        async with Node(None, **flood) as alice, Node(None, **flood) as bob:
            await alice.connect(bob.tickets[0])
            assert [peer.score for peer in alice.peers] == [None]

    run(main)


def test_a_subscription_filter_decides_which_topics_count() -> None:
    """Others can neither be joined nor do peers' subscriptions to them become known."""

    async def main() -> None:
        wanted = re.compile("news/.*").fullmatch
        async with Node(None, subscription_filter=wanted) as alice, Node(None) as bob:
            for topic in ("spam", "news/today"):
                await bob.subscribe(topic)
            await alice.connect(bob.tickets[0])
            await alice.wait_until_ready("news/today")
            assert alice.subscribers("spam") == 0
            with pytest.raises(LocalError, match="subscription filter"):
                await alice.subscribe("spam")

    run(main)


def test_a_peer_filter_decides_who_takes_part_in_a_topic() -> None:
    """Whom it does not admit is sent nothing of the topic, and may take part in others."""

    async def main() -> None:
        async with Node(None) as bob, Node(None) as carol:

            def admitted(peer: PeerId, topic: Topic) -> bool:
                return topic != "board" or peer == bob.id

            async with Node(None, peer_filter=admitted) as alice:
                for node in (bob, carol):
                    await alice.connect(node.tickets[0])
                minutes = [await node.subscribe("board") for node in (bob, carol)]
                news = [await node.subscribe("news") for node in (bob, carol)]
                await alice.wait_until_ready("board")
                await alice.wait_until_ready("news", peers=2)
                assert (await alice.publish("board", b"for bob")).peers == 1
                assert (await alice.publish("news", b"for all")).peers == 2
                assert [await take(each, 1) for each in news] == [[b"for all"]] * 2
                assert await take(minutes[0], 1) == [b"for bob"]
                assert await carol.history("board") == []

    run(main)


def test_a_filter_that_fails_refuses() -> None:
    """The most careful answer is no."""

    def broken(*_: object) -> bool:
        raise ValueError("a bug of the application")

    async def main() -> None:
        filters: dict[str, Any] = {"subscription_filter": broken, "peer_filter": broken}
        async with Node(None, **filters) as alice, Node(None) as bob:
            await bob.subscribe("news")
            await alice.connect(bob.tickets[0])
            await until(lambda: alice.callback_failures > 0, "alice's filter was asked")
            assert alice.subscribers("news") == 0

    run(main)


@pytest.mark.parametrize(
    ("protocol", "name"),
    [("radius", "message_id"), ("radius", "peer_filter"), ("floodsub", "application_score")],
)
def test_a_function_without_a_meaning_is_refused(protocol: str, name: str) -> None:
    """A protocol that would never call it says so, instead of keeping still."""

    async def main() -> None:
        functions: dict[str, Any] = {name: lambda *_: b""}
        with pytest.raises(LocalError, match=f"{name}: {protocol} has no use for it"):
            await Node(None, protocol=protocol, **functions).start()

    run(main)


def test_a_node_in_a_thread_takes_them_too() -> None:
    """`SyncNode` is told what `Node` is told."""
    with SyncNode(None, message_id=by_data) as node:
        assert node.publish("news", b"hello").id == by_data("news", b"hello", b"", b"")
