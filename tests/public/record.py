"""Makes the files that later versions must read, in a new folder (docs/contributing.md).

`recorded/0.1.0` is what version 0.1.0 made. What is there is never made anew; a version that writes
something else gets a folder of its own beside it, and `test_recorded.py` reads all of them.
"""

import asyncio
import contextlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from rumormill import Message, Node, StoreConfig, SyncNode, cli
from rumormill.core.event import KeptRecord, Note
from rumormill.daemon import control_messages as control
from rumormill.log import EventLog
from rumormill.log.arrow import COLUMNS, read_batches
from rumormill.log.model import Retention
from rumormill.log.records import put_records
from rumormill.node.identity import create_network, create_topic_key
from rumormill.spark.lake import Lake
from rumormill.spark.tables import TABLES
from rumormill.trace.files import open_writer
from trace_payloads import ONE_OF_EACH

PLACE = Path("/tmp/rumormill-recorded")
"""Where they are made: tables say where they came from, so it is the same for everybody."""
SEALED = 16
"""Rows of a segment."""
STORE = StoreConfig(segment_rows=SEALED)
RECORD = KeptRecord(b"/pulsarcast/key", b"value", b"proof", 1_700_000_000.0, True, b"source")
TRACES = ("each.ndjson", "each.pb", "each.pb.gz", "each.parquet")

REQUESTS: tuple[control.Request, ...] = (
    control.Hello(),
    control.Publish("news", [control.Said(b"plain"), control.Said(b"more")]),
    control.ReadHistory("news", 0, None, 10),
    control.ListTopics(),
    control.ListPeers(),
    control.ListGroups(),
    control.Sync(None, 1.0),
    control.Retain(None, None, False),
    control.Measure(),
    control.Join("no ticket"),
)


def make_home(folder: Path) -> None:
    """A home with keyed events, a name's position, notes, a record, segments and a retained topic;
    `said.json` is what its node said of it."""
    home = folder / "home"
    topic_key = folder / "secret.key"
    create_topic_key(topic_key)
    create_network(folder / "network.key")
    with SyncNode(home, store=STORE, topic_keys={"secret": topic_key}) as node:
        with node.subscribe("news", name="billing", auto_ack=False) as events:
            for number in range(40):
                node.publish(
                    "news", f"event {number}", key=f"key {number % 3}", headers={"n": str(number)}
                )
            given = [next(events) for _ in range(12)]
            events.ack(*given[:8], given[9])
        node.publish("secret", b"for few", content_type="text/plain")
        node.publish_noted([("noted", Message(b"once"), Note("job 7", b"done"))])
        node.set_retention({"news": Retention(max_events=30)})
        node.retention(apply=True)
        said: dict[str, Any] = {"id": node.id.hex()}
        owner = str(node.id)
    with EventLog(home, STORE) as log:
        log.change(lambda db: put_records(db, [RECORD]))
        for _ in read_batches(log, "news", 10, 40, COLUMNS, batch_rows=SEALED):
            pass
    with SyncNode(home, store=STORE, topic_keys={"secret": topic_key}) as node:
        for topic in ("news", "secret", "noted"):
            said[topic] = [described(event) for event in node.history(topic, since_offset=0)]
        said["groups"] = [
            [group.topic, group.name, group.next_offset, group.pending] for group in node.groups()
        ]
    policy = folder / "news.policy"
    command("policy", "new", str(policy), "--topic", "news", "--publisher", owner, at=home)
    said["policy"] = command("policy", "show", str(policy), at=home)
    said["network"] = command("network", "show", str(folder / "network.key"))
    said["topic key"] = command("topic-key", "show", str(topic_key))
    for shown in (said["policy"], said["network"], said["topic key"]):
        shown.pop("file")
    (folder / "said.json").write_text(json.dumps(said, indent=1))


def described(event: Any) -> dict[str, Any]:
    """An event as an application has it."""
    return {
        "offset": event.offset,
        "id": event.id.hex(),
        "author": event.author.hex(),
        "data": event.data.decode(),
        "key": event.key and event.key.decode(),
        "headers": event.headers,
        "content_type": event.content_type,
        "created": event.created,
        "received": event.received,
    }


def command(*arguments: str, at: Path | None = None) -> dict[str, Any]:
    """What a command says with `--json`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        place = () if at is None else ("--home", str(at))
        assert cli.main([*arguments, *place, "--json"]) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def make_traces(folder: Path) -> None:
    """One entry of every kind, in every format."""
    for name in TRACES:
        writer = open_writer(folder / name)
        writer.observe(ONE_OF_EACH)
        writer.close()


def make_lake(folder: Path) -> None:
    """The tables of a simulation and of the home."""
    trace = folder / "storm.ndjson"
    brief = ("warm_up=2", "cool_down=1", "workload.messages=3", "workload.rate=10")
    settings = [word for each in brief for word in ("--set", each)]
    assert cli.main(["sim", "--peers", "4", *settings, "--trace", str(trace)]) == 0
    for source in (trace, folder / "home"):
        assert cli.main(["mill", str(source), "--to", str(folder / "lake")]) == 0
    trace.unlink()
    lake = Lake(folder / "lake")
    rows = {name: len(lake.rows(name)) for name in TABLES}
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))


async def exchange(home: Path, requests: list[bytes]) -> list[bytes]:
    """The frames that a node answers to these."""
    async with Node(home) as node, node.serve(control=True):
        reader, writer = await asyncio.open_unix_connection(control.socket_path(home))
        answers = []
        for each in requests:
            writer.write(each)
            size = await reader.readexactly(4)
            answers.append(size + await reader.readexactly(int.from_bytes(size)))
        writer.close()
    return answers


def make_exchange(folder: Path) -> None:
    """What a client said to a node and what the node answered."""
    said = [control.encode(each) for each in REQUESTS]
    with tempfile.TemporaryDirectory() as scratch:
        answers = asyncio.run(exchange(Path(scratch), said))
    pairs = [[each.hex(), answer.hex()] for each, answer in zip(said, answers, strict=True)]
    (folder / "control.json").write_text(json.dumps(pairs, indent=1) + "\n")


def pack(place: Path, folder: Path) -> None:
    """Put what was made into one file, as nobody's."""

    def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
        return member.replace(uid=0, gid=0, uname="", gname="", deep=False)

    with tarfile.open(folder / "files.tar.xz", "w:xz") as archive:
        for path in sorted(place.iterdir()):
            archive.add(path, path.name, filter=nobodys)


def main() -> None:
    """Make a folder with all of them."""
    folder = Path(sys.argv[1])
    folder.mkdir()
    make_traces(folder)
    make_exchange(folder)
    PLACE.mkdir()
    try:
        make_home(PLACE)
        make_lake(PLACE)
        pack(PLACE, folder)
    finally:
        shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
