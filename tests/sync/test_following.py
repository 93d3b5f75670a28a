"""From when on events of a topic are wanted."""

from typing import Any

from rumormill.core.effects import KeepNote, Load, Outcome
from rumormill.core.event import Note
from rumormill.core.inputs import Loaded
from rumormill.sync.following import Following


def test_a_topic_is_followed_from_the_moment_of_its_subscription() -> None:
    """Not from when the log has said what it remembers: what is published meanwhile is wanted."""
    following, effects = Following(7), list[Any]()
    following.begin(effects)
    assert not following.subscribe("news", None, 100.0, effects)
    assert following.on_notes(Loaded(7), effects)
    assert following.since == {"news": 100_000_000}
    (kept,) = [effect.note for effect in effects if isinstance(effect, KeepNote)]
    again = Following(7)
    again.subscribe("news", None, 500.0, [])
    assert again.on_notes(Loaded(7, notes=(Note(kept.key, kept.value),)), [])
    assert again.since == {"news": 100_000_000}, "who comes again wants what it has missed"


def test_who_subscribed_while_its_clock_was_ahead_wants_what_comes_now() -> None:
    """And not what is published from then on, hours later."""
    first, effects = Following(7), list[Any]()
    first.on_notes(Loaded(7), effects)
    first.subscribe("news", None, 7300.0, effects)
    (kept,) = [effect.note for effect in effects if isinstance(effect, KeepNote)]
    again = Following(7)
    again.on_notes(Loaded(7, notes=(kept,)), effects)
    again.subscribe("news", None, 200.0, effects)
    assert again.since == {"news": 200_000_000}
    assert int.from_bytes(effects[-1].note.value, "big") == 200_000_000, "and says so in a note"


def test_who_was_stopped_in_the_midst_of_a_history_still_wants_the_rest() -> None:
    """What was asked for once is remembered, until something earlier is; a later date is not."""
    following, effects = Following(7), list[Any]()
    following.begin(effects)
    following.on_notes(Loaded(7), effects)
    following.subscribe("news", None, 100.0, effects)
    following.subscribe("news", 40.0, 200.0, effects)
    following.subscribe("news", 60.0, 300.0, effects)
    kept = [effect.note for effect in effects if isinstance(effect, KeepNote)]
    assert [int.from_bytes(note.value, "big") for note in kept] == [100_000_000, 40_000_000]
    again = Following(7)
    again.on_notes(Loaded(7, notes=(kept[-1],)), [])
    again.subscribe("news", None, 500.0, [])
    assert again.since == {"news": 40_000_000}
    following.remember(8, 1, "news", effects)
    following.on_read_back(Loaded(8, notes=(kept[0],)), effects)
    assert "could not keep" in effects[-1].error, "the earlier date is not on the disk"


def test_a_command_is_answered_when_it_is_on_the_disk_since_when_a_topic_is_followed() -> None:
    """That is read back behind what was kept: who finds nothing there says that it is not so."""
    following, effects = Following(7), list[Any]()
    following.begin(effects)
    following.subscribe("news", None, 100.0, effects)
    following.remember(8, 1, "news", effects)
    assert [type(effect) for effect in effects] == [Load], "the log has not said what it has"
    following.on_notes(Loaded(7), effects)
    kept, read = effects[1:]
    assert (read.number, read.query.prefix) == (8, kept.note.key)
    assert following.on_read_back(Loaded(8, notes=(kept.note,)), effects)
    following.remember(9, 2, "news", effects)
    assert following.on_read_back(Loaded(9), effects)
    known, unknown = [effect for effect in effects if isinstance(effect, Outcome)]
    assert (known.number, known.error) == (1, "")
    assert (unknown.number, unknown.error.split(":")[0]) == (2, "'news'")
    assert not following.on_read_back(Loaded(10), effects)


def test_what_the_disk_had_no_room_for_is_kept_when_somebody_subscribes_again() -> None:
    """From then on; where an earlier date is on the disk, that one counts as before."""
    following, effects = Following(7), list[Any]()
    following.begin(effects)
    following.on_notes(Loaded(7), effects)
    following.subscribe("news", None, 100.0, effects)
    following.remember(8, 1, "news", effects)
    following.on_read_back(Loaded(8), effects)
    following.subscribe("news", None, 200.0, effects)
    kept = [effect.note for effect in effects if isinstance(effect, KeepNote)]
    assert [int.from_bytes(note.value, "big") for note in kept] == [100_000_000, 200_000_000]
    following.subscribe("news", 40.0, 300.0, effects)
    following.remember(9, 2, "news", effects)
    following.on_read_back(Loaded(9, notes=(kept[1], Note("sync/newspaper", bytes(8)))), effects)
    effects.clear()
    following.subscribe("news", None, 400.0, effects)
    assert effects == [], "since 200 it is followed, and the disk has that"
