"""What a publisher gets back: proof that the event is kept, and word of how far it went."""

import msgspec

from rumormill.core.ids import MessageId, Topic


class Receipt(msgspec.Struct, frozen=True):
    """An event was published.

    It is in this node's log at `offset`, and on disk there since `durable_at`, which is None when
    the node was started with a durability that does not wait for the disk. `peers` says to how
    many peers it was sent at once; when that is none, `note` says why.
    """

    topic: Topic
    id: MessageId
    offset: int
    durable_at: float | None
    peers: int
    note: str = ""
