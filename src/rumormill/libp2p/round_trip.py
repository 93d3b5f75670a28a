"""How far away a peer is: what the kernel has measured anyway.

TCP times how soon what was sent is acknowledged. The shortest such time of the last minutes is the
round trip without what waits in queues and without acknowledgements that the other side puts off.
The rule: nothing is sent to find it out. It is known of sockets on Linux, and of circuits through
relays it is not.
"""

import socket
import sys
from typing import Any, Final

_INFO: Final = getattr(socket, "TCP_INFO", None)
_AT: Final = slice(148, 152)
"""Of `tcpi_min_rtt` in `struct tcp_info`, in microseconds (linux/tcp.h, since Linux 4.6)."""
_UNKNOWN: Final = (0, 0xFFFFFFFF)


def round_trip(connected: Any) -> float | None:
    """Seconds to the other end of a socket and back; None where that is not known."""
    if connected is None or _INFO is None or not sys.platform.startswith("linux"):
        return None
    try:
        told = connected.getsockopt(socket.IPPROTO_TCP, _INFO, _AT.stop)
    except (OSError, AttributeError):  # it is not TCP, or is closed
        return None
    found = int.from_bytes(told[_AT], sys.byteorder)
    return None if len(told) < _AT.stop or found in _UNKNOWN else found / 1e6
