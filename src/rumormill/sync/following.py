"""Which topics are followed, and from which date on their events are wanted.

From when on a topic was ever wanted is remembered in a note: from when it was first followed, or
from an earlier date that was asked for. Who subscribes again has missed what was published since
then, also if it was stopped while it fetched the rest of a history. Of several subscriptions to a
topic, the one that wants most counts.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from rumormill.core.effects import Effects, KeepNote, Load, Notes, Outcome
from rumormill.core.event import Note
from rumormill.core.history import topic_tag
from rumormill.core.ids import Topic
from rumormill.core.inputs import Loaded

_NOTE_PREFIX: Final = "sync/"
NOT_KEPT: Final = "the log could not keep since when the topic is followed"


class Remember(msgspec.Struct, frozen=True):
    """A command: its outcome comes when a later life will know since when a topic is followed."""

    topic: Topic


class Following:
    """The topics of one peer."""

    def __init__(self, number: int) -> None:
        self._number = number
        """Under which the notes are read."""
        self.since: dict[Topic, int] = {}
        """The topics that are followed, and the date from which on their events are wanted."""
        self.tags: dict[bytes, Topic] = {}
        """The same by their tags."""
        self._ever: dict[Topic, int] = {}
        """From which date on topics were ever wanted, as the log remembers it."""
        self._waiting: list[tuple[Topic, float | None, float]] = []
        """Subscriptions that wait until that is known, with when they were made."""
        self._commands: dict[int, tuple[int, Topic]] = {}
        """Commands to remember a topic, by the number of the read that tells whether it is so."""
        self._remembers = False

    def begin(self, effects: Effects) -> None:
        """Read what the log remembers."""
        self._read("", effects)

    def keep_again(self, effects: Effects) -> None:
        """The log has changed, and may lack notes of ours: have it keep what it had."""
        for topic, ever in self._ever.items():
            effects.append(KeepNote(_note(topic, ever)))

    def _read(self, after: str, effects: Effects) -> None:
        effects.append(Load(self._number, "", Notes(_NOTE_PREFIX, after)))

    def on_notes(self, loaded: Loaded, effects: Effects) -> bool:
        """Take notes; whether they are all there, and what waited is followed."""
        self._take(loaded.notes)
        if loaded.more:
            self._read(loaded.notes[-1].key, effects)
            return False
        self._remembers = True
        for topic, since, asked in self._waiting:
            self._follow(topic, since, asked, effects)
        self._waiting.clear()
        for number, (_, topic) in self._commands.items():
            self._look_up(number, topic, effects)
        return True

    def _take(self, notes: Iterable[Note]) -> None:
        for note in notes:
            self._ever[note.key.removeprefix(_NOTE_PREFIX)] = int.from_bytes(note.value, "big")

    def remember(self, number: int, command: int, topic: Topic, effects: Effects) -> None:
        """Take a `Remember`; `number` is one for the read that tells whether it is so."""
        self._commands[number] = command, topic
        if self._remembers:
            self._look_up(number, topic, effects)

    def _look_up(self, number: int, topic: Topic, effects: Effects) -> None:
        """Read back, behind what was kept before, since when a topic is followed."""
        effects.append(Load(number, "", Notes(_NOTE_PREFIX + topic)))

    def on_read_back(self, loaded: Loaded, effects: Effects) -> bool:
        """Take what was read back; false if it is something else."""
        if loaded.number not in self._commands:
            return False
        command, topic = self._commands.pop(loaded.number)
        ever = self._ever.get(topic)
        known = ever is None or _note(topic, ever) in loaded.notes
        if not known:  # whoever subscribes again has it kept again
            del self._ever[topic]
            self._take([note for note in loaded.notes if note.key == _NOTE_PREFIX + topic])
        effects.append(Outcome(command, error="" if known else f"{topic!r}: {NOT_KEPT}"))
        return True

    def subscribe(self, topic: Topic, since: float | None, now: float, effects: Effects) -> bool:
        """Follow a topic (see `inputs.Subscribe`); false if that has to wait for the notes."""
        if self._remembers:
            self._follow(topic, since, now, effects)
        else:
            self._waiting.append((topic, since, now))
        return self._remembers

    def unsubscribe(self, topic: Topic) -> None:
        """Follow a topic no more."""
        self.since.pop(topic, None)
        self.tags.pop(topic_tag(topic), None)
        self._waiting = [each for each in self._waiting if each[0] != topic]

    def _follow(self, topic: Topic, since: float | None, now: float, effects: Effects) -> None:
        asked = int(now * 1e6) if since is None else max(0, int(min(since, now) * 1e6))
        ever = self._ever.get(topic)
        if ever is None or asked < ever:  # which may be ahead: the clock was, and has been set back
            self._ever[topic] = ever = asked
            effects.append(KeepNote(_note(topic, ever)))
        if since is None:
            date = ever
        elif since < float("inf"):
            date = max(0, int(since * 1e6))
        else:
            return
        self.since[topic] = min(date, self.since.get(topic, date))
        self.tags[topic_tag(topic)] = topic


def _note(topic: Topic, since: int) -> Note:
    return Note(_NOTE_PREFIX + topic, since.to_bytes(8, "big"))
