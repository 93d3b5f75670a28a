"""Patterns of topic names: `news/*` is every name one level below `news`, `news/#` all below it.

A slash parts the levels of a name. `*` stands for one whole level, wherever it is; `#` stands for
one level or more, and is the last. The rule: a name with a wildcard is never a topic's own, so that
nobody publishes into a topic that is called `news/*`, and nobody listens to it by mistake. A `*`
beside other characters is refused with them: whoever writes `news*` means something that it would
not do.
"""

import re
from typing import Final

from rumormill.core.errors import LocalError
from rumormill.core.ids import Topic

_ONE: Final = "*"
_REST: Final = "#"


def is_pattern(name: Topic) -> bool:
    """Whether a name has wildcards, rightly or not."""
    if _ONE in name:
        return True
    return _REST in name and _REST in name.split("/")


def check_plain(name: Topic) -> None:
    """Refuse a pattern where one topic is meant."""
    if is_pattern(name):
        raise LocalError(
            f"{name!r} is a pattern of names and not a topic: `subscribe` takes it, everything"
            " else takes one topic's name, without `*` and without the level `#`"
        )


class Pattern:
    """A pattern that was read."""

    def __init__(self, text: str) -> None:
        levels = text.split("/")
        for level in levels:
            if _ONE in level and level != _ONE:
                raise LocalError(f"{text!r}: `*` stands for a whole level, as in news/*")
        if _REST in levels[:-1]:
            raise LocalError(f"{text!r}: `#` stands for all levels below, and so at the end")
        parts = {_ONE: "[^/]*", _REST: ".*"}
        self._match = re.compile(
            "/".join([parts.get(level) or re.escape(level) for level in levels]), re.DOTALL
        ).fullmatch

    def matches(self, topic: Topic) -> bool:
        """Whether a topic is one of those; a name that is a pattern itself never is."""
        return self._match(topic) is not None and not is_pattern(topic)
