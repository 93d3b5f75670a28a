"""Publications as they come to a peer, and as the application sees them."""

import msgspec

from rumormill.core.event import Event
from rumormill.core.ids import PeerId
from rumormill.protocols.radius.messages import Publication


class Copy(msgspec.Struct):
    """One copy of a publication; `hops` is `floods.DIRECT` for a letter."""

    peer: PeerId
    """Who sent it; ourselves, for what we publish."""
    publication: Publication
    hops: int
    served: bytes = b""


def event_of(publication: Publication) -> Event:
    """The event that a publication is."""
    return Event(
        publication.topic,
        publication.data,
        publication.author,
        publication.id,
        created=publication.time / 1e9,
        proof=publication.proof,
    )
