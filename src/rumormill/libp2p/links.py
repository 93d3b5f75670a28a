"""The links of this machine: its own IPv4 addresses, each with the network around it.

Linux tells them by `ioctl`; elsewhere Python does not learn of them, and there are none.
"""

import fcntl
import socket
import struct
import sys
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface
from typing import Final

_MAX_LINKS: Final = 16
_GET_FLAGS, _GET_ADDRESS, _GET_MASK = 0x8913, 0x8915, 0x891B
_UP, _LOOPBACK, _MULTICAST = 0x1, 0x8, 0x1000
"""Numbers of Linux, which Python does not name."""


def links() -> list[IPv4Interface]:
    """The addresses of this machine with their networks, where others may be heard."""
    found: dict[IPv4Interface, None] = {}
    if sys.platform == "linux":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:

            def told(name: str, what: int) -> bytes:
                return fcntl.ioctl(asking, what, name.encode().ljust(256, b"\0"))

            for _, name in socket.if_nameindex():
                with suppress(OSError):  # one without an address, or gone meanwhile
                    (flags,) = struct.unpack_from("=H", told(name, _GET_FLAGS), 16)
                    if flags & _UP and flags & _MULTICAST and not flags & _LOOPBACK:
                        address, mask = (
                            IPv4Address(told(name, what)[20:24])
                            for what in (_GET_ADDRESS, _GET_MASK)
                        )
                        found[IPv4Interface(f"{address}/{mask}")] = None
    return list(found)[:_MAX_LINKS]
