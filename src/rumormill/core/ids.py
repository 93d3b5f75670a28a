"""Names on the network: peers, topics, messages.

A peer id is opaque bytes everywhere: the libp2p peer id on a real network, four bytes in the
simulator. Protocols compare, store and send ids; what an id is made of is never their business.
"""

from typing import TypeAlias

PeerId: TypeAlias = bytes
MessageId: TypeAlias = bytes
Topic: TypeAlias = str
