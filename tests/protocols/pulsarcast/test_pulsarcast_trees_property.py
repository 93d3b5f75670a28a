"""Whatever order peers join, leave, crash and return in: once it is quiet there is one tree.

For every topic with a live subscriber: the edges are acyclic and known at both ends, every live
subscriber hangs from the one root, nobody stands in the tree who is not needed there, and nobody
outside keeps anything of the topic. And every subscriber has what was published by survivors while
it subscribed.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pulsarcast_rig import World

from rumormill.core.inputs import Publish, Subscribe, Unsubscribe
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.sim.network import peer_id

COUNT = 9
QUICK = {
    "fan_out": 2,
    "refresh_interval": 4.0,
    "rendezvous_interval": 2.0,
    "max_rendezvous_interval": 4.0,
    "avoid_failed": 3.0,
    "max_retry_delay": 2.0,
    "join_timeout": 1.0,
    "connect_timeout": 1.0,
    "sync_settle": 2.0,
    "move_linger": 1.0,
    "leave_linger": 3.0,
    "publish_linger": 2.0,
}
"""Everything that takes time, quicker, so that quiet comes sooner."""

deeds = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "crash", "return", "forget", "publish"]),
        st.integers(0, COUNT - 1),
        st.floats(0.0, 2.0),
    ),
    max_size=25,
)


class Story:
    """A world, and what should be true of it."""

    def __init__(self, seed: int) -> None:
        self.world = World(COUNT, seed=seed, **QUICK)
        self.topic = self.world.create(0, allowed_publishers=None)
        self.wanted = {0}
        self.down: set[int] = set()
        self.published: list[tuple[int, bytes, frozenset[int]]] = []
        self.away: dict[int, int] = {}

    def act(self, deed: str, index: int, pause: float) -> None:
        """Let one thing happen, and a moment pass."""
        world, host = self.world, self.world.host(index)
        if deed == "crash" and index not in self.down:
            self.down.add(index)
            world.crash(index)
        elif deed in ("return", "forget") and index in self.down:
            self.down.discard(index)
            world.network.start(host, keep_state=deed == "return")
            if index in self.wanted:
                host.handle(Subscribe(self.topic))
            for other in range(COUNT):
                world.network.dial(host, peer_id(other))
        elif index in self.down:
            pass
        elif deed == "join":
            host.handle(Subscribe(self.topic))
            self.wanted.add(index)
        elif deed == "leave":
            host.handle(Unsubscribe(self.topic))
            self.wanted.discard(index)
        elif deed == "publish":
            data = b"%d" % len(self.published)
            host.handle(Publish(self.topic, data))
            self.published.append((index, data, frozenset(self.wanted - self.down)))
        world.run(pause)

    def check(self) -> None:
        """It is quiet: look at everybody."""
        world, topic = self.world, self.topic
        members = world.members(topic)
        live = self.wanted - self.down
        for index in live:
            assert peer_id(index) in members, f"{index} is not in the tree"
        if members:
            world.check_tree(topic)
        cid = cids.parse(topic)
        for index in range(COUNT):
            if index not in self.down and peer_id(index) not in members:
                machine = world.machine(index)
                assert cid not in machine.feeds.open
                assert cid not in machine._reconciliation._ranges
                assert not machine._requests._open


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(deeds, st.integers(0, 3))
def test_once_quiet_there_is_one_tree_and_nothing_besides(
    story: list[tuple[str, int, float]], seed: int
) -> None:
    """Acyclic, connected, agreed upon, and without leftovers."""
    play(story, seed)


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(deeds, st.integers(0, 1000))
def test_once_quiet_there_is_one_tree_in_many_stories(
    story: list[tuple[str, int, float]], seed: int
) -> None:
    """The same, for longer."""
    play(story, seed)


def play(story: list[tuple[str, int, float]], seed: int) -> None:
    """Play a story to its end and check what is left."""
    told = Story(seed)
    for deed, index, pause in story:
        told.act(deed, index, pause)
    told.world.run(90.0)
    told.check()


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.permutations(range(COUNT)), st.integers(1, 4))
def test_survivors_have_what_survivors_published(order: list[int], losses: int) -> None:
    """Peers die one after another while everybody publishes; nothing of the living is lost."""
    world = World(COUNT, **QUICK)
    topic = world.create(0, allowed_publishers=None)
    world.subscribe(topic, *range(1, COUNT))
    said: dict[int, list[bytes]] = {index: [] for index in range(COUNT)}
    alive = list(range(COUNT))
    for dead in order[:losses]:
        for index in alive:
            data = b"%d from %d" % (len(said[index]), index)
            world.host(index).handle(Publish(topic, data))
            said[index].append(data)
        world.run(0.03)
        world.crash(dead)
        alive.remove(dead)
        world.run(0.5)
    world.run(60.0)
    wanted = sorted(data for index in alive for data in said[index])
    living = tuple(b" from %d" % index for index in alive)
    for index in alive:
        got = [data for data in world.data(index, topic) if data.endswith(living)]
        assert sorted(got) == wanted
        assert len(world.data(index, topic)) == len(set(world.data(index, topic)))
