"""The asyncio runtime: real sockets, real time, and the same protocol machines as the simulator.

One event loop owns all state of a node. Bytes come in through `connection`, which drives the pure
machines of `wire`; RPCs go through `channel` to the protocol's machine in `driver`; events go
through `desk` into the store and from there to subscribers. No task is spawned per message.
"""
