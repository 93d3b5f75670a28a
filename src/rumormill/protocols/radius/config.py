"""Radius gossip's parameters, each with the source of its default, and the named presets."""

import math
from typing import Literal

from rumormill.core.config import Config, require
from rumormill.overlay.hyparview.config import HyParViewConfig
from rumormill.overlay.hyparview.messages import MAX_PEER_BYTES
from rumormill.protocols.radius.messages import MARK_BYTES

_ENDLESS = 2**31


class RadiusConfig(Config, frozen=True, kw_only=True):
    """All parameters of a radius gossip peer.

    "Design" is the pseudo-code that this protocol realises; "Lopes and Coquenim" is its one known
    implementation (2018, on Akka), named where the design is silent.
    """

    overlay: Literal["hyparview", "links"] = "hyparview"
    """Whose neighbours messages go to: HyParView's active view (design: GetNeighbors), or every
    connected peer, whoever connected it."""

    serving: Literal["all", "few"] = "few"
    """Who sends a publication to a subscriber: everybody whom both reached (design), or the
    publisher and those who cannot know that somebody before them did, unless the flood does. Our
    choice: `few`, since by the other rule letters grow with the square of the network."""

    network_size: int | None = None
    """How many peers there are. Unset: what HyParView estimates. Design: the size is known."""

    sub_hops: int | None = None
    """Hops that a subscription travels. Unset: ⌈(diameter + 1) / 2⌉, diameter = ln(10 · size).
    Design, with its roundings settled towards more. With `few`: `max_hops`, so that a publisher
    knows everybody; our choice."""

    pub_hops: int | None = None
    """Hops that a publication travels. Unset: as `sub_hops`, but with `few` only the hops that
    coverage needs, where letters to its subscribers cost less."""

    max_hops: int = 32
    """What a peer says of hops is cut to this, and so is the rule above. Our choice: twice the
    diameter of 10^6 peers, so that what took the quickest way, which is seldom the shortest, has
    still enough hops left for the rest."""

    fanout: int = 0
    """Neighbours that a message is passed on to, drawn at random; 0 is all of them. Design: all.
    Lopes and Coquenim: 3. With fewer than all, coverage is likely and not certain."""

    ttl: float = 30.0
    """Seconds that a subscription lasts unless it is renewed. Lopes and Coquenim: 30."""

    renew_left: float = 0.2
    """A subscription is renewed when this part of its `ttl` is left. Design: 20 %."""

    renew_rate: float = 10.0
    """Renewals a second that a peer is to hear of: where more subscriptions are known than that
    allows, they last longer than `ttl`. Our choice: from 300 subscriptions on, so that what they
    cost everybody no longer grows until `max_ttl` is reached, at 6,000."""

    max_ttl: float = 600.0
    """Interests that would last longer than this are refused. Our choice: what a dead subscriber
    can cost is bounded."""

    clean_interval: float = 5.0
    """Seconds between two removals of expired subscriptions (design: CLEAN_FREQUENCY). Our
    choice: a sixth of `ttl`. Expired ones are never served, removed or not."""

    clock_skew: float = 2.0
    """Seconds by which clocks of peers may differ. Our choice: machines with NTP differ by
    milliseconds. Must be less than what `renew_left` leaves of a `ttl`."""

    publication_lifetime: float = 60.0
    """Seconds after which a publication is too old to be accepted, and its id is forgotten
    soon after ("timeout for delivered" in the design). Our choice: many times the way through
    any network that is connected."""

    max_delivered: int = 400_000
    """Ids of publications remembered at most. Our choice: 60 s of 6,000 publications a second."""

    gather: float = 0.1
    """Seconds for which interests wait for others, to be passed on together (design: the pending
    sets); 0 passes on at once. Our choice: subscriptions last for seconds, and a frame of
    many costs little more than a frame of one."""

    greet: bool = True
    """Tell a new neighbour the interests that may travel on to it. Our choice: without it, a
    changed overlay is covered again only as subscriptions are renewed."""

    settle: float = 2.0
    """With `serving = "few"`: seconds after which an interest, or a link, counts as known on
    both ends of the link. Our choice: `gather` and a slow link's latency, several times."""

    max_marks: int = 64
    """With `serving = "few"`: served subscribers named in a publication on its way. Our choice:
    512 bytes. Those beyond it are served more often than necessary."""

    max_message: int = 1 << 20
    """Bytes of a frame at most, so of a publication too. As for GossipSub: 1 MiB."""

    max_topic_length: int = 1024
    """Bytes of a topic name at most. As for GossipSub."""

    max_subscriptions: int = 5000
    """Own subscriptions at most. As for GossipSub."""

    max_interests: int = 200_000
    """Interests of others held at most. Our choice: 860 bytes each, so 170 MB."""

    max_interests_per_topic: int = 50_000
    """The same within a topic. Our choice: a publication makes as many letters."""

    max_interests_per_owner: int = 5000
    """The same of one owner. As many as a peer of this configuration may have."""

    max_interests_per_neighbour: int = 10_000
    """The same that one neighbour told us of first. Our choice: what five neighbours bring fits a
    topic's bound, so none of them can fill it alone. Strangers count as one neighbour."""

    owner_rate: float = 200.0
    """Subscribers per second that one peer may tell us of for the first time. Our choice: as many
    newcomers as a network of thousands has in a busy moment."""

    owner_burst: float = 5000.0
    """The same at once. Our choice: a neighbour's greeting in a network of thousands."""

    verify_rate: float = 2000.0
    """Interests and publications per second, of one peer, whose signatures are checked. Our
    choice: a core checks about 10,000."""

    verify_burst: float = 50_000.0
    """The same at once. Our choice: what a neighbour's greeting may hold."""

    max_pending_validations: int = 8192
    """Publications that wait for a deferred verdict at most. As for GossipSub."""

    hyparview: HyParViewConfig = HyParViewConfig()
    """The membership. See `overlay.hyparview.config`."""

    def validate(self) -> None:
        """Refuse radii, times and bounds that contradict each other."""
        for key in ("network_size", "max_hops", *_AT_LEAST_ONE):
            value = getattr(self, key)
            require(value is None or value >= 1, key, "must be at least 1")
        for key in ("sub_hops", "pub_hops"):
            value = getattr(self, key)
            rule = f"must be between 0 and max_hops ({self.max_hops})"
            require(value is None or 0 <= value <= self.max_hops, key, rule)
        hops_known = self.network_size is not None or None not in (self.sub_hops, self.pub_hops)
        require(
            self.overlay == "hyparview" or hops_known,
            "network_size",
            "must be set, or sub_hops and pub_hops, when overlay is links: nobody estimates it",
        )
        require(self.fanout >= 0, "fanout", "must not be negative")
        require(
            self.serving == "all" or self.fanout == 0,
            "fanout",
            "must be 0 when serving is few, which relies on what neighbours were told",
        )
        require(0 < self.renew_left < 1, "renew_left", "must be between 0 and 1")
        for key in _POSITIVE:
            require(0 < getattr(self, key) < _ENDLESS, key, "must be positive and finite")
        require(self.ttl <= self.max_ttl, "ttl", f"must be at most max_ttl ({self.max_ttl})")
        for key in ("clock_skew", "gather", "settle", "max_marks"):
            require(0 <= getattr(self, key) < _ENDLESS, key, "must not be negative")
        require(
            self.clock_skew < self.ttl * self.renew_left,
            "clock_skew",
            "must be less than ttl × renew_left, or subscriptions lapse before their renewal",
        )
        require(
            self.max_message >= 4096 + self.max_topic_length + MARK_BYTES * self.max_marks,
            "max_message",
            "must leave room for an interest, and for max_marks",
        )
        self.hyparview.validate()

    def hops(self, peers: float) -> int:
        """How far one half of a message's way is in a network of so many peers."""
        return min(self.max_hops, math.ceil((_diameter(peers) + 1) / 2))

    def across(self, peers: float) -> int:
        """How far the whole way is at most."""
        return min(self.max_hops, math.ceil(_diameter(peers)))


def _diameter(peers: float) -> float:
    return math.log(10 * max(1.0, peers))


_AT_LEAST_ONE = (
    "max_delivered",
    "max_topic_length",
    "max_subscriptions",
    "max_interests",
    "max_interests_per_topic",
    "max_interests_per_owner",
    "max_interests_per_neighbour",
    "max_pending_validations",
)
_POSITIVE = (
    "ttl",
    "renew_rate",
    "max_ttl",
    "clean_interval",
    "publication_lifetime",
    "verify_rate",
    "verify_burst",
    "owner_rate",
    "owner_burst",
)

RELAY_OVERHEAD = MAX_PEER_BYTES
"""Bytes that a publication's way adds to it at most, besides the marks: tags, lengths, hops."""

PRESETS: dict[str, Config] = {
    "default": RadiusConfig(),
    "few": RadiusConfig(serving="few"),
    # The pseudo-code to the letter: half the diameter each, and everybody serves.
    "design": RadiusConfig(serving="all"),
}
