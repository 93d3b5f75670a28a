"""Settings of the publication protocol (Algorithm 5): sizes of answers, and limits per interval."""

from rumormill.core.config import Config, require
from rumormill.protocols.skipring.limits import MAX_DATA, MAX_MESSAGE, MAX_NODES, MAX_PUBLICATIONS


class PublicationConfig(Config, frozen=True, kw_only=True):
    """Limits of one topic's publications. Where no source is named, the value is our choice."""

    key_bits: int = 256
    """m of the paper, "the constant m": bits of a publication's key. All of SHA-256, because keys
    are also the publications' names, and an author must not be able to make two with one name."""

    flooding: bool = True
    """Whether new publications are sent along all edges at once (section 4.3). "We do not rely on
    flooding to show convergence": without it they arrive all the same, neighbour by neighbour."""

    max_data: int = MAX_DATA
    """Bytes of data in one publication of ours at most."""

    nodes_per_message: int = 256
    """Nodes, and prefixes, in one message at most: some 10 kB, which is the work of 2 ms. Two
    tries that differ in more places are reconciled in several rounds."""

    publications_per_message: int = 256
    """Publications in one answer at most: checking their signatures takes some 20 ms."""

    answer_bytes: int = 1 << 18
    """Bytes of publications in one answer, after which the rest must be asked for: what passes a
    slow link in a second or two, so that the ring's upkeep does not wait longer behind it."""

    check_again: int = 16
    """Publications that a chain moved from which on another follows it at once, and not at the
    next timeout: a chain finds some hundred differences, and where it found many there are
    probably more."""

    nodes_per_interval: int = 1 << 14
    """Nodes and prefixes of one peer that are looked at between two timeouts. A chain among 100,000
    publications needs at most some 3,000 at each side, so this is several; a peer that goes on for
    ever is refused from here on."""

    bytes_per_interval: int = 1 << 24
    """Bytes of publications that are sent to one peer between two timeouts."""

    forgeries_per_interval: int = 16
    """Wrongly signed publications of one peer that are checked between two timeouts; after them
    nothing more of that peer is checked. Honest peers pass on none."""

    peers_per_interval: int = 4096
    """Peers whose use of these limits is remembered between two timeouts; further ones are
    refused. A subscriber has some tens of neighbours."""

    max_pending_validations: int = 8192
    """Publications that wait for a deferred verdict at most, as for the other protocols."""

    max_refused: int = 4096
    """Publications that the application refused and that are remembered, so that the next offer
    is not judged again."""

    def validate(self) -> None:
        """Refuse impossible values."""
        require(1 <= self.key_bits <= 256, "key_bits", "must be 1 to 256, the bits of the hash")
        for name, most in (
            ("max_data", MAX_DATA),
            ("nodes_per_message", MAX_NODES),
            ("publications_per_message", MAX_PUBLICATIONS),
            ("answer_bytes", MAX_MESSAGE // 2),
        ):
            require(1 <= getattr(self, name) <= most, name, f"must be 1 to {most}")
        require(
            self.nodes_per_message >= 2,
            "nodes_per_message",
            "must be at least 2, or no answer can name both children of a node",
        )
        for name in (
            "check_again",
            "nodes_per_interval",
            "bytes_per_interval",
            "peers_per_interval",
        ):
            require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("forgeries_per_interval", "max_pending_validations", "max_refused"):
            require(getattr(self, name) >= 0, name, "must not be negative")
