"""Spark's part: it reads the observer's events while they happen, and mills the traces afterwards.

The stream reads from the observer's Flight door, checks every event's name and signature again by
the rules of its protocol, and writes Parquet files. When a run is over, it is let finish, and its
rows are counted as Spark reads them. The mill then makes one part of a lake out of the traces of
all runs. Spark's calls block, so each is made in a thread; when we are told to stop meanwhile,
Spark is stopped, which ends the call.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from rumormill.daemon.doors import Doors
from rumormill.demo.network import Network
from rumormill.demo.script import Participant, Script
from rumormill.node.verdicts import VALID
from rumormill.spark.bronze import INCLUDED, Source, TraceFile, as_events
from rumormill.spark.lake import Lake
from rumormill.spark.mill import mill, plain
from rumormill.spark.tables import ddl
from rumormill.spark.verifying import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART: Final = "demo"
"""The lake's part; the runs in it are `demo/gossipsub` and so on."""

_TRIGGER: Final = "2 seconds"
"""Our choice: several batches in a run, and time between them for the nodes."""

_Result = TypeVar("_Result")


class Streamed(msgspec.Struct, frozen=True):
    """What a stream brought."""

    events: int
    """What the observer's log held when the stream had caught up."""
    rows: int
    """Different events that Spark has."""
    valid: int
    """Rows whose name and signature hold."""
    batches: int


class Mill:
    """Spark, and the folders that it fills."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.lake = Lake.create(folder / "lake")
        self.streamed: dict[str, Streamed] = {}

    async def warm_up(self) -> None:
        """Let Spark do once what it will do all the time, so that no run pays for the first."""
        empty = self._spark.createDataFrame([], ddl("events"))
        await self._do(verify(empty).count)

    @contextlib.asynccontextmanager
    async def follow(self, label: str, network: Network) -> AsyncIterator[None]:
        """Stream the observer's events while the block runs, and count them."""
        async with network.observer.serve(flight="127.0.0.1:0") as doors:
            topics = list(network.names.values())
            query = await self._do(lambda: self._start(label, doors, topics))
            try:
                yield
                await self._do(query.processAllAvailable)
                batches = await self._do(lambda: query.lastProgress.batchId + 1)
                events = sum((await network.kept(network.script.observer)).values())
            finally:
                await asyncio.to_thread(_stop, query)
            rows, valid = await self._do(lambda: self._count(label))
            self.streamed[label] = Streamed(events, rows, valid, batches)

    def _start(self, label: str, doors: Doors, topics: list[str]) -> Any:
        events = (
            self._spark.readStream.format("rumormill")
            .option("node", doors.flight)
            .option("token", doors.token)
            .options(**INCLUDED)
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .load()
        )
        return (
            verify(as_events(events, label))
            .writeStream.format("parquet")
            .option("path", str(self._events(label)))
            .option("checkpointLocation", str(self._folder / "checkpoints" / label))
            .queryName(f"demo {label}")
            .trigger(processingTime=_TRIGGER)
            .start()
        )

    def _events(self, label: str) -> Path:
        return self._folder / "events" / label

    def _count(self, label: str) -> tuple[int, int]:
        rows = self._spark.read.parquet(str(self._events(label)))
        found = rows.select("topic", "offset", "signature", "fault").distinct().collect()
        valid = [row for row in found if row["signature"] == VALID and row["fault"] is None]
        return len(found), len(valid)

    async def mill(
        self,
        results: Mapping[Participant, tuple[Sequence[str], Mapping[str, Any]]],
        script: Script,
        tell: Callable[[str], None],
    ) -> None:
        """Make the lake's tables of the traces of all runs, and of what was noted of each."""
        files = [
            TraceFile(run_of(each.label), number, path)
            for each, (paths, _) in results.items()
            for number, path in enumerate(paths)
        ]
        about = {
            run_of(each.label): {
                "protocol": each.protocol,
                "preset": each.preset,
                "peers": script.nodes,
                "seed": str(script.seed),
                "figures": json.dumps(noted),
            }
            for each, (_, noted) in results.items()
        }
        source = Source(PART, self._folder, tuple(files), about=about)
        await self._do(lambda: mill(self._spark, source, self.lake, tell=tell))

    async def _do(self, work: Callable[[], _Result]) -> _Result:
        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._spark.stop)
            raise
        except Exception as error:
            raise plain(error) from error


def run_of(label: str) -> str:
    """The name of a participant's run in the lake."""
    return f"{PART}/{label}"


def _stop(query: Any) -> None:
    """End a stream, also one that has ended already because Spark was stopped."""
    with contextlib.suppress(Exception):
        query.stop()
