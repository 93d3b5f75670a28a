"""What a node's machine reads of its log where that cannot be read just now: it is not taken for
something that was never stored."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run
from rumormill.core.errors import LocalError
from rumormill.log.errors import NoDescriptorsError, StoreError, StoreReadOnlyError
from rumormill.log.notes import read_note
from rumormill.node import log_reader
from rumormill.node.node import Node


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[StoreError, int], list[int]]:
    """Have so many readings of notes fail, and count them."""
    monkeypatch.setattr(log_reader, "_PAUSE", 0.001)
    read = log_reader.read_notes

    def arrange(error: StoreError, times: int) -> list[int]:
        failed: list[int] = []

        def reads(*arguments: Any) -> Any:
            if len(failed) < times:
                failed.append(1)
                raise error
            return read(*arguments)

        monkeypatch.setattr(log_reader, "read_notes", reads)
        return failed

    return arrange


@pytest.mark.parametrize(
    ("error", "times"),
    [(NoDescriptorsError("none is left"), 40), (StoreReadOnlyError("cannot be opened"), 7)],
)
def test_since_when_a_topic_is_followed_is_not_forgotten(
    tmp_path: Path, fail: Callable[[StoreError, int], list[int]], error: StoreError, times: int
) -> None:
    """From then on what was missed is fetched; a node that begins anew would lack it for ever."""
    noted: list[bytes | None] = []

    async def life() -> None:
        async with Node(tmp_path) as node:
            await node.subscribe("news")
            noted.append(read_note(node.log, "sync/news"))

    run(life)
    failed = fail(error, times)
    run(life)
    assert len(failed) == times
    assert noted[0] == noted[1] is not None


def test_a_disk_that_does_not_recover_is_not_waited_for(
    tmp_path: Path, fail: Callable[[StoreError, int], list[int]]
) -> None:
    async def story() -> None:
        fail(StoreReadOnlyError("cannot be opened"), 1_000_000)
        async with Node(tmp_path) as node:
            with pytest.raises(LocalError, match="could not keep since when"):
                await node.subscribe("news")
            assert (await node.publish("news", b"on")).offset == 0

    run(story)


def test_a_node_without_descriptors_can_be_closed(
    tmp_path: Path, fail: Callable[[StoreError, int], list[int]]
) -> None:
    """Though what it reads is not read yet."""

    async def story() -> None:
        failed = fail(NoDescriptorsError("none is left"), 1_000_000)
        async with Node(tmp_path) as node:
            waits = asyncio.ensure_future(node.subscribe("news"))
            assert (await node.publish("news", b"on")).offset == 0
        await asyncio.gather(waits, return_exceptions=True)
        assert failed

    run(story)
