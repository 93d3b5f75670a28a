"""How large anything in a message of this protocol may be: the same for all peers.

A peer's settings may be narrower in what it sends; what it must be able to read is fixed here, so
that two peers with different settings still understand each other.
"""

from typing import Final

MAX_MESSAGE: Final = 1 << 20
"""Bytes of one message, as for the other protocols (go's pub/sub: 1 MiB)."""

MAX_DATA: Final = 1 << 19
"""Bytes of data in one publication. Our choice: half a message, so that it fits one together with
its envelope and whatever else the message has to say."""

MAX_TOPIC: Final = 1024
"""Bytes of a topic's name, as for the other protocols."""

MAX_PEER: Final = 64
"""Bytes of a peer id. libp2p's have 34 to 42; the simulator's have 4."""

MAX_ADDRESSES: Final = 8
"""Addresses of one peer. Our choice: two or three interfaces with both versions of IP."""

MAX_ADDRESS: Final = 256
"""Bytes of one binary multiaddr. A relayed address with two peer ids has about 120."""

MAX_NODES: Final = 1024
"""Nodes, and prefixes, in one message. Our choice: some 80 kB, and the work of 10 ms."""

MAX_PUBLICATIONS: Final = 1024
"""Publications in one message. Our choice: checking their signatures takes some 80 ms."""

MAX_SIGNATURE: Final = 512
"""RSA with 4096 bits, the longest that libp2p knows."""

MAX_KEY: Final = 1024
"""An RSA public key of 4096 bits with its framing has about 550."""
