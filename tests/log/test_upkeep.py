"""A log whose owner appends, loses, repairs, deletes, copies and restores in any order.

A model beside it knows of each topic which event has which offset, and which offsets stay empty.
After each step the log lists its topics, reads, finds and verifies as the model says.
"""

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rumormill.core.history import BEGIN, END
from rumormill.log import EventLog, StoreConfig, backup, compact, repair, restore
from rumormill.log.model import Durability, Retention
from rumormill.log.parquet import export_parquet, import_parquet
from store_samples import make_event

CONFIG = StoreConfig(durability=Durability.OS)
TOPICS = st.sampled_from(["news", "weather"])
PART = st.floats(0, 1, exclude_max=True)


class Topic(msgspec.Struct):
    """What the log should have of a topic."""

    first: int = 0
    next: int = 0
    events: dict[int, bytes] = {}
    """Ids by offset."""

    @property
    def lost(self) -> list[int]:
        return [offset for offset in range(self.first, self.next) if offset not in self.events]


def copied(topics: dict[str, Topic]) -> dict[str, Topic]:
    return {name: Topic(each.first, each.next, {**each.events}) for name, each in topics.items()}


class Upkeep(RuleBasedStateMachine):
    """An owner who does one thing after the other to a log that stays open, or is opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.home, self.copy = Path(self.folder.name, "home"), Path(self.folder.name, "copy")
        self.log = EventLog(self.home, CONFIG)
        self.topics: dict[str, Topic] = {}
        self.copied: dict[str, Topic] | None = None
        self.numbers = 0

    def teardown(self) -> None:
        self.log.close()
        self.folder.cleanup()

    @rule(name=TOPICS, count=st.integers(1, 20))
    def append(self, name: str, count: int) -> None:
        """Events come, each to the next offset."""
        topic = self.topics.setdefault(name, Topic())
        events = [make_event(self.numbers + number, name) for number in range(count)]
        self.numbers += count
        places = self.log.append(events).result()
        assert [each.offset for each in places] == list(range(topic.next, topic.next + count))
        topic.events |= {place.offset: each.id for place, each in zip(places, events, strict=True)}
        topic.next += count

    @precondition(lambda self: any(each.events for each in self.topics.values()))
    @rule(data=st.data(), part=PART)
    def append_again(self, data: Any, part: float) -> None:
        """An event that the log has comes once more, and keeps its offset."""
        name, offset = self.some(data, part)
        number = int(self.topics[name].events[offset].removeprefix(b"id-"))
        (place,) = self.log.append([make_event(number, name)]).result()
        assert (place.offset, place.duplicate) == (offset, True)

    @precondition(lambda self: any(each.events for each in self.topics.values()))
    @rule(data=st.data(), part=PART)
    def lose(self, data: Any, part: float) -> None:
        """An event is another than its hash says; a repair gives it up, and its offset stays."""
        name, offset = self.some(data, part)
        writer = self.log.writer()
        key = writer.topics[name].key(offset)
        change = "UPDATE events SET data = x'00' WHERE key = ?"
        writer.run(writer.exclusively(lambda: writer.db.execute(change, (key,)))).result()
        report = repair(self.log)
        assert [(each.topic, each.start, each.end) for each in report.findings] == [
            (name, offset, offset + 1)
        ]
        del self.topics[name].events[offset]

    @rule(name=TOPICS, most=st.integers(1, 15))
    def retain(self, name: str, most: int) -> None:
        """All but the newest offsets go, lost ones among them."""
        self.log.retain({name: Retention(max_events=most)}, now=0.0)
        topic = self.topics.get(name)
        if topic is not None:
            topic.first = max(topic.first, topic.next - most)
            topic.events = {at: each for at, each in topic.events.items() if at >= topic.first}

    @rule(old=st.booleans())
    def compact(self, old: bool) -> None:
        """Space goes back."""
        compact(self.log, old=old)

    @precondition(lambda self: self.copied is None and self.topics)
    @rule()
    def back_up(self) -> None:
        """A copy is made."""
        assert backup(self.home, self.copy).ok
        self.copied = copied(self.topics)

    @precondition(lambda self: self.copied is not None)
    @rule()
    def restore(self) -> None:
        """The copy counts again; what came later is lost, and its offsets are not used again."""
        assert self.copied is not None
        restore(self.copy, self.log, replace=True)
        before, self.topics = self.topics, copied(self.copied)
        for name, was in before.items():
            topic = self.topics.setdefault(name, Topic(first=was.first))
            topic.next = max(topic.next, was.next)

    @rule()
    def take_elsewhere(self) -> None:
        """A file of the log makes the same of an empty one."""
        file = Path(self.folder.name, "file.parquet")
        export_parquet(self.log, file)
        with tempfile.TemporaryDirectory() as home, EventLog(home, CONFIG) as other:
            import_parquet(other, file)
            self.check(other)

    @rule()
    def open_again(self) -> None:
        """Nothing of it is forgotten."""
        self.log.close()
        self.log = EventLog(self.home, CONFIG)

    def some(self, data: Any, part: float) -> tuple[str, int]:
        """A topic, and the offset of an event in it."""
        names = [name for name, topic in self.topics.items() if topic.events]
        name = data.draw(st.sampled_from(names))
        offsets = sorted(self.topics[name].events)
        return name, offsets[int(part * len(offsets))]

    @invariant()
    def the_log_is_as_the_model_says(self) -> None:
        self.check(self.log)

    def check(self, log: EventLog) -> None:
        """A log has what it should have."""
        assert {each.name: (each.first_offset, each.next_offset) for each in log.topics()} == {
            name: (topic.first, topic.next) for name, topic in self.topics.items()
        }
        for name, topic in self.topics.items():
            found = log.read_since(name, 0.0, 10_000)
            assert {each.offset: each.id for each in found} == topic.events
            lost = [at for span in log.losses(name) for at in range(*span)]
            assert [at for at in lost if at >= topic.first] == topic.lost
            with log.histories() as histories:
                history = histories.history(name)
                count = 0 if history is None else history.summary(BEGIN, END).count
                assert count == len(topic.events)
        assert log.verify().ok


Upkeep.TestCase.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
TestUpkeep = Upkeep.TestCase
