"""The journey of one event, found in the entries of a trace when somebody asks for it.

One row for each thing that happened to it: published, sent, delivered, come again, refused. How
many hops a copy had gone is what can be told from who got it from whom.
"""

from collections.abc import Iterable
from typing import Any, Final

from rumormill.core import trace
from rumormill.core.ids import MessageId, PeerId
from rumormill.dashboard.figures import cut, peer_text
from rumormill.dashboard.source import NotHere
from rumormill.trace.entries import Batch

MAX_HOPS: Final = 2000
"""Rows of one journey; the others are counted."""


def message_id_of(text: str) -> MessageId:
    """The id of an event as a page writes it."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise NotHere("an event is asked for by its id in hexadecimal") from None


def find_journey(
    batches: Iterable[Batch], wanted: MessageId, subscribers: Iterable[PeerId] | None = None
) -> dict[str, Any] | None:
    """What happened to an event; None if the entries do not speak of it.

    `subscribers` are those who should get it, where that is known.
    """
    hops: list[dict[str, Any]] = []
    depth: dict[PeerId, int] = {}
    arrived: dict[PeerId, None] = {}
    topic = ""
    author: PeerId | None = None
    left_out = 0
    for now, peer, payload in _of_event(batches, wanted):
        row: dict[str, Any] = {"t": now, "peer": peer_text(peer)}
        if isinstance(payload, trace.SendRPC):
            row |= {"kind": "send", "to": peer_text(payload.send_to), "hop": depth.get(peer, 0)}
        elif isinstance(payload, trace.PublishMessage):
            topic, author = payload.topic, peer
            depth[peer] = 0
            row |= {"kind": "publish", "hop": 0}
        else:
            assert isinstance(
                payload, trace.DeliverMessage | trace.DuplicateMessage | trace.RejectMessage
            )
            topic = payload.topic
            row |= _received(payload, peer, depth)
            if row["kind"] == "deliver":
                arrived[peer] = None
        if len(hops) < MAX_HOPS:
            hops.append(row)
        else:
            left_out += 1
    if not hops:
        return None
    waiting = [each for each in subscribers or () if each not in arrived]
    found = {
        "id": wanted.hex(),
        "topic": topic,
        "author": None if author is None else peer_text(author),
        "t": hops[0]["t"],
        "hops": hops,
        "left_out": left_out,
        "waiting": [peer_text(each) for each in waiting[:MAX_HOPS]],
    }
    return found if subscribers is None else found | {"complete": not waiting}


def _of_event(batches: Iterable[Batch], wanted: MessageId) -> Iterable[tuple[float, PeerId, Any]]:
    for batch in batches:
        for entry in batch:
            payload: Any = entry[2]
            kind = type(payload)
            if kind is trace.SendRPC:
                if any(each.message_id == wanted for each in payload.meta.messages):
                    yield entry
            elif kind in _SPEAKING and payload.message_id == wanted:
                yield entry


_SPEAKING: Final = frozenset(
    {
        trace.PublishMessage,
        trace.DeliverMessage,
        trace.DuplicateMessage,
        trace.RejectMessage,
    }
)


def _received(
    payload: trace.DeliverMessage | trace.DuplicateMessage | trace.RejectMessage,
    peer: PeerId,
    depth: dict[PeerId, int],
) -> dict[str, Any]:
    giver = payload.received_from
    row: dict[str, Any] = {"from": None if giver == peer else peer_text(giver)}
    if isinstance(payload, trace.DeliverMessage):
        if giver != peer:
            depth.setdefault(peer, depth.get(giver, 0) + 1)
        row |= {"kind": "deliver", "hop": depth.get(peer, 0)}
        return row | ({"via": payload.via} if payload.via else {})
    row["hop"] = depth.get(giver, 0) + 1
    if isinstance(payload, trace.DuplicateMessage):
        return row | {"kind": "duplicate"} | ({"via": payload.cause} if payload.cause else {})
    return row | {"kind": "reject", "via": cut(payload.reason, 80)}
