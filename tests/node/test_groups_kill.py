"""Named subscriptions and kill -9: what is acknowledged does not come again, all else does."""

import sys
from pathlib import Path

import pytest

from live_nodes import run, take_events
from processes import Program
from rumormill.node.node import Node

CONSUMER = Path(__file__).with_name("group_consumer.py")


def killed(home: Path, how: str, lines: int) -> list[tuple[str, int]]:
    """Kill the consumer after so many lines; return all that it has said."""
    with Program([sys.executable, CONSUMER, home, how]) as child:
        child.prints(1 + lines)
        child.kill()
    said = [line.split() for line in child.output[1:]]
    return [(word, int(offset)) for word, offset in said]


@pytest.mark.parametrize("how", ["each", "some", "auto"])
def test_kill_9_loses_nothing_and_repeats_nothing_that_was_acknowledged(
    tmp_path: Path, how: str
) -> None:
    """Three kills at work; with auto_ack what was asked past may come again. Of the last event of a
    life nobody knows: its acknowledgement may be on disk, and the kill came before the word."""
    done: dict[int, None] = {}
    unsure: dict[int, None] = {}
    for lines in (60, 1, 120):
        last: int | None = None
        for word, offset in killed(tmp_path, how, lines):
            if word == "acked":
                done[offset] = None
            else:
                assert how == "auto" or offset not in done, "an acknowledged event came again"
                if how == "auto" and last is not None:
                    done[last] = None
                last = offset
        if last is not None and (how != "some" or last % 3):
            unsure[last] = None

    async def main() -> None:
        async with Node(tmp_path) as node:
            events = await node.subscribe("work", name="w")
            (view,) = node.groups()
            rest = [each.offset for each in await take_events(events, view.pending + view.lag)]
            assert len(dict.fromkeys(rest)) == len(rest)
            assert how == "auto" or not [offset for offset in rest if offset in done]
            known = {**done, **dict.fromkeys(rest)}
            events_of_log = range(node.log.topics()[0].next_offset)
            assert [n for n in events_of_log if n not in known and n not in unsure] == []

    run(main)
