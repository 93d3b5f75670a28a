"""DCUtR: what two peers say to each other over a relay so that both dial at the same moment.

The one that was reached through the relay says CONNECT with its addresses and hears CONNECT with
the other's, which takes a round trip; then it says SYNC, and waits for half of that. The other
dials when it hears SYNC (libp2p's specification `relay/DCUtR.md`).
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import msgspec

from rumormill.wire.fields import Number, Octets, enumeration
from rumormill.wire.multiaddr import MAX_BYTES as MAX_ADDRESS_BYTES
from rumormill.wire.multiaddr import Endpoint
from rumormill.wire.schema import Schema

DCUTR: Final = "/libp2p/dcutr"
MAX_MESSAGE_BYTES: Final = 4096
"""As the specification has it."""
MAX_DIALLED: Final = 8
"""Our choice: addresses of a peer that are dialled at the same moment."""


class Punch(IntEnum):
    """What a message is."""

    CONNECT = 100
    SYNC = 300


class PunchMessage(msgspec.Struct, frozen=True):
    """A message of either side."""

    type: Punch
    addresses: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """Write it, without a length in front."""
        return _SCHEMA.encode(self)

    @staticmethod
    def decode(data: bytes) -> "PunchMessage":
        """Read it."""
        return _SCHEMA.decode(data)


_SCHEMA: Final = Schema(
    PunchMessage,
    {
        "type": Number(1, read=enumeration(Punch, "bad-type"), missing="no-type"),
        "addresses": Octets(2, MAX_ADDRESS_BYTES, max_count=64),
    },
    max_bytes=MAX_MESSAGE_BYTES,
)


def changes_ports(seen: Iterable[Endpoint]) -> bool:
    """Whether one port is seen as several: by a router that takes another one for everybody, a
    symmetric NAT. Who is told these addresses knows it as well as who is behind it."""
    ends = {(each.host, each.port) for each in seen}
    return len(ends) > len({host for host, _ in ends})
