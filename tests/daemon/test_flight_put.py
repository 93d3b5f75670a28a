"""Rows that are sent to a node that is stuck: published once, however often they are sent."""

import asyncio
from pathlib import Path

import pytest

from live_nodes import run
from rumormill.core.errors import LocalError
from rumormill.daemon import flight_door, flight_service
from rumormill.daemon.flight_door import publisher_of
from rumormill.daemon.flight_messages import PutRequest, PutResult
from rumormill.daemon.flight_service import FlightService
from rumormill.node.node import Node

arrow = pytest.importorskip("pyarrow")
ROWS = [b"%d" % number for number in range(20)]


def test_rows_that_are_sent_again_while_the_node_is_stuck_are_published_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door has given up waiting, and its node still publishes them when its peers go on."""
    monkeypatch.setattr(flight_door, "_PUBLISH_SECONDS", 0.05)
    monkeypatch.setattr(flight_service, "BUSY_SECONDS", 0.05)

    async def story() -> None:
        async with Node(tmp_path) as node:
            node._journal.congested = lambda: True
            service = FlightService(node.log, publisher_of(node, asyncio.get_running_loop()))

            def put() -> PutResult:
                batch = arrow.record_batch({"value": arrow.array(ROWS, arrow.binary())})
                return service.put(PutRequest("job 0", "news"), iter([batch]))

            with pytest.raises(LocalError, match="its log or its peers are stuck"):
                await asyncio.to_thread(put)
            with pytest.raises(LocalError, match="being published already"):
                await asyncio.to_thread(put)
            node._journal.congested = lambda: False
            monkeypatch.setattr(flight_door, "_PUBLISH_SECONDS", 600.0)
            monkeypatch.setattr(flight_service, "BUSY_SECONDS", 600.0)
            assert await asyncio.to_thread(put) == PutResult(0, len(ROWS))
            assert [each.data for each in await node.history("news")] == ROWS

    run(story)
