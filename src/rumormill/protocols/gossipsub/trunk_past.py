"""The past of a new mesh link: what would have been announced over it, had it been there (trunk).

Who comes back, or whose neighbours do, knows of no source which of the new links is a good one, and
would learn it source by source, from the second message on. So both ends of a new link tell at
once, of each source, what they have heard last and how long ago. That is an announcement with a
delay that is known: the receiver counts back to the moment in which it would have come. Ages need
no common clock, and of two that tell of the same message, the one whose announcement would have
come first is the better parent, as with announcements.

The rule: of a source that is not known here, the earliest is believed and made the parent, and what
is announced and does not come is asked for, as always. Of one that is known, nobody is believed:
whoever would have been earlier than the message itself may send the next one too, and the race
between that and the parent's decides.
"""

from itertools import islice
from typing import Final

from rumormill.core.effects import Effects
from rumormill.core.ids import PeerId, Topic
from rumormill.protocols.gossipsub.sources import BACKUPS, Source, Sources
from rumormill.protocols.gossipsub.trunk_missing import Letters
from rumormill.protocols.pubsub.trunk_part import PAST_MAX, TAG_BYTES, Past, tag_of

AHEAD: Final = 0.01
"""Seconds by which an announcement would have been ahead of a message, to count: our choice, some
jitter."""
BETTER: Final = 0.002
"""Seconds by which it would have been ahead of another announcement: our choice, what two RPCs of
one moment may be apart."""
NEWER: Final = 1.0
"""Seconds after which what was heard later is another message, and not one that is on its way: our
choice, a link that lacks it is no good one."""


def past_of(sources: Sources, topic: Topic, now: float) -> Past | None:
    """What to tell a new link of a topic: the sources heard last."""
    newest = reversed(sources.by_topic.get(topic, {}).values())
    heard = list(islice((source for source in newest if source.mark), PAST_MAX))
    if not heard:
        return None
    names = tuple([source.tag + source.mark for source in heard])
    return Past(topic, names, tuple([now - source.at for source in heard]))


def recall(
    sources: Sources, own: PeerId, peer: PeerId, past: Past, now: float, effects: Effects
) -> None:
    """Take in what a new link tells."""
    letters = Letters()
    own_tag = tag_of(past.topic, own)
    for name, age in zip(past.names, past.ages, strict=True):
        tag, at = name[:TAG_BYTES], now - age
        source = sources.by_tag.get(tag)
        if tag == own_tag:
            continue  # of an earlier life
        if source is None:
            if sources.foretell(past.topic, name, at, peer):
                letters.unchokes.setdefault(peer, []).append(tag)
        elif source.topic == past.topic and peer != source.parent:
            if not source.author:
                _compare(source, peer, name[TAG_BYTES:], at, now, letters)
            elif source.mark == name[TAG_BYTES:] and at + AHEAD < source.at:
                source.at = at  # who comes next has to be earlier than this
                _open(source, peer, letters)
    letters.send(effects)


def _compare(
    source: Source, peer: PeerId, mark: bytes, at: float, now: float, letters: Letters
) -> None:
    """Two neighbours have told of a source that is not known here: choose one, and keep the other
    in reserve."""
    same = mark == source.mark
    if not (at + BETTER < source.at if same else at > source.at + NEWER):
        if len(source.backups) < BACKUPS and peer not in source.backups:
            source.backups += (peer,)
        return
    if source.parent:
        source.choked[source.parent] = now
        letters.chokes.setdefault(source.parent, []).append(source.tag)
        others = [each for each in source.backups if each != peer]
        source.backups = (source.parent, *others)[:BACKUPS]
    source.parent = peer
    source.hear(mark, at)
    _open(source, peer, letters)


def _open(source: Source, peer: PeerId, letters: Letters) -> None:
    source.choked.pop(peer, None)
    letters.unchokes.setdefault(peer, []).append(source.tag)
