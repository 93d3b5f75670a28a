"""Sending a batch of messages so that all of them spread at once.

Sent one after the other, the first message of a batch would go to every peer before the second goes
to any, and the last would wait for the upload of all others. So the copies are interleaved: every
message goes to one peer before any goes to a second. The peers then pass the messages on to each
other while we are still sending.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rumormill.core.effects import Effects, Published, Send, SendAll
from rumormill.wire.pubsub import Rpc

Item = TypeVar("Item")


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


def interleaved(batch: Iterable[Effects]) -> Effects:
    """Join the effects of publishing single messages, their copies in turn.

    What is not a copy of a message (what we keep and deliver ourselves, IDONTWANT) comes before
    all copies, the receipts after them.
    """
    first: Effects = []
    copies: list[Effects] = []
    receipts: Effects = []
    for effects in batch:
        sent: Effects = []
        for effect in effects:
            if isinstance(effect, Published):
                receipts.append(effect)
            elif isinstance(effect, SendAll) and _carries_data(effect):
                sent.extend(Send(peer, effect.message) for peer in effect.peers)
            elif isinstance(effect, Send) and _carries_data(effect):
                sent.append(effect)
            else:
                first.append(effect)
        copies.append(sent)
    return first + round_robin(copies) + receipts


def _carries_data(send: Send | SendAll) -> bool:
    rpc = send.message
    return isinstance(rpc, Rpc) and bool(rpc.publish)
