"""The asyncio runtime: real sockets, real time, and the same protocol machines as the simulator.

One event loop owns all state of a node. Bytes come in through libp2p's connections, RPCs go through
`channel` to the protocol's machine in `driver`, and events through `journal` into the log and from
there to subscribers. No task is spawned per message.
"""
