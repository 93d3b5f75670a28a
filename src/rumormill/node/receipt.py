"""What a publisher gets back: proof that the event is kept, and word of how far it went."""

import msgspec

from rumormill.core.ids import MessageId, Topic


class Receipt(msgspec.Struct, frozen=True):
    """An event was published.

    It is in this node's log at `offset` and safe there since `durable_at`, in the sense of the
    node's durability (`durable` is false when the node keeps its log in memory). `peers` says to how
    many peers it was sent at once; when that is none, `note` says why.
    """

    topic: Topic
    id: MessageId
    offset: int
    durable: bool
    durable_at: float
    peers: int
    note: str = ""
