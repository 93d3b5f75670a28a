"""Reading the control part of a pub/sub RPC, and what every part of an RPC is read with.

The rule is the codec's (`protocols.pubsub.codec`): no object is built that a limit has not allowed.
"""

import struct

from rumormill.core.errors import DecodeError
from rumormill.core.ids import MessageId, Topic
from rumormill.protocols.pubsub.config import PubsubLimits
from rumormill.protocols.pubsub.messages import Control, IHave, PeerInfo, Prune
from rumormill.protocols.pubsub.trunk_part import OFFER_TAG, TrunkPart
from rumormill.wire.keys import MAX_ENCODED_KEY_BYTES
from rumormill.wire.protobuf import MAX_FIELDS, item_fields, next_field, read_varint

MAX_ID_BYTES = MAX_ENCODED_KEY_BYTES + 8
"""Our choice: ids are remembered for some time, so they must not be a way to fill memory. An author
and eight bytes take 50, a hash in text 128; js-libp2p's longest are a key and eight bytes."""

# Tags as they appear on the wire: the field number, then the wire type in the lowest three bits.
FIELD_1, FIELD_2, FIELD_3, FIELD_4, FIELD_5, FIELD_6 = 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x32
_BACKOFF = 0x18


def too_many(what: str, limit: int) -> DecodeError:
    """Why an RPC with more of something than `limit` is refused."""
    return DecodeError(f"too-many-{what}", f"more than {limit} in one RPC")


def topic_too_long(topic: bytes, limits: PubsubLimits) -> DecodeError:
    """Why an RPC with such a topic is refused."""
    detail = f"{len(topic)} bytes, allowed are {limits.topic_bytes}"
    return DecodeError("topic-too-long", detail)


def read_topic(raw: bytes, limits: PubsubLimits) -> Topic:
    """Read a topic's name."""
    if len(raw) > limits.topic_bytes:
        raise topic_too_long(raw, limits)
    return raw.decode()


class ControlReader:
    """Collects the control parts of one RPC, of which there is normally one."""

    def __init__(self, limits: PubsubLimits) -> None:
        self.limits = limits
        self.size = self.lists = 0
        self.ihave: list[IHave] = []
        self.ihave_ids = 0
        self.iwant: list[MessageId] = []
        self.graft: list[Topic] = []
        self.prune: list[Prune] = []
        self.idontwant: list[MessageId] = []
        self.offers_trunk = False
        self.trunk: TrunkPart | None = None

    def read(self, data: bytes, position: int, end: int) -> None:
        """Read one control part."""
        limits = self.limits
        self.size += end - position
        if self.size > limits.control_bytes:
            raise DecodeError("control-too-long", f"more than {limits.control_bytes} bytes")
        while position < end:
            tag, start, position = next_field(data, position, end)
            if tag == FIELD_3:
                if len(self.graft) == limits.grafts:
                    raise too_many("grafts", limits.grafts)
                self.graft.append(_read_graft(data, start, position, limits))
            elif tag == FIELD_4:
                if len(self.prune) == limits.prunes:
                    raise too_many("prunes", limits.prunes)
                self.prune.append(_read_prune(data, start, position, limits))
            else:
                # Unknown fields count as lists, which bounds them too.
                self.lists += 1
                if self.lists > limits.id_lists:
                    raise too_many("lists", limits.id_lists)
                self._read_list(data, start, position, tag)

    def _read_list(self, data: bytes, position: int, end: int, tag: int) -> None:
        limits = self.limits
        if tag == FIELD_1:
            self._read_ihave(data, position, end)
        elif tag == FIELD_2:
            limit = limits.iwant_ids
            _read_ids(data, position, end, self.iwant, id_tag=FIELD_1, limit=limit)
        elif tag == FIELD_5:
            limit = limits.idontwant_ids
            _read_ids(data, position, end, self.idontwant, id_tag=FIELD_1, limit=limit)
        elif tag == FIELD_6:
            for offer, start, stop in item_fields(data, position, end, limits.other_fields):
                if offer == OFFER_TAG:
                    self.offers_trunk = read_varint(data, start, stop)[0] != 0

    def _read_ihave(self, data: bytes, position: int, end: int) -> None:
        limits = self.limits
        ids: list[MessageId] = []
        limit = limits.ihave_ids - self.ihave_ids
        topic = _read_ids(data, position, end, ids, id_tag=FIELD_2, limit=limit)
        self.ihave_ids += len(ids)
        self.ihave.append(IHave(read_topic(topic, limits), tuple(ids)))

    def result(self) -> Control:
        """Everything that was read, as one control part."""
        return Control(
            tuple(self.ihave),
            tuple(self.iwant),
            tuple(self.graft),
            tuple(self.prune),
            tuple(self.idontwant),
            self.offers_trunk,
            self.trunk,
        )


def _read_ids(
    data: bytes, position: int, end: int, ids: list[MessageId], *, id_tag: int, limit: int
) -> bytes:
    """Append a list's ids to `ids`; return the list's topic, which only an IHAVE has."""
    topic = b""
    first = True
    others = 0
    while position < end:
        begin = position
        tag, start, position = next_field(data, begin, end)
        if tag == id_tag:
            if position - start > MAX_ID_BYTES:
                raise DecodeError("id-too-long", f"a message id of {position - start} bytes")
            # Asked once per list: asking at every id would make the walk quadratic.
            count = _alike(data, begin, position, end) if first and start == begin + 2 else 1
            first = False
            if len(ids) + count > limit:
                raise DecodeError("too-many-ids", "more message ids than one RPC may hold")
            if count > 1:
                run = struct.iter_unpack(f"2x{position - start}s", data[begin:end])
                ids += [message_id for (message_id,) in run]
                break
            ids.append(data[start:position])
            continue
        others += 1
        if others > MAX_FIELDS:
            raise DecodeError("too-many-fields", f"more than {MAX_FIELDS} besides ids in a list")
        if tag == FIELD_1:
            topic = data[start:position]
    return topic


def _alike(data: bytes, begin: int, stop: int, end: int) -> int:
    """How many fields there are up to `end`, if all are like the one from `begin` to `stop`.

    The answer is 1 if they are not. Ids in a list are nearly always of one length, and then their
    tags and lengths, taken at equal distances, are two runs of one byte each.
    """
    if stop == end:
        return 1
    stride = stop - begin
    count, rest = divmod(end - begin, stride)
    if rest or data[begin:end:stride].count(data[begin]) != count:
        return 1
    return count if data[begin + 1 : end : stride].count(data[begin + 1]) == count else 1


def _read_graft(data: bytes, position: int, end: int, limits: PubsubLimits) -> Topic:
    topic = b""
    for tag, start, stop in item_fields(data, position, end):
        if tag == FIELD_1:
            topic = data[start:stop]
    return read_topic(topic, limits)


def _read_prune(data: bytes, position: int, end: int, limits: PubsubLimits) -> Prune:
    topic, backoff = b"", 0
    peers: list[PeerInfo] = []
    most = limits.peers_per_prune + MAX_FIELDS
    for tag, start, stop in item_fields(data, position, end, most):
        if tag == FIELD_1:
            topic = data[start:stop]
        elif tag == FIELD_2:
            if len(peers) == limits.peers_per_prune:
                raise DecodeError("too-many-peers", f"more than {len(peers)} in one PRUNE")
            peers.append(_read_peer(data, start, stop, limits))
        elif tag == _BACKOFF:
            backoff = read_varint(data, start, stop)[0]
    return Prune(read_topic(topic, limits), tuple(peers), backoff)


def _read_peer(data: bytes, position: int, end: int, limits: PubsubLimits) -> PeerInfo:
    peer = record = b""
    for tag, start, stop in item_fields(data, position, end):
        if tag == FIELD_1:
            peer = data[start:stop]
        elif tag == FIELD_2:
            if stop - start > limits.record_bytes:
                raise DecodeError("record-too-long", f"more than {limits.record_bytes} bytes")
            record = data[start:stop]
    return PeerInfo(peer, record)
