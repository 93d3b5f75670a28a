"""What a publisher gets back: proof that the event is kept, and word of how far it went."""

import msgspec

from rumormill.core.ids import MessageId, Topic


class Receipt(msgspec.Struct, frozen=True):
    """An event was published.

    It is in this node's log at `offset`, and on disk there since `durable_at`, which is None when
    the node was started with a durability that does not wait for the disk. `peers` says to how
    many peers it was sent at once; when that is none, `note` says why.

    Where this node may not publish itself, it has asked a peer that may, and the receipt says that
    this peer has published the event, under `id`. `requested` is true then, and `offset` -1: the
    event comes back like any other's, and gets its place in this node's log when it does.
    """

    topic: Topic
    id: MessageId
    offset: int
    durable_at: float | None
    peers: int
    note: str = ""

    @property
    def requested(self) -> bool:
        """Whether another peer has published the event for this node."""
        return self.offset < 0
