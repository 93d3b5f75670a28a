"""HyParView message by message, and as an overlay that is struck."""

import random
from typing import Any

import pytest
from hyparview_rig import Alone, Letter, Overlay
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.effects import Connect, Disconnect, Effects, Learn, Mail, Send, SendAll
from rumormill.overlay.hyparview import reasons
from rumormill.overlay.hyparview.active_view import BEAT, MAX_CONTACTS
from rumormill.overlay.hyparview.config import HyParViewConfig
from rumormill.overlay.hyparview.hyparview import MESSAGE_BURST, SHUFFLE
from rumormill.overlay.hyparview.messages import Kind, Membership, PeerInfo
from rumormill.wire.multiaddr import Multiaddr


def sent(effects: Effects) -> list[tuple[bytes, Membership]]:
    """Messages by addressee, in order."""
    found: list[tuple[bytes, Membership]] = []
    for effect in effects:
        message: Any = getattr(effect, "message", None)
        if isinstance(effect, Send | Mail):
            found.append((effect.peer, message.message))
        elif isinstance(effect, SendAll):
            found.extend((peer, message.message) for peer in effect.peers)
    return found


def kinds(effects: Effects) -> list[tuple[bytes, int]]:
    return [(peer, message.kind) for peer, message in sent(effects)]


def neighbours(member: Alone, *peers: bytes) -> None:
    """Make peers neighbours."""
    for peer in peers:
        member.connect(peer)
        member.receive(peer, Membership(Kind.NEIGHBOR))
    assert list(member.view.active) == list(peers)


FIVE = (b"a", b"b", b"c", b"d", b"e")


class TestJoining:
    """A newcomer, its contact, and the walks."""

    def test_the_first_peer_that_we_dialled_is_asked_to_let_us_join(self) -> None:
        """Further ones go to the passive view."""
        member = Alone()
        effects = member.connect(b"contact", outbound=True)
        assert kinds(effects) == [(b"contact", Kind.JOIN)]
        assert sent(effects)[0][1].peers[0].peer == b"me"
        assert sent(member.connect(b"other", outbound=True)) == []
        assert list(member.view.passive) == [b"contact", b"other"]
        member.receive(b"contact", Membership(Kind.NEIGHBOR_REPLY, yes=True))
        assert tuple(member.view.active) == (b"contact",)
        assert list(member.view.passive) == [b"other"]

    def test_whoever_dialled_a_peer_without_neighbours_is_asked(self) -> None:
        """A peer that comes back is dialled by those who knew it, and joins through them."""
        member = Alone()
        assert kinds(member.connect(b"friend")) == [(b"friend", Kind.JOIN)]
        assert sent(member.connect(b"another")) == []

    def test_a_contact_takes_the_newcomer_in_and_sends_its_name_on(self) -> None:
        """A full view makes room; every other neighbour gets a walk of ARWL steps."""
        member = Alone()
        neighbours(member, *FIVE)
        member.connect(b"new")
        effects = member.receive(
            b"new", Membership(Kind.JOIN, peers=(PeerInfo(b"new", (b"there",)),))
        )
        (out,) = set(FIVE) - set(member.view.active)
        rest = [(peer, Kind.FORWARD_JOIN) for peer in member.view.active if peer != b"new"]
        assert kinds(effects) == [(out, Kind.DISCONNECT), (b"new", Kind.NEIGHBOR_REPLY), *rest]
        assert sent(effects)[-1][1].hops == HyParViewConfig().active_walk - 1
        assert Learn(b"new", (b"there",)) in effects
        assert out in member.view.passive

    def test_walks_pass_by_enter_the_passive_view_and_end_in_the_active_one(self) -> None:
        """At PRWL the newcomer is noted; at 0 it is asked to be a neighbour."""
        member = Alone()
        neighbours(member, *FIVE)
        info = (PeerInfo(b"new"),)
        for hops in (5, 4):
            effects = member.receive(b"a", Membership(Kind.FORWARD_JOIN, hops, peers=info))
            ((target, walk),) = sent(effects)
            assert target in FIVE[1:]
            assert walk == Membership(Kind.FORWARD_JOIN, hops - 1, peers=info)
            assert b"new" not in member.view.passive
        member.receive(b"a", Membership(Kind.FORWARD_JOIN, 3, peers=info))
        assert b"new" in member.view.passive
        effects = member.receive(b"a", Membership(Kind.FORWARD_JOIN, 0, peers=info))
        assert effects == [Connect(b"new")]
        assert kinds(member.connect(b"new", outbound=True)) == [(b"new", Kind.NEIGHBOR)]
        member.receive(b"new", Membership(Kind.NEIGHBOR_REPLY, yes=True))
        assert b"new" in member.view.active
        assert len(member.view.active) == 5

    def test_a_peer_with_one_neighbour_ends_the_walk(self) -> None:
        """There is nobody else to pass it to."""
        member = Alone()
        neighbours(member, b"a")
        effects = member.receive(b"a", Membership(Kind.FORWARD_JOIN, 5, peers=(PeerInfo(b"new"),)))
        assert effects == [Connect(b"new")]


class TestNeighbours:
    """NEIGHBOR, its answer, DISCONNECT: symmetric by construction."""

    def test_low_priority_is_refused_by_a_full_view_with_an_offer(self) -> None:
        """Who is turned away learns of others."""
        member = Alone()
        neighbours(member, *FIVE)
        member.connect(b"x")
        effects = member.receive(b"x", Membership(Kind.NEIGHBOR))
        ((_, reply),) = sent(effects)
        assert not reply.yes
        assert {info.peer for info in reply.peers} == set(FIVE)
        assert member.refused == [reasons.VIEW_FULL]

    def test_high_priority_is_never_refused(self) -> None:
        """Somebody makes room, and is told."""
        member = Alone()
        neighbours(member, *FIVE)
        member.connect(b"x")
        effects = member.receive(b"x", Membership(Kind.NEIGHBOR, yes=True))
        assert [kind for _, kind in kinds(effects)] == [Kind.DISCONNECT, Kind.NEIGHBOR_REPLY]
        assert b"x" in member.view.active
        assert len(member.view.active) == 5

    def test_a_lost_neighbour_is_replaced_from_the_passive_view(self) -> None:
        """The next in reserve is connected to and asked; one out of reach is forgotten."""
        member = Alone(active_size=1)
        member.connect(b"first", outbound=True)
        member.receive(b"first", Membership(Kind.NEIGHBOR_REPLY, yes=True))
        for peer in (b"p", b"q"):
            member.view.passive.add(peer)
        member.effects = []
        member.view.on_disconnected(b"first", member.now, member.effects)
        (connect,) = member.effects
        assert isinstance(connect, Connect)
        member.effects = []
        member.view.on_connect_failed(connect.peer, member.now, member.effects)
        assert connect.peer not in member.view.passive
        (second,) = member.effects
        assert isinstance(second, Connect)
        ((_, ask),) = sent(member.connect(second.peer, outbound=True))
        assert ask == Membership(Kind.NEIGHBOR, yes=True)  # nobody is left, so it insists

    def test_an_answer_that_nobody_asked_for_is_undone(self) -> None:
        """Else one side would take the other for a neighbour."""
        member = Alone()
        neighbours(member, b"a")
        member.connect(b"x")
        effects = member.receive(b"x", Membership(Kind.NEIGHBOR_REPLY, yes=True))
        assert kinds(effects) == [(b"x", Kind.DISCONNECT)]
        assert member.refused == [reasons.UNASKED_REPLY]

    def test_a_beat_of_somebody_who_is_no_neighbour_is_answered(self) -> None:
        """So lopsided views mend themselves."""
        member = Alone()
        neighbours(member, b"a")
        member.connect(b"x")
        assert kinds(member.receive(b"x", Membership(Kind.BEAT))) == [(b"x", Kind.DISCONNECT)]
        assert member.refused == [reasons.NOT_NEIGHBOUR]

    def test_a_silent_neighbour_is_given_up(self) -> None:
        """A peer that hangs is not noticed by its connection, but by its beats."""
        member = Alone()
        neighbours(member, b"a", b"b")
        config = HyParViewConfig()
        member.now += config.silent_beats * config.beat_interval
        member.receive(b"b", Membership(Kind.BEAT))
        member.now += 0.1
        member.effects = []
        member.view.on_timer(BEAT, member.now, member.effects)
        assert list(member.view.active) == [b"b"]
        assert any(isinstance(e, Disconnect) and e.peer == b"a" for e in member.effects)

    def test_unused_connections_are_closed_after_a_while(self) -> None:
        """Those that we had dialled to ask, and not at once: letters may be under way."""
        member = Alone()
        neighbours(member, *FIVE)
        member.receive(b"a", Membership(Kind.FORWARD_JOIN, 0, peers=(PeerInfo(b"new"),)))
        member.connect(b"new", outbound=True)
        member.receive(b"new", Membership(Kind.NEIGHBOR_REPLY))
        member.connect(b"somebody else's")
        for passed, closed in ((29.0, []), (2.0, [b"new"])):
            member.now += passed
            for peer in FIVE:
                member.receive(peer, Membership(Kind.BEAT))
            member.effects = []
            member.view.on_timer(BEAT, member.now, member.effects)
            assert [e.peer for e in member.effects if isinstance(e, Disconnect)] == closed


class TestShuffles:
    """Passive views are stirred."""

    def test_a_shuffle_names_its_origin_and_samples(self) -> None:
        """Itself, three neighbours and four in reserve, to one neighbour."""
        member = Alone()
        neighbours(member, *FIVE)
        for number in range(10):
            member.view.passive.add(b"p%d" % number)
        member.effects = []
        member.view.on_timer(SHUFFLE, member.now, member.effects)
        ((target, walk),) = sent(member.effects)
        named = [info.peer for info in walk.peers]
        assert named[0] == b"me"
        assert len(named) == 1 + 3 + 4
        assert target not in named

    def test_its_last_station_answers_in_kind(self) -> None:
        """With a sample of its own passive view, by letter, and takes the named ones in."""
        member = Alone()
        neighbours(member, *FIVE)
        for number in range(30):
            member.view.passive.add(b"p%d" % number)
        named = tuple(PeerInfo(b"n%d" % number) for number in range(8))
        effects = member.receive(b"a", Membership(Kind.SHUFFLE, 0, False, 77, named))
        (letter,) = [effect for effect in effects if isinstance(effect, Mail)]
        assert letter.peer == b"n0"
        assert isinstance(letter.message, Letter)
        reply = letter.message.message
        assert (reply.kind, reply.number, len(reply.peers)) == (Kind.SHUFFLE_REPLY, 77, 8)
        assert all(info.peer in member.view.passive for info in named)
        assert len(member.view.passive) == 30

    def test_one_group_of_addresses_has_a_tenth_of_the_passive_view(self) -> None:
        """Whoever names its own in every shuffle pushes out those."""
        member = Alone()
        neighbours(member, *FIVE)
        honest = [b"p%d" % number for number in range(30)]
        for number, peer in enumerate(honest):
            member.view.passive.add(peer, f"{number}.0.0.0/24")
        for number in range(100):
            address = Multiaddr.tcp(f"203.0.112.{number}", 4001).encode()
            named = tuple(PeerInfo(b"evil%d.%d" % (number, each), (address,)) for each in range(8))
            member.receive(b"a", Membership(Kind.SHUFFLE, 0, False, number, named))
            member.now += 1.0
        evil = [peer for peer in member.view.passive if peer.startswith(b"evil")]
        assert len(evil) == 3
        assert len(member.view.passive) >= 29

    def test_only_the_answer_to_an_open_shuffle_is_taken(self) -> None:
        """A passive view cannot be filled by somebody whom nobody asked."""
        member = Alone()
        member.connect(b"x")
        names = tuple(PeerInfo(b"evil%d" % number) for number in range(8))
        member.receive(b"x", Membership(Kind.SHUFFLE_REPLY, number=5, peers=names))
        assert member.refused == [reasons.UNASKED_REPLY]
        assert not len(member.view.passive)


class TestAbuse:
    """Views stay bounded and refusals are counted."""

    def test_a_flood_of_joins(self) -> None:
        """Ten thousand newcomers at once: bounded views, a bounded number of changes."""
        member = Alone()
        counted: dict[str, int] = {}
        for number in range(10_000):
            peer = b"n%d" % number
            member.connect(peer)
            member.receive(peer, Membership(Kind.JOIN, peers=(PeerInfo(peer),)))
            for reason in member.refused:
                counted[reason] = counted.get(reason, 0) + 1
            member.view.on_disconnected(peer, member.now, []) if number % 2 else None
            assert len(member.view.active) <= 5
            assert len(member.view.passive) <= 30
        assert counted[reasons.TOO_MANY_NEWCOMERS] > 4000
        assert len(member.view._contacts) <= MAX_CONTACTS

    @pytest.mark.parametrize("leaves", ["with a word", "by its connection"])
    def test_one_peer_that_comes_and_goes(self, leaves: str) -> None:
        """It may push neighbours out as often as one that crashes, and then takes free places."""
        member = Alone()
        neighbours(member, *FIVE)
        pushed_out = 0
        for _ in range(200):
            if b"x" not in member.view._connected:
                member.connect(b"x")
            before = dict(member.view.active)
            for peer in FIVE:
                if len(before) < 5 and peer not in before:
                    member.receive(peer, Membership(Kind.NEIGHBOR, yes=True))
                    before = dict(member.view.active)
            member.receive(b"x", Membership(Kind.NEIGHBOR, yes=True))
            pushed_out += any(peer not in member.view.active for peer in before)
            if leaves == "with a word":
                member.receive(b"x", Membership(Kind.DISCONNECT))
            else:
                member.view.on_disconnected(b"x", member.now, [])
            member.now += 0.05
        assert pushed_out == 3

    def test_one_peer_that_talks_too_much(self) -> None:
        """Beyond its allowance nothing is looked at."""
        member = Alone()
        member.connect(b"x")
        refused = 0
        for _ in range(2000):
            member.receive(b"x", Membership(Kind.JOIN))
            refused += member.refused == [reasons.TOO_MANY_MESSAGES]
        assert refused == 2000 - MESSAGE_BURST

    @pytest.mark.parametrize(
        ("message", "reason"),
        [
            (Membership(99), reasons.UNKNOWN_KIND),
            (Membership(Kind.FORWARD_JOIN, 3), reasons.NO_PEER),
            (Membership(Kind.SHUFFLE, 2**31, peers=(PeerInfo(b"o"),)), reasons.HOPS_CLAMPED),
            (Membership(Kind.FORWARD_JOIN, 2**31, peers=(PeerInfo(b"o"),)), reasons.HOPS_CLAMPED),
            (Membership(Kind.BEAT, epoch=16, minima=(1.0,)), reasons.BAD_MINIMA),
            (Membership(Kind.BEAT, epoch=16, minima=(0.0,) * 32), reasons.BAD_MINIMA),
            (Membership(Kind.BEAT, epoch=16, minima=(float("nan"),) * 32), reasons.BAD_MINIMA),
            (Membership(Kind.BEAT, epoch=2**60, minima=(1.0,) * 32), reasons.EPOCH_AHEAD),
        ],
    )
    def test_absurd_messages_of_a_neighbour(self, message: Membership, reason: str) -> None:
        """Each is counted for what it is."""
        member = Alone()
        neighbours(member, b"a", b"b")
        member.receive(b"a", message)
        assert member.refused == [reason]

    @pytest.mark.parametrize("kind", [Kind.FORWARD_JOIN, Kind.SHUFFLE])
    def test_walks_of_strangers_end(self, kind: int) -> None:
        """Only neighbours may send us on errands."""
        member = Alone()
        neighbours(member, b"a", b"b")
        member.connect(b"x")
        assert sent(member.receive(b"x", Membership(kind, 3, peers=(PeerInfo(b"o"),)))) == []
        assert member.refused == [reasons.NOT_NEIGHBOUR]

    @given(seed=st.integers(0, 2**32))
    def test_any_messages_keep_the_views_sound(self, seed: int) -> None:
        """Bounded, disjoint, without ourselves, and neighbours are connected."""
        rng = random.Random(seed)
        member = Alone(seed)
        peers = [b"me", b"", *(b"%d" % number for number in range(12))]
        connected: dict[bytes, None] = {}
        for _ in range(150):
            peer = rng.choice(peers[2:])
            action = rng.random()
            if action < 0.2:
                member.connect(peer, outbound=rng.random() < 0.5)
                connected[peer] = None
            elif action < 0.3 and peer in connected:
                del connected[peer]
                member.view.on_disconnected(peer, member.now, [])
            elif action < 0.35:
                member.view.on_timer(rng.choice([BEAT, SHUFFLE]), member.now, [])
            else:
                named = tuple(PeerInfo(rng.choice(peers)) for _ in range(rng.randrange(4)))
                hops, yes = rng.randrange(8), rng.random() < 0.5
                message = Membership(rng.randrange(10), hops, yes, rng.randrange(3), named)
                member.receive(peer, message)
            member.now += rng.random()
            view = member.view
            assert len(view.active) <= 5
            assert len(view.passive) <= 30
            assert not set(view.active) & set(view.passive)
            assert not {b"me", b""} & {*view.active, *view.passive}
            assert set(view.active) <= set(connected)


class TestOverlay:
    """Many members."""

    def test_symmetric_once_quiet_and_in_one_piece(self) -> None:
        """A hundred peers that join one after another: full, symmetric views, one component."""
        overlay = Overlay(100)
        overlay.run(30)
        assert overlay.lopsided() == []
        assert overlay.giant_component() == 1.0
        degrees = [len(view.active) for view in overlay.views().values()]
        assert min(degrees) >= 4
        assert sum(degrees) >= 4.9 * len(degrees)

    def test_it_survives_the_crash_of_most(self) -> None:
        """60 % of 150 at once: the rest stays one component and is whole again soon."""
        overlay = Overlay(150, seed=2)
        overlay.run(60)
        overlay.crash(0.6)
        overlay.run(20)
        assert overlay.giant_component() == 1.0
        assert overlay.lopsided() == []
        degrees = [len(view.active) for view in overlay.views().values()]
        assert sum(degrees) >= 4.8 * len(degrees)

    def test_the_size_is_known_to_everybody(self) -> None:
        """All agree on an estimate, within three standard errors of the truth; it follows a
        crash within two rounds."""
        overlay = Overlay(100, seed=3)
        overlay.run(55)
        sizes = {view.size for view in overlay.views().values()}
        (size,) = sizes
        error = 3 / 30**0.5
        assert 100 * (1 - error) < size < 100 * (1 + error)
        overlay.crash(0.7)
        overlay.run(125)
        assert all(view.size < 30 * (1 + 2 * error) for view in overlay.views().values())

    def test_halves_find_together_after_a_partition(self) -> None:
        """Each half is whole by then; exchanges of neighbours join them again."""
        overlay = Overlay(40, seed=4, swap_interval=20.0)
        overlay.run(30)
        everyone = list(range(40))
        overlay.network.partition([everyone[:20], everyone[20:]])
        overlay.run(30)
        assert overlay.giant_component() == 0.5
        overlay.network.heal()
        overlay.run(60)
        assert overlay.giant_component() == 1.0

    def test_newcomers_of_one_moment_do_not_stay_among_themselves(self) -> None:
        """Joining faster than messages travel can close a circle of six: with this seed it does,
        and the first exchanges open it."""
        parts = {}
        for swap_interval in (0.0, 120.0):
            overlay = Overlay(100, seed=5, interval=0.02, swap_interval=swap_interval)
            overlay.run(50)
            parts[swap_interval] = overlay.giant_component()
        assert parts == {0.0: 0.94, 120.0: 1.0}

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [1, 2])
    @pytest.mark.parametrize(
        ("share", "at_least"),
        [(0.1, 1.0), (0.3, 1.0), (0.5, 1.0), (0.6, 1.0), (0.8, 1.0), (0.9, 0.95), (0.95, 0.5)],
    )
    def test_a_thousand_peers(self, share: float, at_least: float, seed: int) -> None:
        """The giant component of what is left after simultaneous crashes at N = 1,000.

        Seed 2 closes a circle of 267 on the way in, which the first exchanges open.
        """
        overlay = Overlay(1000, seed, interval=0.02, swap_interval=120.0)
        overlay.run(60)
        assert overlay.giant_component() == 1.0
        assert overlay.lopsided() == []
        overlay.crash(share)
        overlay.run(20)
        assert overlay.giant_component() >= at_least
        assert overlay.lopsided() == []
