"""One lookup: whom it asks, when it ends, and that its paths never meet."""

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from rumormill.overlay.kademlia.lookup import Lookup
from rumormill.overlay.kademlia.messages import KadPeer
from rumormill.overlay.kademlia.table import distance, position

OWN = b"own"
TARGET = b"target"


def lookup(seeds: list[bytes], **changes: int) -> Lookup:
    options = {"k": 20, "alpha": 3, "paths": 3, "width": 100, "limit": 200} | changes
    return Lookup(position(TARGET), OWN, seeds, **options)


def by_distance(peers: list[bytes]) -> list[bytes]:
    return sorted(peers, key=lambda peer: distance(peer, TARGET))


def named(peers: list[bytes]) -> tuple[KadPeer, ...]:
    return tuple(KadPeer(peer) for peer in peers)


class World:
    """Peers that know each other as in a grown network: each knows what is close to it."""

    def __init__(self, size: int, seed: int) -> None:
        self.randomness = Random(seed)
        self.peers = by_distance([self.randomness.randbytes(8) for _ in range(size)])
        self.dead: dict[bytes, None] = {}

    def closer(self, peer: bytes, count: int = 20) -> list[bytes]:
        """What an honest peer answers: the closest of those it knows, here half of all."""
        randomness = Random(peer)
        known = [other for other in self.peers if other != peer and randomness.random() < 0.5]
        return known[:count]

    def walk(self, search: Lookup) -> None:
        """Answer in random order until nobody is asked any more."""
        waiting = search.take()
        while waiting:
            peer = waiting.pop(self.randomness.randrange(len(waiting)))
            if peer in self.dead:
                search.failed(peer)
            else:
                search.answered(peer, named(self.closer(peer)))
            waiting += search.take()
        assert search.in_flight == 0


@given(st.integers(1, 200), st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 4))
def test_disjoint_paths_share_no_peer(size: int, seed: int, paths: int, alpha: int) -> None:
    """No peer is asked by two paths, or twice, or for being ourselves."""
    world = World(size, seed)
    search = lookup(world.randomness.sample(world.peers, min(20, size)), paths=paths, alpha=alpha)
    world.walk(search)
    asked = [peer for path in search.paths() for peer in path]
    assert len(asked) == len(set(asked)) == search.asked
    assert OWN not in asked


@given(st.integers(0, 2**32))
@example(179)  # one path starts from dead peers only
def test_a_walk_ends_with_the_closest_living_peers(seed: int) -> None:
    """With a third of all peers dead, nearly all of the true 20 closest are found."""
    world = World(150, seed)
    world.dead = dict.fromkeys(world.randomness.sample(world.peers, 50))
    alive = [peer for peer in world.peers if peer not in world.dead]
    search = lookup(world.randomness.sample(world.peers, 20))
    world.walk(search)
    found = search.closest(20)
    assert len(found) == 20
    assert found == by_distance(found)
    assert len(set(found) & set(alive[:20])) >= 17
    assert search.answers + search.failures == search.asked


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 3))
def test_never_more_than_alpha_questions_are_open_on_a_path(
    seed: int, alpha: int, paths: int
) -> None:
    """alpha times the number of paths bounds what a lookup has in flight."""
    world = World(100, seed)
    search = lookup(world.peers[-20:], alpha=alpha, paths=paths)
    waiting = search.take()
    while waiting:
        assert len(waiting) == search.in_flight <= alpha * paths
        peer = waiting.pop()
        search.answered(peer, named(world.closer(peer)))
        waiting += search.take()


def test_liars_on_one_path_leave_the_others_alone() -> None:
    """A liar that names only accomplices close to the target gets no honest path to follow."""
    world = World(120, 7)
    liars = [b"liar-%d" % number for number in range(500)]
    closest_liars = by_distance(liars)[:40]
    search = lookup([closest_liars[-1], *world.peers[60:70]])
    waiting = search.take()
    while waiting:
        peer = waiting.pop()
        answer = closest_liars[:20] if peer.startswith(b"liar") else world.closer(peer)
        search.answered(peer, named(answer))
        waiting += search.take()
    spoilt = [path for path in search.paths() if any(peer.startswith(b"liar") for peer in path)]
    assert len(spoilt) == 1
    assert world.peers[0] in [peer for path in search.paths() for peer in path]
    honest = [peer for peer in search.holders(20) if not peer.startswith(b"liar")]
    assert len(honest) >= 12
    assert world.peers[0] in honest


def test_within_its_radius_a_walk_asks_everybody() -> None:
    """However many stand there; all that answer are trusted with a record."""
    crowd = by_distance([b"crowd-%d" % number for number in range(200)])
    radius = distance(crowd[49], TARGET)
    for given_radius, expected in ((radius, 50), (0, 21)):
        search = lookup(crowd[:20], radius=given_radius)
        waiting = search.take()
        while waiting:
            peer = waiting.pop(0)
            near = crowd.index(peer)
            search.answered(peer, named(crowd[max(0, near - 10) : near + 10]))
            waiting += search.take()
        assert search.asked == expected
        assert len(search.holders(20)) == max(20, expected if given_radius else 0)


def test_invented_peers_cannot_keep_a_lookup_busy_for_ever() -> None:
    """Whoever is answered with ever closer peers that do not exist stops at the limit."""
    randomness = Random(1)
    search = lookup([b"seed-%d" % number for number in range(20)], limit=60, width=40)
    waiting = search.take()
    while waiting:
        peer = waiting.pop()
        if peer.startswith(b"seed"):
            search.answered(peer, named([randomness.randbytes(20) for _ in range(64)]))
        else:
            search.failed(peer)
        waiting += search.take()
    assert search.asked == 60
    assert search.in_flight == 0


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    """Neither a second answer nor one of a peer that was not asked counts."""
    search = lookup([b"a", b"b"], paths=1, alpha=1)
    (first,) = search.take()
    search.answered(b"stranger", named([b"x"]))
    search.answered(first, ())
    search.answered(first, named([b"y"]))
    search.failed(first)
    search.failed(OWN)
    assert search.answers == 1
    assert search.failures == 0
    (second,) = search.take()
    assert {first, second} == {b"a", b"b"}
    search.failed(second)
    assert search.take() == []
    assert search.closest(5) == [first]


def test_addresses_are_those_that_the_namer_gave() -> None:
    """Where a peer can be reached comes with its name, and is there when it is asked."""
    search = lookup([b"a"], paths=1)
    (first,) = search.take()
    search.answered(first, (KadPeer(b"c", (b"where",)), KadPeer(b"d")))
    assert search.addresses(b"c") == (b"where",)
    assert search.addresses(b"d") == ()
