"""What a stream of several places has given of a topic: the offsets that its checkpoint keeps.

Each place has its own order, so an offset per place does not say which events were given: one that
came from a place may be yet to come in another. Those that a place lacks are kept beside the
offsets, by fingerprint. Then what a batch gives follows from its two ends and the logs:

    every event in the range of a place that is not among those given before,
    and those that the end has among the given and the start has not.

The first part is the same whichever places are asked, and what only some of them have is in the
second. So a batch that is run again is the same batch, whoever has died or come back meanwhile.

The given ones that places lack are bounded. When there are more, all but the newest batch's go, and
the places that lack them are `behind`: whether an event of theirs was given is asked of the others,
within the range of offsets that is kept for that.
"""

import base64
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec

FINGERPRINT_BYTES: Final = 12
"""Our choice: nobody finds an id with the fingerprint of another's within 2^80 tries or so."""

MAX_GIVEN: Final = 16_384
"""Our choice, of all topics: a checkpoint's entry stays below 300 kB."""

Spans: TypeAlias = dict[int, tuple[int, int]]
"""By place, a range of its offsets."""
Ids: TypeAlias = dict[bytes, tuple[int, bytes]]
"""The events of a place's range: by fingerprint their offset and id."""


def fingerprint(identity: bytes) -> bytes:
    """An event's id, in as few bytes as will do."""
    return blake2b(identity, digest_size=FINGERPRINT_BYTES).digest()


def fingerprints(joined: bytes) -> list[bytes]:
    """What was joined to one piece of bytes."""
    step = FINGERPRINT_BYTES
    return [joined[start : start + step] for start in range(0, len(joined), step)]


class Followed(msgspec.Struct):
    """A topic, as far as a stream has given it."""

    offsets: dict[int, int] = {}
    """By place, the next offset to read."""
    given: dict[bytes, tuple[int, ...]] = {}
    """Events that were given, and the places that have them not yet below their offset."""
    since: dict[int, int] = {}
    """By place, the offset from which on all that was given and is lacking is in `given`."""
    behind: dict[int, Spans] = {}
    """By place, where others have what was given before, and it may be yet to come here."""

    def joined(self, places: Iterable[int]) -> "Followed":
        """With places that were not there before: all that was given may be yet to come there."""
        new = [number for number in places if number not in self.offsets]
        owed = {number: (0, offset) for number, offset in self.offsets.items() if offset}
        return Followed(
            self.offsets | dict.fromkeys(new, 0),
            self.given,
            self.since | dict.fromkeys(new, 0),
            self.behind | (dict.fromkeys(new, owed) if owed else {}),
        )

    def fresh(self, ranges: Mapping[int, Ids], listed: Iterable[bytes] = ()) -> dict[bytes, None]:
        """What a batch gives that begins here and reads these ranges; `listed` is what its end has
        among the given."""
        sure = (own for number, own in ranges.items() if number not in self.behind)
        found = dict.fromkeys([each for own in sure for each in own if each not in self.given])
        return found | dict.fromkeys([each for each in listed if each not in self.given])

    def doubtful(self, ranges: Mapping[int, Ids]) -> dict[int, list[bytes]]:
        """By place that is behind, what others must be asked about."""
        known = {*self.given, *self.fresh(ranges)}
        return {
            number: [each for each in own if each not in known]
            for number, own in ranges.items()
            if number in self.behind
        }

    def after(
        self, offsets: Mapping[int, int], ranges: Mapping[int, Ids], told: Iterable[bytes]
    ) -> "Followed":
        """Behind a batch up to these offsets; `told` is what only places that are behind have in
        their ranges, and nobody has given."""
        told = dict.fromkeys(told)
        given = {}
        for each, lacking in self.given.items():
            left = _lacking(each, lacking, ranges)
            if left:
                given[each] = left
        for each in self.fresh(ranges) | told:
            left = _lacking(each, offsets, ranges)
            if left or each in told:
                given[each] = left
        since = self.since if given else dict(offsets)
        return Followed(dict(offsets), given, since, dict(self.behind))

    def newest_only(self, begun: "Followed") -> "Followed":
        """Without the given ones of before a batch; who lacks them is behind."""
        behind = {number: dict(spans) for number, spans in self.behind.items()}
        for number in {
            each for old in self.given if old in begun.given for each in self.given[old]
        }:
            spans = behind.setdefault(number, {})
            for other, stop in begun.offsets.items():
                start, _ = spans.get(other, (begun.since.get(other, 0), 0))
                if other != number and start < stop:
                    spans[other] = start, stop
        given = {each: self.given[each] for each in self.given if each not in begun.given}
        return Followed(self.offsets, given, dict(begun.offsets), behind)


def _lacking(each: bytes, places: Iterable[int], ranges: Mapping[int, Ids]) -> tuple[int, ...]:
    return tuple([number for number in places if each not in ranges.get(number, ())])


def state_as_json(followed: Mapping[str, Followed]) -> dict[str, Any]:
    """As a checkpoint keeps it: numbers of places are text."""
    return {topic: _topic_as_json(followed[topic]) for topic in sorted(followed)}


def _topic_as_json(own: Followed) -> dict[str, Any]:
    groups: dict[str, list[bytes]] = {}
    for each, lacking in own.given.items():
        groups.setdefault(",".join(map(str, lacking)), []).append(each)
    found: dict[str, Any] = _texts(own.offsets)
    found["since"] = _texts(own.since)
    if groups:
        found["given"] = {
            lacking: base64.b64encode(b"".join(some)).decode() for lacking, some in groups.items()
        }
    if own.behind:
        found["behind"] = _texts({number: _texts(own.behind[number]) for number in own.behind})
    return found


def _texts(by_place: Mapping[int, Any]) -> dict[str, Any]:
    return {str(number): by_place[number] for number in sorted(by_place)}


def state_from_json(kept: Mapping[str, Any]) -> dict[str, Followed]:
    """The opposite. What one place wrote is understood when it has become the first of several, and
    what was written when given events were not kept: then all may be yet to come everywhere."""
    return {topic: _topic_from_json(value) for topic, value in kept.items()}


def _topic_from_json(value: Any) -> Followed:
    by_name = value if isinstance(value, Mapping) else {"0": value}
    offsets = {int(name): offset for name, offset in by_name.items() if name.isdigit()}
    if "since" not in by_name:
        found = Followed()
        for number, offset in offsets.items():
            others = {other: (0, stop) for other, stop in offsets.items() if other != number}
            spans = {other: span for other, span in others.items() if span[1]}
            found.offsets[number], found.since[number] = offset, offset
            if spans:
                found.behind[number] = spans
        return found
    given = {
        each: tuple([int(name) for name in lacking.split(",") if name])
        for lacking, joined in by_name.get("given", {}).items()
        for each in fingerprints(base64.b64decode(joined))
    }
    behind = {
        int(number): {int(other): (span[0], span[1]) for other, span in spans.items()}
        for number, spans in by_name.get("behind", {}).items()
    }
    since = {int(name): offset for name, offset in by_name["since"].items()}
    return Followed(offsets, given, since, behind)
