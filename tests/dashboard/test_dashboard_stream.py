"""The stream: a snapshot, then what has changed, and always a way to begin anew."""

import asyncio
from typing import Any

import msgspec
import pytest
from dashboard_client import Viewer as Browser
from dashboard_client import events

from live_nodes import pair, run, until
from rumormill.dashboard import stream
from rumormill.dashboard.source import Look, Sections
from rumormill.dashboard.stream import MAX_BATCH, Viewer, viewed
from rumormill.node.node import Node


def parsed(message: bytes) -> tuple[str, int, dict[str, Any]]:
    kind, number, data = message.decode().strip().split("\n")
    return kind[7:], int(number[4:]), msgspec.json.decode(data[6:])


class Changing:
    """A source that a test changes by hand."""

    def __init__(self, **sections: Any) -> None:
        self.sections: Sections = dict(sections)
        self.looks: list[Look] = []

    async def look(self, look: Look) -> Sections:
        self.looks.append(look)
        return dict(self.sections)


def test_only_what_has_changed_is_sent_again() -> None:
    async def story() -> None:
        source = Changing(totals={"published": 1}, topics={"rows": []})
        viewer = Viewer(source.look, Look(sections=()), last_id=41)
        assert parsed(await viewer.snapshot()) == ("snapshot", 42, source.sections)
        assert await viewer.update() == b""
        source.sections["totals"] = {"published": 2}
        assert parsed(await viewer.update()) == ("update", 43, {"totals": {"published": 2}})
        assert await viewer.update() == b""

    run(story)


def test_what_grows_is_asked_for_from_where_the_viewer_is() -> None:
    async def story() -> None:
        tail = {"rows": [1], "more": 0, "from": 4, "next": 5}
        source = Changing(series={"t": [1.0, 2.0]}, marks=[{}, {}], tail=tail)
        viewer = Viewer(source.look, Look(sections=()))
        await viewer.snapshot()
        source.sections = {"series": {"t": []}, "marks": [], "tail": tail | {"rows": []}}
        assert await viewer.update() == b""
        last = source.looks[-1]
        assert (last.series_after, last.marks_after, last.tail_from) == (2.0, 2, 5)
        source.sections["tail"] = {"rows": [], "more": 7, "from": 5, "next": 12}
        assert parsed(await viewer.update())[2] == {"tail": source.sections["tail"]}

    run(story)


def test_time_that_went_back_brings_a_snapshot() -> None:
    async def story() -> None:
        source = Changing(clock={"epoch": 1}, series={"t": [9.0]})
        viewer = Viewer(source.look, Look(sections=()))
        await viewer.snapshot()
        source.sections = {"clock": {"epoch": 2}, "series": {"t": [1.0]}}
        assert parsed(await viewer.update())[0] == "snapshot"
        assert source.looks[-1].series_after is None

    run(story)


def test_a_batch_has_a_bound_and_nothing_is_forgotten() -> None:
    """What finds no room comes with the next one."""

    async def story() -> None:
        source = Changing(a=0, b=0, c=0)
        viewer = Viewer(source.look, Look(sections=()))
        await viewer.snapshot()
        source.sections = {name: name * (MAX_BATCH // 2) for name in "abc"}
        sent: dict[str, Any] = {}
        for _ in range(3):
            message = await viewer.update()
            assert len(message) < MAX_BATCH + 200
            sent |= parsed(message)[2]
        assert sent == source.sections
        assert await viewer.update() == b""

    run(story)


def test_who_was_slow_gets_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SLOW", 0.05)

    async def story() -> None:
        source = Changing(totals={"published": 1})
        pieces = viewed(source.look, Look(sections=()), interval=0.001)
        assert b"event: snapshot" in await anext(pieces)
        await asyncio.sleep(0.1)  # the viewer reads
        assert b"event: snapshot" in await anext(pieces)
        monkeypatch.setattr(stream, "SLOW", 3600.0)
        source.sections["totals"] = {"published": 2}
        assert b"event: update" in await anext(pieces)
        await pieces.aclose()  # type: ignore[attr-defined]

    run(story)


def test_a_node_is_watched_while_somebody_looks_and_not_after() -> None:
    """Without a viewer, its trace has the observers that it always had."""

    async def story() -> None:
        async with pair() as (alice, bob):
            before = bob._recorder._observers
            async with bob.serve(dashboard="127.0.0.1:0") as doors:
                assert doors.dashboard is not None
                browser = await Browser(doors.dashboard).enter()
                assert bob._recorder._observers == before
                source = doors._source
                async with browser.stream("views=overview,topic,overlay&topic=news") as seen:
                    kind, found = await anext(seen)
                    assert (kind, found["source"]["kind"]) == ("snapshot", "node")
                    assert len(bob._recorder._observers) == len(before) + 1
                    receipt = await alice.publish("news", b"\xff\x00")
                    rows: list[Any] = []
                    delivered = 0
                    async for _, found in seen:  # what has changed, in one update or in two
                        rows += found.get("tail", {}).get("rows", [])
                        delivered = found.get("totals", {}).get("delivered", delivered)
                        if rows and delivered == 1:
                            break
                    assert [(row["id"], row["text"]) for row in rows] == [(receipt.id.hex(), None)]
                    assert rows[0]["base64"] == "/wA="
                    journey = (await browser.get(f"/events/{receipt.id.hex()}")).json
                    assert [hop["kind"] for hop in journey["hops"]] == ["deliver"]
                    assert journey["hops"][0]["from"] == str(alice.id)
                source._forget_after = 0.05
                await browser.get("/plain")
                await until(lambda: not source.attached, "the observer is gone again")
                assert bob._recorder._observers == before
                assert (await browser.get(f"/events/{receipt.id.hex()}")).status == 200
                assert (await browser.get("/events/00")).status == 404

    run(story)


def test_a_burst_is_shown_or_what_is_left_out_is_counted() -> None:
    """Of 10,000 events in one second, the last are shown, and the others counted by offset."""

    async def story() -> None:
        async with Node(None) as node, node.serve(dashboard="127.0.0.1:0") as doors:
            await node.create_topic("burst")
            await node.publish("burst", "before")
            assert doors.dashboard is not None
            browser = await Browser(doors.dashboard).enter()
            async with browser.stream("views=topic&topic=burst") as seen:
                _, first = await anext(seen)
                assert [row["text"] for row in first["tail"]["rows"]] == ["before"]
                for start in range(0, 10_000, 500):
                    await node.publish_many("burst", [f"{n}" for n in range(start, start + 500)])
                shown = more = 0
                expected = first["tail"]["next"]
                async for _, found in seen:
                    tail = found.get("tail")
                    if tail is None:
                        continue
                    assert tail["from"] == expected
                    offsets = [row["offset"] for row in tail["rows"]]
                    assert len(offsets) <= 200
                    assert offsets == [*range(tail["next"] - len(offsets), tail["next"])]
                    assert tail["next"] - tail["from"] == len(offsets) + tail["more"]
                    expected = tail["next"]
                    shown, more = shown + len(offsets), more + tail["more"]
                    if expected == 10_001:
                        break
                assert shown + more == 10_000
                assert more > 0

    run(story)


def test_history_is_read_by_offset_time_and_text() -> None:
    async def story() -> None:
        async with Node(None) as node, node.serve(dashboard="127.0.0.1:0") as doors:
            await node.create_topic("log/é")
            for number in range(30):
                await node.publish("log/é", f"event {number}", key=f"k{number % 3}")
            assert doors.dashboard is not None
            browser = await Browser(doors.dashboard).enter()

            async def page(query: str) -> dict[str, Any]:
                found: dict[str, Any] = (
                    await browser.get(f"/topics/log%2F%C3%A9/events?{query}")
                ).json
                return found

            last = await page("last=1&limit=5")
            assert [row["offset"] for row in last["rows"]] == [25, 26, 27, 28, 29]
            assert not last["more"]
            middle = await page("from=10&limit=4")
            assert [row["text"] for row in middle["rows"]] == [f"event {n}" for n in range(10, 14)]
            assert (middle["next"], middle["more"], middle["first"]) == (14, True, 0)
            since = await page(f"since={middle['rows'][2]['received']:.9f}&limit=1")
            assert since["rows"][0]["offset"] == 12
            found = await page("from=0&filter=event 2&limit=200".replace(" ", "%20"))
            assert [row["offset"] for row in found["rows"]] == [2, *range(20, 30)]
            by_key = await page("from=0&filter=k1&limit=3")
            assert [row["key"] for row in by_key["rows"]] == ["k1"] * 3
            assert (by_key["next"], by_key["more"]) == (8, True)
            assert (await page("from=1000"))["rows"] == []
            assert (await browser.get("/topics/nothing/events")).status == 404

    run(story)


def test_closing_the_node_ends_the_stream() -> None:
    async def story() -> None:
        async with Node(None) as node:
            doors = await node.serve(dashboard="127.0.0.1:0")
            assert doors.dashboard is not None
            browser = await Browser(doors.dashboard).enter()
            reader, writer = await browser.send(browser.request("/stream"))
            seen = events(reader)
            await anext(seen)
        assert [each async for each in seen] == []
        writer.close()

    run(story)
