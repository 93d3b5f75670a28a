"""From when on events of a topic are wanted."""

from typing import Any

from rumormill.core.effects import KeepNote
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
