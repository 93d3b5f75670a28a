"""Settings of a node that are not the protocol's: limits, times, queues."""

from rumormill.libp2p.config import ConnectionConfig


class NodeConfig(ConnectionConfig, frozen=True, kw_only=True):
    """Limits and times of the runtime, those of its connections among them.

    Where no source is named, the value is our choice.
    """

    queue_messages: int = 8192
    """RPCs that wait for one peer. At go's 32, bursts lose messages; at a mebibyte each,
    `queue_bytes` is the limit that counts."""

    queue_bytes: int = 16 << 20
    """Bytes that wait for one peer."""

    slow_peer_after: float = 5.0
    """Seconds after which publishing stops waiting for a peer whose queue does not move."""

    slow_peer_limit: float = 60.0
    """Seconds after which a peer whose queue does not move is disconnected: until then it holds
    up to `queue_bytes`. Twice `keep_alive_timeout`, which finds a peer that is dead; this one
    lives, and answers pings, and does not read."""

    pending_per_peer: int = 256
    """Messages that wait for one peer to be reached: what a protocol says within a few round
    trips, not more."""

    pending_bytes_per_peer: int = 4 << 20
    """Bytes of those: a quarter of what may wait for a peer that is connected."""

    pending_total: int = 8192
    """Messages that wait in all."""

    pending_bytes_total: int = 16 << 20
    """Bytes of those: no more for all peers out of reach than for one that is connected."""

    pending_timeout: float = 20.0
    """Seconds that they wait: for a TCP connection, then for a stream."""

    questions_per_peer: int = 8
    """Questions that are put to one peer at a time, half of `max_streams_per_protocol`; the
    others wait for their turn."""

    questions_open: int = 4096
    """Questions of our own that wait for an answer or for their turn."""

    questions_served: int = 1024
    """Questions of peers that wait for our answer."""

    answer_timeout: float = 30.0
    """Seconds after which a question that a peer has ended is not answered any more."""

    max_commands: int = 1024
    """Commands of the application that wait for their outcome."""

    stream_retry_first: float = 1.0
    """Seconds before a lost RPC stream is opened again while its connection lives."""

    stream_retry_longest: float = 60.0
    """The delay doubles up to this."""

    trace_interval: float = 1.0
    """Seconds after which observers are shown what was recorded: what a kill can take from a trace
    that is written to a file. Short intervals cost a wake-up each."""
