"""Events with a key, headers and a content type, from one node to another."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from live_nodes import pair, run, take, take_events
from rumormill import Message
from rumormill.core.errors import LocalError
from rumormill.core.event import UNASSIGNED, Event
from rumormill.core.ids import PeerId
from rumormill.core.inputs import Verdict
from rumormill.node.identity import create_topic_key
from rumormill.node.node import Node
from rumormill.wire.envelope import MAGIC, decode_envelope

PROTOCOLS = ("floodsub", "gossipsub", "radius")


def heads(events: list[Event]) -> list[tuple[bytes, bytes | None, dict[str, str], str]]:
    return [(each.data, each.key, dict(each.headers), each.content_type) for each in events]


def test_subscriber_history_and_validator_see_the_same() -> None:
    """Key, headers and content type are beside the data; the log has what travelled."""

    async def main() -> None:
        async with pair() as (alice, bob):
            judged: list[Event] = []

            def judge(event: Event, _: PeerId) -> Verdict:
                judged.append(event)
                return Verdict.ACCEPT

            bob.set_validator("news", judge)
            events = await bob.subscribe("news")
            before = time.time()
            await alice.publish(
                "news",
                '{"pieces": 2}',
                key="order-17",
                headers={"region": "north"},
                content_type="application/json",
            )
            await alice.publish("news", b"plain")
            (first, second) = await take_events(events, 2)
            expected = (b'{"pieces": 2}', b"order-17", {"region": "north"}, "application/json")
            assert heads([first, second]) == [expected, (b"plain", None, {}, "")]
            assert first.created is not None
            assert int(before * 1000) <= first.created * 1000 <= time.time() * 1000
            assert second.created is None
            assert second.head is None
            assert heads(await bob.history("news")) == heads([first, second])
            assert heads(judged) == heads([first, second])
            the_logs = {"offset": UNASSIGNED, "received": 0.0, "protocol": ""}
            assert judged == [replace(each, **the_logs) for each in (first, second)]
            (kept, bare) = bob.log.read("news", 0, 2)
            assert decode_envelope(kept.data).headers == {"region": "north"}
            assert kept.data.endswith(b'{"pieces": 2}')
            assert bare.data == b"plain"

    run(main)


def test_publish_many_takes_both() -> None:
    async def main() -> None:
        async with Node(None) as node:
            await node.publish_many("news", [b"one", "two", Message("three", key="k", headers={})])
            found = heads(await node.history("news"))
            assert found == [
                (b"one", None, {}, ""),
                (b"two", None, {}, ""),
                (b"three", b"k", {}, ""),
            ]

    run(main)


def test_filters_ask_for_key_headers_and_content_type() -> None:
    async def main() -> None:
        async with Node(None) as node:
            wanted = await node.subscribe(
                "news",
                where="key startswith 'order' and headers.region in ['north'] and"
                " headers[\"x-y\"] == 'z' and content_type != 'text/plain'",
            )
            other = {"region": "south", "x-y": "z"}
            await node.publish("news", b"0", key=b"order\xff")
            await node.publish("news", b"1", key="order-1", headers=other, content_type="a/b")
            await node.publish("news", b"2", key="order-2", headers=other | {"region": "north"})
            await node.publish(
                "news",
                b"3",
                key="order-3",
                headers=other | {"region": "north"},
                content_type="a/b",
            )
            assert await take(wanted, 1) == [b"3"]
            assert wanted.passed_over == 3
            with pytest.raises(LocalError, match="a header is written"):
                await node.subscribe("news", where="headers == 'x'")

    run(main)


def test_what_begins_like_an_envelope_comes_out_as_it_went_in() -> None:
    """And what another implementation sends, and is none, is handed out as it came."""

    async def main() -> None:
        async with Node(None) as node:
            for data in (MAGIC, MAGIC + b"\x2a\x01x", MAGIC + b"\xff"):
                await node.publish("news", data)
            assert [event.data for event in await node.history("news")] == [
                MAGIC,
                MAGIC + b"\x2a\x01x",
                MAGIC + b"\xff",
            ]
            stranger = Event("odd", MAGIC + b"\xff", b"", b"1")
            assert node.access.opened(stranger) == stranger

    run(main)


def test_in_an_encrypted_topic_key_and_headers_are_encrypted_too(tmp_path: Path) -> None:
    create_topic_key(tmp_path / "orders.key")

    async def main() -> None:
        async with Node(None, topic_keys={"orders": tmp_path / "orders.key"}) as node:
            await node.publish("orders", b"two", key="secret-key", headers={"secret-name": "v"})
            assert heads(await node.history("orders")) == [
                (b"two", b"secret-key", {"secret-name": "v"}, "")
            ]
            (kept,) = node.log.read("orders", 0, 1)
            assert b"secret" not in kept.data

    run(main)


def test_headers_in_pulsarcast() -> None:
    """There an event has its author's time already, and keeps it."""

    async def main() -> None:
        async with Node(None, protocol="pulsarcast") as node:
            topic = await node.create_topic("news")
            await topic.publish(b"x", key="k")
            (event,) = await topic.history()
            assert heads([event]) == [(b"x", b"k", {}, "")]
            (kept,) = node.log.read(topic.name, 0, 1)
            assert event.created == kept.created

    run(main)
