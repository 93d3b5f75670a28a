"""Filling RPCs: small messages share one, and one that is too long is cut into several.

Small messages that go to the same peers share RPCs, up to a size, because an RPC costs both sides
about as much as a message in it; those that came in one RPC are passed on in one. Sent one after
the other, the first RPC of a batch would go to every peer before the second goes to any, and the
last would wait for the upload of all others. So the copies are interleaved: every RPC goes to one
peer before any goes to a second. The peers then pass the messages on to each other while we are
still sending.

Too long means more bytes than the caller allows, or more bytes, control or items than
`SENT_LIMITS`, which is what receivers of every implementation accept. The rule of cutting: every
item comes out exactly once. It is in one of the parts, or, if it alone is longer than the caller
allows, in the list of what cannot be sent. An item is
a subscription, a message, a GRAFT, a PRUNE, or one message id of an IHAVE, IWANT or IDONTWANT: long
lists of ids are cut too. Items keep the order in which a receiver acts on them (subscriptions,
messages, then control, in the order of the field numbers), so that acting on all parts in turn is
acting on the whole. A control part that fits into one RPC is not cut, even if it does not fit
behind the messages. Sizes are computed as items are added and never by encoding, so the work is
linear in the RPC.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeGuard, TypeVar

import msgspec

from rumormill.core.effects import Effects, Published, Send, SendAll
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.protocols.pubsub.config import SENT_LIMITS
from rumormill.protocols.pubsub.messages import (
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
from rumormill.wire.protobuf import field_size

Item = TypeVar("Item")

SHARED_RPC_BYTES: Final = 16 << 10
"""Our choice: the most that messages which share an RPC take together. It is a quarter of what
rust-libp2p reads in one RPC by default, and delays the first of them by 1.3 ms at 100 Mbit/s."""

_PART_MESSAGES: Final = 64
"""Our choice: what a runtime does at a time, some 5 ms for their signatures."""

HEEDED_UNWANTED: Final = 10
"""Ids that others heed in one IDONTWANT (go, GossipSubMaxIDontWantLength)."""


def round_robin(queues: Iterable[Sequence[Item]]) -> list[Item]:
    """Take one item of each queue in turn until all are empty."""
    rest = [queue for queue in queues if queue]
    taken: list[Item] = []
    turn = 0
    while rest:
        taken += [queue[turn] for queue in rest]
        turn += 1
        rest = [queue for queue in rest if len(queue) > turn]
    return taken


class _Shared:
    """Messages for the same peers, on their way into one RPC."""

    __slots__ = ("cause", "messages", "peers", "size")

    def __init__(self, peers: tuple[PeerId, ...], cause: str) -> None:
        self.peers, self.cause = peers, cause
        self.messages: list[Message] = []
        self.size = 0

    def rpc(self) -> Rpc:
        """Return the RPC."""
        messages = self.messages
        if len(messages) == 1 and not self.cause:
            return messages[0].alone()
        return Rpc((), tuple(messages), cause=self.cause)


class _Copies:
    """Copies of messages, joined as far as they go to the same peers for the same cause.

    Those of an author's own messages go to its mesh and, for another cause, to all others, in turn.
    """

    def __init__(self, max_rpc: int) -> None:
        self.all: list[_Shared] = []
        self._limit = min(SHARED_RPC_BYTES, max_rpc)
        self._open: dict[tuple[tuple[PeerId, ...], str], _Shared] = {}

    def add(self, peers: tuple[PeerId, ...], rpc: Rpc) -> None:
        """Put a copy of one message into an RPC; no peer gets messages in another order."""
        key, message = (peers, rpc.cause), rpc.publish[0]
        size = (message.cached_meta or message.meta).size
        shared = self._open.get(key)
        if shared is None or shared.size + size > self._limit:
            if shared is None and not all(set(peers).isdisjoint(each) for each, _ in self._open):
                self._open.clear()
            shared = self._open[key] = _Shared(peers, rpc.cause)
            self.all.append(shared)
        shared.messages.append(message)
        shared.size += size


def interleaved(batch: Effects, max_rpc: int) -> Effects:
    """Put the effects of publishing single messages in order, their copies in turn.

    No RPC that messages share is longer than `max_rpc`. What is not a copy of a message (what we
    keep and deliver ourselves, IDONTWANT) comes before all copies, the receipts after them.
    """
    first: Effects = []
    copies = _Copies(max_rpc)
    singles: list[Send] = []
    receipts: Effects = []
    for effect in batch:
        if type(effect) is Published:
            receipts.append(effect)
        elif type(effect) is SendAll and _is_one_message(effect.message):
            copies.add(effect.peers, effect.message)
        elif type(effect) is Send and _carries_data(effect.message):
            singles.append(effect)
        else:
            first.append(effect)
    share_rpcs(first, max_rpc)
    return first + _in_turn(copies.all, singles) + receipts


def share_rpcs(effects: Effects, max_rpc: int) -> None:
    """Join what is sent on of messages that came together.

    Whoever gets several of them gets them in one RPC, and whoever is told that we want them no more
    (IDONTWANT) is told of as many at once as others heed. That goes before all copies.
    """
    if [*map(type, effects)].count(SendAll) < 2:
        return
    kept: Effects = []
    unwanted: dict[tuple[PeerId, ...], list[MessageId]] = {}
    copies = _Copies(max_rpc)
    for effect in effects:
        if type(effect) is not SendAll:
            kept.append(effect)
            continue
        rpc: Rpc = effect.message  # type: ignore[assignment]
        control = rpc.control
        if control is None and len(rpc.publish) == 1:
            copies.add(effect.peers, rpc)
        elif control is not None and control.idontwant:
            unwanted.setdefault(effect.peers, []).extend(control.idontwant)
        else:
            kept.append(effect)
    for peers, ids in unwanted.items():
        for at in range(0, len(ids), HEEDED_UNWANTED):
            control = Control(idontwant=tuple(ids[at : at + HEEDED_UNWANTED]))
            kept.append(SendAll(peers, Rpc(control=control)))
    effects[:] = kept + [SendAll(each.peers, each.rpc()) for each in copies.all]


def _in_turn(copies: Sequence[_Shared], singles: Sequence[Send]) -> Effects:
    if len(copies) == 1 and not singles:
        return [SendAll(copies[0].peers, copies[0].rpc())]
    queues: list[list[Send]] = [[single] for single in singles]
    for copy in copies:
        rpc = copy.rpc()
        queues.append([Send(peer, rpc) for peer in copy.peers])
    return list(round_robin(queues))


def _is_one_message(rpc: object) -> TypeGuard[Rpc]:
    return type(rpc) is Rpc and len(rpc.publish) == 1 and rpc.control is None


def _carries_data(rpc: object) -> TypeGuard[Rpc]:
    return isinstance(rpc, Rpc) and bool(rpc.publish)


_IHAVES_MAX = SENT_LIMITS.id_lists - 2
"""One IWANT and one IDONTWANT are lists too."""


def parts_of(rpc: Rpc) -> Sequence[Rpc]:
    """An RPC with many messages as several with fewer, which mean the same one after the other."""
    publish = rpc.publish
    if len(publish) <= _PART_MESSAGES:
        return (rpc,)
    parts = [
        Rpc(publish=publish[start : start + _PART_MESSAGES], cause=rpc.cause)
        for start in range(0, len(publish), _PART_MESSAGES)
    ]
    parts[0].subscriptions, parts[-1].control = rpc.subscriptions, rpc.control
    return parts


def fits(rpc: Rpc, size: int, max_bytes: int) -> bool:
    """Whether an RPC of a size need not be cut."""
    limits, control = SENT_LIMITS, rpc.control
    if size > min(limits.rpc_bytes, max_bytes) and (
        size > max_bytes or control is not None or len(rpc.publish) != 1 or rpc.subscriptions
    ):
        return False
    if len(rpc.subscriptions) > limits.subscriptions or len(rpc.publish) > limits.messages:
        return False
    if size > limits.control_bytes:
        said = sum([subscription_size(sub) for sub in rpc.subscriptions])
        if said + (0 if control is None else control_size(control)) > limits.control_bytes:
            return False
    return control is None or (
        len(control.ihave) <= _IHAVES_MAX
        and sum([len(ihave.message_ids) for ihave in control.ihave]) <= limits.ihave_ids
        and len(control.iwant) <= limits.iwant_ids
        and len(control.graft) <= limits.grafts
        and len(control.prune) <= limits.prunes
        and len(control.idontwant) <= limits.idontwant_ids
    )


def split_rpc(rpc: Rpc, max_bytes: int) -> tuple[list[Rpc], list[Rpc]]:
    """Cut `rpc` into parts of at most `max_bytes`; return them and what fits into no part.

    Each RPC of the second list holds one item that is too long; the caller counts it as dropped.
    """
    size = rpc_size(rpc)
    if fits(rpc, size, max_bytes):
        return ([rpc] if size else []), []
    limits = SENT_LIMITS
    packer = _Packer(max_bytes, rpc.cause)
    for sub in rpc.subscriptions:
        packer.add_subscription(sub)
    for message in rpc.publish:
        packer.add("publish", message, limits.messages, plain=field_size(message.size))
    if rpc.control is not None:
        packer.add_control(rpc.control)
    packer.close_part()
    return packer.parts, packer.oversized


class _Part(msgspec.Struct):
    """A part that is being filled.

    `plain` counts its bytes outside its control part, `said` those of them that are subscriptions,
    and `control` those inside, without the control part's own tag and length.
    """

    subscriptions: list[SubOpts] = []
    publish: list[Message] = []
    ihave: list[IHave] = []
    iwant: list[MessageId] = []
    graft: list[Topic] = []
    prune: list[Prune] = []
    idontwant: list[MessageId] = []
    plain: int = 0
    said: int = 0
    control: int = 0

    def rpc(self, cause: str) -> Rpc:
        control = None
        if self.control:
            ids = tuple(self.iwant), tuple(self.idontwant)
            links = tuple(self.graft), tuple(self.prune)
            control = Control(tuple(self.ihave), ids[0], *links, ids[1])
        subscriptions, publish = tuple(self.subscriptions), tuple(self.publish)
        return Rpc(subscriptions, publish, control, cause=cause if publish else "")


class _Packer:
    """Fills one part after the other."""

    def __init__(self, max_bytes: int, cause: str) -> None:
        self.max_bytes, self.cause = max_bytes, cause
        self.parts: list[Rpc] = []
        self.oversized: list[Rpc] = []
        self.open = _Part()

    def fits(self, plain: int, control: int) -> bool:
        """Whether a part of these sizes is short enough."""
        limit = min(self.max_bytes, SENT_LIMITS.rpc_bytes)
        whole = plain + (field_size(control) if control else 0)
        return whole <= limit and self.open.said + control <= SENT_LIMITS.control_bytes

    def close_part(self) -> None:
        """End the open part, if there is anything in it, and start another."""
        part = self.open
        if part.plain or part.control:
            size = part.plain + (field_size(part.control) if part.control else 0)
            (self.parts if size <= self.max_bytes else self.oversized).append(part.rpc(self.cause))
            self.open = _Part()

    def add(self, kind: str, item: object, most: int, *, plain: int = 0, control: int = 0) -> None:
        """Put an item of the given size into the list `kind` of this or the next part."""
        part = self.open
        full = len(getattr(part, kind)) >= most
        if full or not self.fits(part.plain + plain, part.control + control):
            # An item that is too long becomes a part of its own, which the next item closes.
            self.close_part()
            part = self.open
        getattr(part, kind).append(item)
        part.plain += plain
        part.control += control

    def add_subscription(self, sub: SubOpts) -> None:
        """Put a subscription into this or the next part."""
        size = subscription_size(sub)
        if self.open.said + size > SENT_LIMITS.control_bytes:
            self.close_part()
        self.add("subscriptions", sub, SENT_LIMITS.subscriptions, plain=size)
        self.open.said += size

    def add_control(self, control: Control) -> None:
        """Put a control part into this and the next parts."""
        limits, size = SENT_LIMITS, control_size(control)
        if not self.fits(self.open.plain, size) and self.fits(0, size):
            self.close_part()
        for ihave in control.ihave:
            self._add_ihave(ihave)
        self._add_ids("iwant", control.iwant, limits.iwant_ids)
        for topic in control.graft:
            self.add("graft", topic, limits.grafts, control=graft_size(topic))
        for prune in control.prune:
            self.add("prune", prune, limits.prunes, control=prune_size(prune))
        self._add_ids("idontwant", control.idontwant, limits.idontwant_ids)

    def _add_ihave(self, ihave: IHave) -> None:
        if not ihave.message_ids:
            overhead = field_size(len(ihave.topic.encode()))
            self.add("ihave", ihave, _IHAVES_MAX, control=field_size(overhead))
            return
        if len(self.open.ihave) >= _IHAVES_MAX:
            self.close_part()
        most = SENT_LIMITS.ihave_ids
        room = most - sum([len(other.message_ids) for other in self.open.ihave])
        self._add_ids("ihave", ihave.message_ids, most, room, ihave.topic)

    def _add_ids(
        self,
        kind: str,
        message_ids: tuple[MessageId, ...],
        most: int,
        room: int | None = None,
        topic: Topic = "",
    ) -> None:
        """Cut a list of ids; each piece of an IHAVE names its topic besides.

        A part holds at most `most` such ids, and the open part can take `room` more.
        """
        overhead = field_size(len(topic.encode())) if kind == "ihave" else 0
        begin, size = 0, overhead
        left = most if room is None else room

        def put(end: int) -> None:
            ids = message_ids[begin:end]
            getattr(self.open, kind).extend((IHave(topic, ids),) if kind == "ihave" else ids)
            self.open.control += field_size(size)

        for index, message_id in enumerate(message_ids):
            id_size = field_size(len(message_id))
            full = index - begin >= left
            control = self.open.control + field_size(size + id_size)
            if full or not self.fits(self.open.plain, control):
                if index > begin:
                    put(index)
                self.close_part()
                begin, size, left = index, overhead, most
            size += id_size
        if begin < len(message_ids):
            put(len(message_ids))
