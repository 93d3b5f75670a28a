"""AutoNAT v2: what is said when a peer asks another to dial it back, and the rules of who does.

Whoever wants to know whether it can be reached at an address names it, with a number that nobody
else knows; the other dials there and says the number (libp2p's specification `autonat-v2.md`).
So a verdict "reached" is proven: the number came.

The rules of the side that dials (`DialBacks`): addresses of the public internet alone, a few a
minute for all and fewer for one; and to dial a host that is not the asker's own costs the asker
more bytes than a handshake has, so that nobody has others dialled for less than it pays itself.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias

import msgspec

from rumormill.core.bounded import remember
from rumormill.core.ids import PeerId
from rumormill.core.rate_limit import RateLimit
from rumormill.wire.fields import Fixed, Nested, Number, Octets, OneOf, enumeration
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.multiaddr import Endpoint, known_addresses
from rumormill.wire.schema import Schema

DIAL_REQUEST: Final = "/libp2p/autonat/2/dial-request"
DIAL_BACK: Final = "/libp2p/autonat/2/dial-back"
MAX_MESSAGE_BYTES: Final = 8192
"""go's limit of a message."""
MAX_ASKED: Final = 16
"""Our choice: addresses in a request that are looked at; go takes 50."""
LEAST_COST, MOST_COST = 30_000, 100_000
"""Bytes that a foreign host costs; of the specification."""
MAX_DATA_BYTES: Final = 4096
"""Of those in one message, as the specification has it."""
_RATE, _BURST = 1.0, 10.0
_PEER_RATE, _PEER_BURST = 0.2, 4.0
"""Dials a second, and at once, for all and for one peer. Our choice; go: 1 and 0.2 a second."""
_MAX_ASKERS: Final = 512
_MAX_OPEN: Final = 8
_UINT32: Final = 2**32 - 1


class Response(IntEnum):
    """Whether a request was dealt with."""

    INTERNAL_ERROR = 0
    REQUEST_REJECTED = 100
    DIAL_REFUSED = 101
    OK = 200


class Dialled(IntEnum):
    """What came of the dial."""

    UNUSED = 0
    DIAL_ERROR = 100
    DIAL_BACK_ERROR = 101
    OK = 200


class DialRequest(msgspec.Struct, frozen=True):
    """Dial one of these addresses, the first that you can, and say the number there."""

    addresses: tuple[bytes, ...]
    nonce: int


class DialResponse(msgspec.Struct, frozen=True):
    """What came of it."""

    status: Response
    index: int = 0
    dialled: Dialled = Dialled.UNUSED


class DataRequest(msgspec.Struct, frozen=True):
    """Before an address is dialled, so many bytes are due."""

    index: int
    size: int


class DataResponse(msgspec.Struct, frozen=True):
    """Some of them."""

    data: bytes


class DialBack(msgspec.Struct, frozen=True):
    """The number, said on a connection that was dialled for it."""

    nonce: int

    def encode(self) -> bytes:
        """Write it, without a length in front."""
        return _BACK.encode(self)

    @staticmethod
    def decode(data: bytes) -> "DialBack":
        """Read it."""
        return _BACK.decode(data)


Body: TypeAlias = DialRequest | DialResponse | DataRequest | DataResponse


class _Message(msgspec.Struct, frozen=True):
    body: Body | None


_MESSAGE: Final = Schema(
    _Message,
    {
        "body": OneOf(
            kinds={
                DialRequest: Nested(
                    1,
                    Schema(
                        DialRequest,
                        {
                            "addresses": Octets(1, MAX_ADDRESS_BYTES, max_count=64),
                            "nonce": Fixed(2),
                        },
                    ),
                ),
                DialResponse: Nested(
                    2,
                    Schema(
                        DialResponse,
                        {
                            "status": Number(1, read=enumeration(Response, "bad-status")),
                            "index": Number(2, most=_UINT32),
                            "dialled": Number(3, read=enumeration(Dialled, "bad-status")),
                        },
                    ),
                ),
                DataRequest: Nested(
                    3,
                    Schema(DataRequest, {"index": Number(1, most=_UINT32), "size": Number(2)}),
                ),
                DataResponse: Nested(
                    4, Schema(DataResponse, {"data": Octets(1, MAX_MESSAGE_BYTES)})
                ),
            },
            missing="no-message",
        )
    },
    max_bytes=MAX_MESSAGE_BYTES,
)
_BACK: Final = Schema(DialBack, {"nonce": Fixed(1)}, max_bytes=64)
HEARD: Final = b""
"""The answer to a number that was heard: a message whose only field is 0."""


def encode_message(body: Body) -> bytes:
    """Write a message, without a length in front."""
    return _MESSAGE.encode(_Message(body))


def decode_message(data: bytes) -> Body:
    """Read a message."""
    body = _MESSAGE.decode(data).body
    assert body is not None
    return body


def is_public(host: str) -> bool:
    """Whether a host is an address of the internet, and neither a name nor of a network of ours."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return address.is_global and not address.is_multicast


class Dial(msgspec.Struct, frozen=True):
    """What is to be dialled, and what it costs first."""

    index: int
    endpoint: Endpoint
    cost: int


class Refused(msgspec.Struct, frozen=True):
    """Why nothing is dialled: what the peer is told, and what is counted."""

    status: Response
    reason: str


class DialBacks:
    """The rules of the side that dials."""

    def __init__(self, public: Callable[[str], bool] = is_public) -> None:
        self._public = public
        self._all = RateLimit(_RATE, _BURST)
        self._askers: dict[PeerId, RateLimit] = {}
        self._open = 0

    def take(
        self, asker: PeerId, host: str, addresses: Sequence[bytes], draw: int, now: float
    ) -> Dial | Refused:
        """Choose the first address that may be dialled for a peer that is seen at a host; `draw`,
        up to 2^32, says how much a foreign one costs. Who gets a dial says when it is `done`."""
        chosen = None
        for index, data in enumerate(addresses[:MAX_ASKED]):
            known = known_addresses([data])[0]
            at = known[0].endpoint if known else None
            if at is not None and not at.relay and self._public(at.host):
                chosen = index, at
                break
        if chosen is None:
            return Refused(Response.DIAL_REFUSED, "autonat-no-public-address")
        limit = self._askers.get(asker) or RateLimit(_PEER_RATE, _PEER_BURST)
        remember(self._askers, asker, limit, _MAX_ASKERS)
        if self._open >= _MAX_OPEN or not (limit.take(now) and self._all.take(now)):
            return Refused(Response.REQUEST_REJECTED, "autonat-too-often")
        self._open += 1
        cost = 0 if chosen[1].host == host else LEAST_COST + draw % (MOST_COST - LEAST_COST)
        return Dial(*chosen, cost)

    def done(self) -> None:
        """A dial is over."""
        self._open -= 1
