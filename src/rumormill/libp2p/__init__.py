"""libp2p's connection: pure machines for the bytes, and the asyncio that drives them.

multistream, noise, yamux, identify, ping and signed records are machines: bytes in, bytes and
events out. `connection`, `stream`, `swarm` and their like own sockets, timers and limits, and know
nothing of the protocols that run over them.
"""
