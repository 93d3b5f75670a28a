"""Settings of a node that are not the protocol's: limits, times, queues."""

from rumormill.core.config import Config, require


class NodeConfig(Config, frozen=True, kw_only=True):
    """Limits and times of the runtime. Where no source is named, the value is our choice."""

    max_connections: int = 512
    """Connections at most, both directions. go's connection manager starts to trim at 192."""

    max_connections_per_address: int = 256
    """Connections from one network address. High, because whole test networks and NATs share
    one address; the scores of a protocol judge such crowds better."""

    max_pending_upgrades: int = 64
    """Connections that have not finished their handshake: what a flood of dials can hold."""

    upgrade_timeout: float = 10.0
    """Seconds for security and multiplexer, so that a silent dialler cannot hold a place."""

    dial_timeout: float = 10.0
    """Seconds for a TCP connection."""

    negotiation_timeout: float = 10.0
    """Seconds for a new stream to agree on its protocol. go: 10."""

    redial_delay_first: float = 0.5
    """Seconds before a lost or failed peer that was asked for is dialled again."""

    redial_delay_longest: float = 60.0
    """The delay doubles up to this."""

    keep_alive_interval: float = 15.0
    """Seconds between pings on a connection."""

    keep_alive_timeout: float = 30.0
    """Seconds without an answer after which a connection is dead."""

    idle_timeout: float = 60.0
    """Seconds after which a connection that no protocol uses is closed."""

    max_streams_per_protocol: int = 16
    """Inbound streams of one kind (identify, ping, ...) on one connection."""

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

    retire_timeout: float = 2.0
    """Seconds that a connection stays open when the peer has made another in its place, so that
    what is on its way arrives."""

    close_timeout: float = 2.0
    """Seconds that a closed connection waits for its peer to read and close too."""

    max_pending_dials: int = 64
    """Dials under way that the network asked for: what a liar's addresses can hold."""

    max_waiting_dials: int = 1024
    """Peers that wait to be dialled because letters or questions for them do."""

    letters_per_peer: int = 256
    """Letters that wait for one peer to be reached: what a protocol says within a few round
    trips, not more."""

    letter_bytes_per_peer: int = 4 << 20
    """Bytes of those: a quarter of what may wait for a peer that is connected."""

    letters_waiting: int = 8192
    """Letters that wait in all."""

    letter_bytes_waiting: int = 16 << 20
    """Bytes of those: no more for all peers out of reach than for one that is connected."""

    letter_timeout: float = 20.0
    """Seconds that letters wait: for a TCP connection, then for a stream."""

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

    shutdown_timeout: float = 5.0
    """Seconds that a graceful shutdown spends on emptying queues."""

    def validate(self) -> None:
        """Refuse values under which nothing can work."""
        for name in self.__struct_fields__:
            require(getattr(self, name) > 0, name, "must be positive")
