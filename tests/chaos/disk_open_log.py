"""The program whose disk fails under a log that is open, and then works again.

Arguments: a directory for its stores, the file of faults, the work (`WORKS`), the first operation
that fails, how many lie between two cases, and faults: KIND:ERRNO:once or KIND:ERRNO:on. Each case
is the work on a log of its own, under which a later operation fails, alone or with all behind it,
until the work makes fewer than that. When the fault is over, what was acknowledged must be there at
its offset, and the log goes on: at once, or, where it says that the disk has failed, after a repair
or a new start, as it says. A line is a case:

    FAULT NUMBER went on | repaired | started again [ERROR]
"""

import itertools
import shutil
import sys
from pathlib import Path

from rumormill.core.event import Note
from rumormill.log import (
    EventLog,
    Retention,
    StoreConfig,
    StoreError,
    StoreFailedError,
    backup,
    compact,
    export_parquet,
    import_parquet,
    repair,
    restore,
)
from rumormill.log.arrow import read_batches
from rumormill.log.notes import read_note
from store_samples import damage, fill, make_event

CONFIG = StoreConfig(checkpoint_pages=10**6, segment_rows=16, heads_sync_commits=4)
ADVICE = "`rumormill repair`, or a restart"
EVENTS, KEPT, COPIED = 60, 20, 50


class Case:
    """A log, and what it has acknowledged."""

    def __init__(self, base: Path, home: Path, work: str) -> None:
        shutil.copytree(base, home)
        self.home = home
        self.copy = home.with_name(f"{home.name}-copy")
        self.file = home.with_name(f"{home.name}.parquet")
        self.log = EventLog(home, CONFIG)
        self.must_have = {("news", number): b"id-%d" % number for number in range(EVENTS)}
        self.may_lack: set[tuple[str, int]] = set()
        self.note = 0
        self.backed_up = False
        self.numbers = itertools.count(EVENTS)
        self.append()
        self.do = getattr(self, work)
        if work == "repair":
            damage(home, 7, topic="news")
        elif work == "compact":
            repair(self.log)
            self.retain()
        elif work in ("restore", "import_more"):
            with EventLog(self.copy, CONFIG) as other:
                fill(other, COPIED, "news" if work == "restore" else "weather")
                export_parquet(other, self.file)

    # Works.

    def append(self) -> None:
        """One event, with a note."""
        number = next(self.numbers)
        note = Note("n", b"%d" % number)
        (place,) = self.log.append([make_event(number)], notes=[note]).result()
        self.keep("news", place.offset, number)
        self.note = number

    def keep(self, topic: str, offset: int, number: int) -> None:
        """A receipt: no other event was ever there."""
        assert (topic, offset) not in self.must_have, f"{topic} {offset} is used again"
        self.must_have[topic, offset] = b"id-%d" % number

    def append_many(self) -> None:
        """Larger ones, in several commits of which some may fail and others not."""
        tickets = []
        for _ in range(6):
            number = next(self.numbers)
            events = [make_event(number, topic, data=b"x" * 5000) for topic in ("news", "more")]
            tickets.append((number, events, self.log.append(events)))
        failed: list[StoreError] = []
        for number, events, ticket in tickets:
            try:
                places = ticket.result()
            except StoreError as error:
                failed.append(error)
                continue
            for event, place in zip(events, places, strict=True):
                self.keep(event.topic, place.offset, number)
        if failed:
            raise failed[0]

    def checkpoint(self) -> None:
        """Fold the write-ahead log."""
        writer = self.log.writer()
        writer.run(writer.exclusively(writer.checkpoint)).result()

    def retain(self) -> None:
        """Delete all but some."""
        end = self.log.topic("news").next_offset
        self.may_lack |= {("news", each) for each in range(end - KEPT)}
        self.log.retain({"news": Retention(max_events=KEPT)}, 0.0)

    def compact(self) -> None:
        """Give back what is free, and the database that a repair has left."""
        compact(self.log, old=True)

    def index(self) -> None:
        """Bring the index of histories up to date."""
        with self.log.histories() as histories:
            assert histories.history("news") is not None

    def seal(self) -> None:
        """Read so much at once that segments are made."""
        for _ in read_batches(self.log, "news", 0, EVENTS, batch_rows=8):
            pass

    def repair(self) -> None:
        """Give up the event that was damaged."""
        self.may_lack.add(("news", 7))
        repair(self.log)

    def restore(self) -> None:
        """Take back a copy without the last events."""
        self.may_lack |= {each for each in self.must_have if each[1] >= COPIED}
        restore(self.copy, self.log, replace=True)

    def backup(self) -> None:
        """Copy the home."""
        backup(self.home, self.copy)
        self.backed_up = True

    def import_more(self) -> None:
        """Take events of another topic from a file."""
        import_parquet(self.log, self.file)
        self.must_have |= {("weather", number): b"id-%d" % number for number in range(COPIED)}

    # What must be so.

    def go_on(self, *, repairs: bool) -> str:
        """Append again, after what the log says that it takes."""
        try:
            self.append()
        except StoreFailedError as error:
            if ADVICE not in str(error):
                raise
        else:
            return "went on"
        if repairs:
            repair(self.log)
        else:
            self.log.close()
            self.log = EventLog(self.home, CONFIG)
        self.append()
        return "repaired" if repairs else "started again"

    def check(self) -> None:
        """What was acknowledged is at its offset, and nothing is there that nobody appended."""
        found: dict[tuple[str, int], bytes] = {}
        for info in self.log.topics():
            start = info.first_offset
            events = self.log.read_since(info.name, 0.0, 10_000)
            found |= {(info.name, event.offset): event.id for event in events}
            lost = {each for loss in self.log.losses(info.name) for each in range(*loss)}
            gone = set(range(start)) | lost
            assert gone == {o for t, o in self.may_lack if t == info.name} & gone, gone
            assert {event.offset for event in events} | gone == set(range(info.next_offset))
        wrong = {
            place: id_
            for place, id_ in self.must_have.items()
            if found.get(place, None if place in self.may_lack else b"") not in (None, id_)
        }
        assert not wrong, f"{wrong} is not what is there: {found}"
        note = read_note(self.log, "n")
        assert note is not None
        assert int(note) >= self.note
        report = self.log.verify()
        assert report.ok, report.findings
        if self.backed_up:
            with EventLog(self.copy, read_only=True) as log:
                assert len(log.read("news", 0)) > EVENTS


WORKS = (
    *("append", "append_many", "checkpoint", "retain", "compact", "index", "seal"),
    *("repair", "restore", "backup", "import_more"),
)


def struck(faults: Path) -> bool:
    """Whether the fault has befallen anything; it counts from here on."""
    told = Path(f"{faults}.struck")
    was = told.exists()
    told.unlink(missing_ok=True)
    return was


def go_through(root: Path, faults: Path, work: str, fault: str, first: int, step: int) -> None:
    """Let one operation after the other fail."""
    kind, failure, lasts = fault.split(":")
    for number in itertools.count(first, step):
        case = Case(root / "base", root / f"{number}", work)
        last = number if lasts == "once" else 0
        faults.write_text(f"{kind} {failure} {number} {last} *\n")
        raised: StoreError | None = None
        try:
            case.do()
        except StoreError as refused:
            raised = refused
        faults.write_text("")
        hit = struck(faults)
        assert hit or raised is None, raised
        outcome = case.go_on(repairs=bool(number % 2))
        if raised is not None and work not in ("append", "append_many"):
            case.do()
        case.append()
        case.check()
        case.log.close()
        with EventLog(case.home, CONFIG) as case.log:
            case.check()
        error = "" if raised is None else f" {type(raised).__name__}: {raised}"
        sys.stdout.write(f"{fault} {number} {outcome}{error}\n")
        drafts = [*root.glob(".*")]
        assert lasts != "once" or not drafts, drafts
        for path in (*drafts, *root.glob(f"{number}*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not hit:
            return


def main() -> None:
    """Go through the operations of a work, with one fault after the other."""
    root, faults, work, first, step = sys.argv[1:6]
    with EventLog(Path(root) / "base", CONFIG) as log:
        fill(log, EVENTS)
    for fault in sys.argv[6:]:
        go_through(Path(root), Path(faults), work, fault, int(first), int(step))


if __name__ == "__main__":
    main()
