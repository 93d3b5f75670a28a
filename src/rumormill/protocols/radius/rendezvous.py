"""Where a publication meets a subscription: who of those who know both serves the subscriber.

`all` is the design's rule: every peer that a publication reaches sends it to every subscriber that
it knows. In a well-connected network most peers know most subscribers, so a subscriber gets nearly
as many letters as there are peers.

`few` leaves out what somebody else is known to have done. Let peer v get a publication from its
neighbour w, and let v know a subscriber s.

- If s's interest had hops left at v, v passed it on to all its neighbours, so w knows s too: w
  has served s, or left it out because somebody before w had served it. v leaves s out.
- If it had none left, w need not know s. Then v serves s, unless s's mark is in the copy: each
  peer marks the subscribers that a neighbour of its could otherwise serve again.
- If s is so near that this copy travels on to it, the flood itself serves s.
- A neighbour that gets the publication itself needs no letter.

Coverage holds: the peers on a copy's way are a chain that begins with the publisher; whoever in the
chain knows s first serves it, or leaves it to a flood that reaches it, since hops are exact; and
everybody after it may rely on that. Some peer that knows s is reached, by the same argument as for
`all`. What the rule relies on is that neighbours have heard of each other's interests: an interest
or a link younger than `settle` seconds is not relied upon. Marks, hops and distances are not
signed: a peer that lies in them can keep later peers from serving, where under `all` it could only
keep silent itself.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from rumormill.core.ids import MessageId, PeerId
from rumormill.protocols.radius.interest_table import Entry
from rumormill.protocols.radius.messages import MARK_BYTES

SPARE_HOPS: Final = 1
"""Hops that a flood must have to spare at a subscriber that is left to it. Our choice: when a link
on the way is replaced the way grows, mostly by one hop."""


def live_subscribers(
    entries: Mapping[PeerId, Entry], author: PeerId, now: float
) -> list[tuple[PeerId, Entry]]:
    """The subscribers of a topic that a publication of `author` concerns."""
    date = now * 1e6
    return [
        (owner, entry)
        for owner, entry in entries.items()
        if entry.interest.expires > date
        and not entry.lost
        and not entry.interest.withdrawn
        and owner != author
    ]


def mark_of(uid: MessageId, subscriber: PeerId) -> bytes:
    """What stands for a served subscriber in one publication's copies."""
    return hashlib.blake2b(uid + subscriber, digest_size=MARK_BYTES).digest()


def few_of(
    subscribers: list[tuple[PeerId, Entry]],
    uid: MessageId,
    served: bytes,
    reached: dict[PeerId, None],
    settled_before: float,
    *,
    hops: int,
    relies: bool,
    max_marks: int,
) -> tuple[list[PeerId], bytes]:
    """Return whom to serve under `few`, and the marks of the copies that are passed on.

    `reached` are peers that have the publication or are about to get it, `hops` how far it travels
    on from here; `relies` says whether somebody before us knew all that we have known for a while
    and could pass on.
    """
    marks = {served[at : at + MARK_BYTES]: None for at in range(0, len(served), MARK_BYTES)}
    chosen: list[PeerId] = []
    for owner, entry in subscribers:
        young = entry.since > settled_before
        known_before = relies and entry.hops > 0 and not young
        flooded = entry.distance + SPARE_HOPS <= hops
        cared_for = known_before or flooded
        if entry.hops > 1 and (flooded or not young):  # our neighbours can tell by themselves
            if not cared_for and owner not in reached:
                chosen.append(owner)
            continue
        if cared_for and len(marks) >= max_marks:
            continue
        mark = mark_of(uid, owner)
        if mark not in marks:
            if not cared_for and owner not in reached:
                chosen.append(owner)
            if len(marks) < max_marks:
                marks[mark] = None
    return chosen, b"".join(marks)[: max_marks * MARK_BYTES]
