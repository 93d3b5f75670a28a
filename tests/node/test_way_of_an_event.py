"""The way of an event, as `docs/architecture.md` draws it: few classes, one thread each way."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from live_nodes import PATIENCE, run
from rumormill import Node, SyncNode

MOST_CLASSES = 20
"""Classes through which an event is handed, both directions together; before there was a journal,
about 60 were visited."""

STATIONS = ("GossipSub", "Writer", "YamuxSession", "NoiseSession", "Subscription")
"""Where an event arrives: at the protocol, the disk, the wire, the application."""

TOPIC = "news"
ROOT = Path(__file__).resolve().parents[2]


EVENTS = 5
"""So often the way is gone. What is not passed every time, a heartbeat that comes in between or an
answer to a ping, is no part of it."""


class Passed:
    """Who hands an event from station to station: the classes on the stack when one is called."""

    def __init__(self) -> None:
        self.ways: list[dict[str, dict[str, None]]] = []
        self._looks = False

    @contextmanager
    def look(self) -> Iterator[None]:
        """See the way of one event."""
        self.ways.append({})
        self._looks = True
        yield
        self._looks = False

    def see(self, frame: FrameType | None, event: str, _: Any) -> None:
        if not self._looks or event != "call" or class_of(frame) not in STATIONS:
            return
        seen = self.ways[-1].setdefault(threading.current_thread().name, {})
        while frame is not None:
            if name := class_of(frame):
                seen[name] = None
            frame = frame.f_back


def class_of(frame: FrameType | None) -> str:
    """The class of ours whose method a frame runs."""
    who = None if frame is None else frame.f_locals.get("self")
    return type(who).__name__ if type(who).__module__.startswith("rumormill") else ""


@contextmanager
def profiled(passed: Passed) -> Iterator[None]:
    threading.setprofile(passed.see)
    sys.setprofile(passed.see)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[SyncNode]:
    """A node in a thread of its own, so that what is seen here is one side alone."""
    with SyncNode(tmp_path / "other", members=False, sync=False) as node:
        yield node


def check(passed: Passed, stations: int) -> None:
    threads = {name for way in passed.ways for name in way if "asyncio" not in name}
    assert len(threads) == 2, f"the loop's thread and the log's: {passed.ways}"
    seen = [{name for thread in threads for name in way.get(thread, ())} for way in passed.ways]
    classes = set.intersection(*seen)
    assert len(classes & set(STATIONS)) == stations
    assert len(classes) <= MOST_CLASSES // 2 + 2, sorted(classes)
    drawn = (ROOT / "docs" / "architecture.md").read_text()
    for name in classes - {"Node", "SyncNode"}:
        assert name.removesuffix("Session").lower() in drawn.lower(), f"{name} is not drawn"


def test_the_way_out(other: SyncNode, tmp_path: Path) -> None:
    """From `publish` to the receipt, with the event on the disk and on its way to the peer."""
    passed = Passed()
    got = other.subscribe(TOPIC)

    async def story() -> None:
        async with Node(tmp_path / "own", members=False, sync=False) as node:
            await node.connect(other.tickets[0])
            await node.wait_until_ready(TOPIC)
            for _ in range(EVENTS):
                with passed.look():
                    await node.publish(TOPIC, b"hello")

    with profiled(passed):
        run(story)
    event = got.next(timeout=PATIENCE)
    assert event is not None
    assert event.data == b"hello"
    check(passed, stations=4)


def test_the_way_in(other: SyncNode, tmp_path: Path) -> None:
    """From the socket to the subscriber, with the event on the disk."""
    passed = Passed()

    async def story() -> None:
        async with (
            Node(tmp_path / "own", members=False, sync=False) as node,
            await node.subscribe(TOPIC) as events,
        ):
            await node.connect(other.tickets[0])
            await node.wait_until_ready(TOPIC, peers=0)
            await asyncio.to_thread(other.wait_until_ready, TOPIC, timeout=PATIENCE)
            for _ in range(EVENTS):
                with passed.look():
                    published = asyncio.to_thread(other.publish, TOPIC, b"hello")
                    publishing = asyncio.ensure_future(published)
                    assert (await anext(events)).data == b"hello"
                await publishing

    with profiled(passed):
        run(story)
    check(passed, stations=5)
