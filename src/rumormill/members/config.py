"""How many others a peer wants to know, and how often it looks after them."""

from rumormill.core.config import AT_LEAST_ONE, POSITIVE, Config, require, require_all


class MembersConfig(Config, frozen=True, kw_only=True):
    """The settings of membership. Every default is our choice; the reason stands beside it."""

    enabled: bool = True
    """Whether peers are looked for, remembered and let go at all."""
    wanted: int = 8
    """Links to other members that are sought: two more than GossipSub wants in a mesh, so that the
    loss of some leaves enough while others are found."""
    dialled: int = 4
    """Of those, links that we have dialled ourselves: whom others send to us they may have chosen
    for us."""
    most: int = 16
    """Links beyond which some are let go. FloodSub sends an event over all of them."""
    per_group: int = 4
    """Links to one group of addresses (an IPv4 /24, an IPv6 /48) at most: a quarter of all. Private
    and loopback addresses are no group."""
    topic_wanted: int = 6
    """Connected subscribers that are sought for each of our topics: GossipSub's D."""
    interval: float = 5.0
    """Seconds between two looks at all this, half as much more or less."""
    retry: float = 10.0
    """Seconds between two attempts to reach somebody who was lost: what a partition has parted
    finds together within three of them."""
    remembered: int = 128
    """Peers remembered on disk. One group of addresses has an eighth of that at most."""

    def validate(self) -> None:
        """Refuse numbers that contradict each other."""
        require_all(
            self,
            {
                POSITIVE: ("interval", "retry"),
                AT_LEAST_ONE: ("wanted", "per_group", "topic_wanted", "remembered"),
            },
        )
        require(0 <= self.dialled <= self.wanted, "dialled", "must be from 0 to wanted")
        require(self.most >= self.wanted, "most", f"must be at least wanted ({self.wanted})")
