"""What the creator of a topic may say about it, where a protocol has a use for it."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from rumormill.core.ids import PeerId, Topic

ANYONE: Final = "anyone"
"""Written instead of a list of publishers: everybody may publish."""
AUTHOR: Final[PeerId] = b""
"""Stands among the publishers for whoever creates the topic."""

Publishers: TypeAlias = tuple[PeerId, ...] | Literal["anyone"]
Linking: TypeAlias = Literal["last-seen", "custom"]
LINKINGS: Final[tuple[Linking, ...]] = ("last-seen", "custom")


class TopicOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a topic shall be. What is left as it is, the protocol decides.

    `allowed_publishers` are exactly those who may publish: the author is one of them only where it
    is named. `request_to_publish` says whether the others may ask an allowed publisher to publish
    for them: all, none, or those that are listed. `linking` says which event an event follows: the
    one that its publisher saw last, or the one that its publisher names, and without a name none.
    `sub_topics` links existing topics under names. `parent` is the topic of which this is a new
    version.
    """

    allowed_publishers: Publishers | None = None
    request_to_publish: bool | tuple[PeerId, ...] | None = None
    linking: Linking | None = None
    sub_topics: Mapping[str, Topic] = {}
    parent: Topic | None = None

    def given(self) -> list[str]:
        """The names of the options that were given."""
        empty = TopicOptions()
        names = self.__struct_fields__
        return [name for name in names if getattr(self, name) != getattr(empty, name)]


NO_OPTIONS: Final = TopicOptions()
