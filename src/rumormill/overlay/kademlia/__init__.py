"""Kademlia: who is closest to a key, and a table of values over all peers (docs/kademlia.md).

`Kademlia` is the object that a protocol's machine owns; `KademliaPeer` is a machine with nothing
else in it. The rest are their parts.
"""
