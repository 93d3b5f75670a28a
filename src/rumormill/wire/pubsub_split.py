"""Cutting an RPC that is too long for the stream into several that are not.

The rule: every item comes out exactly once. It is in one of the parts, or, if it alone is longer
than a part may be, in the list of what cannot be sent. An item is a subscription, a message, a
GRAFT, a PRUNE, or one message id of an IHAVE, IWANT or IDONTWANT: long lists of ids are cut too.

Items keep the order in which a receiver acts on them (subscriptions, messages, then control, in the
order of the field numbers), so that acting on all parts in turn is acting on the whole. A control
part that fits into one RPC is not cut, even if it does not fit behind the messages.

Sizes are computed as items are added and never by encoding, so the work is linear in the RPC.
"""

from collections.abc import Callable
from typing import TypeVar

from rumormill.core.ids import MessageId, Topic
from rumormill.wire.protobuf import field_size
from rumormill.wire.pubsub import (
    Control,
    IHave,
    Message,
    Prune,
    Rpc,
    SubOpts,
    control_size,
    graft_size,
    prune_size,
    rpc_size,
    subscription_size,
)

ItemT = TypeVar("ItemT")


def split_rpc(rpc: Rpc, max_bytes: int) -> tuple[list[Rpc], list[Rpc]]:
    """Cut `rpc` into parts of at most `max_bytes`; return them and what fits into no part.

    Each RPC of the second list holds one item that is too long; the caller counts it as dropped.
    """
    size = rpc_size(rpc)
    if size <= max_bytes:
        return ([rpc] if size else []), []
    packer = _Packer(max_bytes)
    for sub in rpc.subscriptions:
        packer.add(packer.subscriptions, sub, plain=subscription_size(sub))
    for message in rpc.publish:
        packer.add(packer.publish, message, plain=field_size(message.size))
    if rpc.control is not None:
        packer.add_control(rpc.control)
    packer.close_part()
    return packer.parts, packer.oversized


class _Packer:
    """Fills one part after the other.

    `plain` counts the bytes of the open part outside its control part and `control` those inside,
    without the control part's own tag and length.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.parts: list[Rpc] = []
        self.oversized: list[Rpc] = []
        self.plain = self.control = 0
        self.subscriptions: list[SubOpts] = []
        self.publish: list[Message] = []
        self.ihave: list[IHave] = []
        self.iwant: list[MessageId] = []
        self.graft: list[Topic] = []
        self.prune: list[Prune] = []
        self.idontwant: list[MessageId] = []

    def fits(self, plain: int, control: int) -> bool:
        """Whether a part of these sizes is short enough."""
        return plain + (field_size(control) if control else 0) <= self.max_bytes

    def close_part(self) -> None:
        """End the open part, if there is anything in it, and start another."""
        if self.plain or self.control:
            fits = self.fits(self.plain, self.control)
            (self.parts if fits else self.oversized).append(self._take())

    def _take(self) -> Rpc:
        control = None
        if self.control:
            control = Control(
                tuple(self.ihave),
                tuple(self.iwant),
                tuple(self.graft),
                tuple(self.prune),
                tuple(self.idontwant),
            )
        rpc = Rpc(tuple(self.subscriptions), tuple(self.publish), control)
        self.plain = self.control = 0
        for items in (
            self.subscriptions,
            self.publish,
            self.ihave,
            self.iwant,
            self.graft,
            self.prune,
            self.idontwant,
        ):
            items.clear()
        return rpc

    def add(self, items: list[ItemT], item: ItemT, *, plain: int = 0, control: int = 0) -> None:
        """Put an item of the given size into the list `items` of this or the next part."""
        if not self.fits(self.plain + plain, self.control + control):
            # An item that is too long becomes a part of its own, which the next item closes.
            self.close_part()
        items.append(item)
        self.plain += plain
        self.control += control

    def add_control(self, control: Control) -> None:
        """Put a control part into this and the next parts."""
        size = control_size(control)
        if not self.fits(self.plain, size) and self.fits(0, size):
            self.close_part()
        for ihave in control.ihave:
            self._add_ihave(ihave)
        self._add_ids(control.iwant, 0, self.iwant.extend)
        for topic in control.graft:
            self.add(self.graft, topic, control=graft_size(topic))
        for prune in control.prune:
            self.add(self.prune, prune, control=prune_size(prune))
        self._add_ids(control.idontwant, 0, self.idontwant.extend)

    def _add_ihave(self, ihave: IHave) -> None:
        topic = ihave.topic
        overhead = field_size(len(topic.encode()))
        if not ihave.message_ids:
            self.add(self.ihave, ihave, control=field_size(overhead))
            return
        self._add_ids(ihave.message_ids, overhead, lambda ids: self.ihave.append(IHave(topic, ids)))

    def _add_ids(
        self,
        message_ids: tuple[MessageId, ...],
        overhead: int,
        put: Callable[[tuple[MessageId, ...]], None],
    ) -> None:
        """Cut a list of ids; `overhead` is what each piece takes besides its ids."""
        begin, size = 0, overhead
        for index, message_id in enumerate(message_ids):
            id_size = field_size(len(message_id))
            if not self.fits(self.plain, self.control + field_size(size + id_size)):
                if index > begin:
                    put(message_ids[begin:index])
                    self.control += field_size(size)
                self.close_part()
                begin, size = index, overhead
            size += id_size
        if begin < len(message_ids):
            put(message_ids[begin:])
            self.control += field_size(size)
