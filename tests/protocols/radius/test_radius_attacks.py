"""Forged, replayed, expired and absurd messages: refused or cut down, counted, and never more."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from radius_rig import Bag, interest_of, peer_id

from rumormill.core.errors import ConfigError, LimitError, LocalError
from rumormill.core.inputs import (
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    Recovered,
    Subscribe,
    TimerFired,
    Validated,
    Verdict,
)
from rumormill.protocols.radius import reasons
from rumormill.protocols.radius.config import RadiusConfig
from rumormill.protocols.radius.junk import junk_frame
from rumormill.protocols.radius.messages import (
    Frame,
    Interest,
    Publication,
    Relay,
    Spread,
    sign,
)
from rumormill.protocols.radius.router import RADIUS
from rumormill.protocols.radius.spec import SPEC
from rumormill.protocols.radius.subscriptions import Greet
from rumormill.sim.identity import SimulatedIdentity

VICTIM, ATTACKER, OWNER = 0, 1, 7


def bag(**config: Any) -> Bag:
    """A victim, and an attacker linked to it."""
    settings = {"sub_hops": 3, "pub_hops": 3, **config}
    made = Bag(2, [(VICTIM, ATTACKER)], **settings)
    made.settle()
    made.sent.clear()
    return made


def interest(made: Bag, owner: int = OWNER, signer: int | None = None, **changes: Any) -> Interest:
    """An interest, signed by its owner unless told otherwise."""
    return interest_of(owner, made.now, signer, **changes)


def publication(
    made: Bag, author: int = OWNER, signer: int | None = None, **changes: Any
) -> Publication:
    """A publication, signed by its author unless told otherwise."""
    values = {"topic": "t", "time": int(made.now * 1e9), "data": b"x", **changes}
    word = Publication(peer_id(author), **values)
    sign(word, SimulatedIdentity(peer_id(author if signer is None else signer)))
    return word


def receive(made: Bag, frame: Frame) -> list[str]:
    """Let the victim get a frame from the attacker; return what it refused."""
    made.refused[VICTIM].clear()
    made.feed(VICTIM, Received(peer_id(ATTACKER), frame))
    return list(made.refused[VICTIM])


class TestInterests:
    """SUB and UNSUB."""

    def test_nobody_subscribes_or_unsubscribes_somebody_else(self) -> None:
        """Interests that their owner did not sign are refused."""
        made = bag()
        forged = interest(made, signer=ATTACKER)
        assert receive(made, Frame((Spread(forged, 2),))) == [reasons.INVALID_SIGNATURE]
        receive(made, Frame((Spread(interest(made), 2),)))
        assert made.knows(VICTIM, OWNER)
        made.now += 1
        forged = interest(made, signer=ATTACKER, withdrawn=True)
        assert receive(made, Frame((Spread(forged, 2),))) == [reasons.INVALID_SIGNATURE]
        assert made.knows(VICTIM, OWNER)

    @pytest.mark.parametrize(
        "change", [{"topic": "u"}, {"expires": 1030_000_001}, {"withdrawn": True}, {"sequence": 2}]
    )
    def test_the_signature_covers_everything(self, change: dict[str, Any]) -> None:
        """An interest with one field changed is no longer its owner's."""
        made = bag()
        altered = msgspec.structs.replace(interest(made), cached_bytes=b"", **change)
        assert receive(made, Frame((Spread(altered, 2),))) == [reasons.INVALID_SIGNATURE]

    def test_expired_and_endless_ones_are_refused(self) -> None:
        """The date must lie in the future, and not too far."""
        made = bag()
        now = int(made.now * 1e6)
        too_late = interest(made, expires=now)
        assert receive(made, Frame((Spread(too_late, 2),))) == [reasons.EXPIRED]
        config = RadiusConfig()
        most = now + int((config.max_ttl + config.clock_skew) * 1e6)
        for expires in (most + 1, 2**63, 2**64 - 1):
            endless = interest(made, expires=expires)
            assert receive(made, Frame((Spread(endless, 2),))) == [reasons.TOO_FAR_AHEAD]
        assert receive(made, Frame((Spread(interest(made, expires=most), 2),))) == []

    def test_a_number_from_the_future_is_refused(self) -> None:
        """Else an owner could be made to outlive its own later words by a moment's wrong clock."""
        made = bag()
        ahead = interest(made, sequence=int((made.now + 2.1) * 1e6))
        assert receive(made, Frame((Spread(ahead, 2),))) == [reasons.TOO_FAR_AHEAD]

    def test_a_replay_is_superseded(self) -> None:
        """An older word of the owner changes nothing."""
        made = bag()
        first = interest(made)
        made.now += 1
        receive(made, Frame((Spread(interest(made, withdrawn=True), 2),)))
        assert receive(made, Frame((Spread(first, 2),))) == [reasons.SUPERSEDED]
        assert not made.knows(VICTIM, OWNER)

    def test_a_word_that_is_said_again_and_again_is_noted_once(self) -> None:
        """While it waits to be passed on, who knows it already is remembered, and not how often."""
        made = bag(gather=0.1)
        word = Spread(interest(made), 2)
        for _ in range(100):
            assert receive(made, Frame((word,) * 256)) == []
        (known_to,) = made.machines[VICTIM].subscriptions._waiting.values()
        assert known_to == (peer_id(ATTACKER),)

    def test_who_comes_and_goes_is_not_told_everything_each_time(self) -> None:
        """A neighbour is, that was not; and when that was too often, a while later."""
        made = bag()
        words = [Spread(interest(made, topic=f"t{number}"), 2) for number in range(1000)]
        for start in range(0, 1000, 250):
            receive(made, Frame(tuple(words[start : start + 250])))
        made.sent.clear()
        for _ in range(150):
            made.feed(VICTIM, PeerDisconnected(peer_id(ATTACKER)))
            made.feed(VICTIM, PeerConnected(peer_id(ATTACKER), RADIUS))
        assert sum(len(frame.interests) for *_, frame in made.sent) == 100_000
        made.sent.clear()
        made.now += 2.0
        made.feed(VICTIM, TimerFired(Greet(peer_id(ATTACKER))))
        assert sum(len(frame.interests) for *_, frame in made.sent) == 1000

    def test_a_false_copy_with_more_hops_spreads_the_true_word(self) -> None:
        """Hops are not signed, so they may grow; what is passed on is what was verified."""
        made = bag()
        receive(made, Frame((Spread(interest(made), 1),)))
        false = interest(made, signer=ATTACKER, addresses=(b"elsewhere",))
        receive(made, Frame((Spread(false, 5),)))
        entry = made.machines[VICTIM].subscriptions.interests.find("t", peer_id(OWNER))
        assert entry is not None
        assert entry.hops == 5
        assert entry.interest.addresses == ()

    @pytest.mark.parametrize("hops", [33, 2**31, 2**32 - 1])
    def test_absurd_hops_are_cut(self, hops: int) -> None:
        """Hops beyond the limit count as the limit, and are counted."""
        made = bag()
        assert receive(made, Frame((Spread(interest(made), hops),))) == [reasons.HOPS_CLAMPED]
        entry = made.machines[VICTIM].subscriptions.interests.find("t", peer_id(OWNER))
        assert entry is not None
        assert entry.hops == RadiusConfig().max_hops


class TestBounds:
    """Tables do not grow beyond their limits, and say so."""

    @pytest.mark.parametrize(
        ("limit", "reason"),
        [
            ("max_interests", reasons.TABLE_FULL),
            ("max_interests_per_topic", reasons.TOPIC_FULL),
        ],
    )
    def test_many_owners(self, limit: str, reason: str) -> None:
        """As many interests as allowed are kept; further ones are refused."""
        made = bag(**{limit: 10})
        words = [interest(made, owner=100 + number) for number in range(25)]
        refused = receive(made, Frame(tuple(Spread(word, 1) for word in words)))
        assert refused == [reason]
        assert len(made.machines[VICTIM].subscriptions.interests) == 10

    def test_one_owner_with_many_topics(self) -> None:
        """One owner cannot fill the table."""
        made = bag(max_interests_per_owner=10)
        words = [interest(made, topic=f"t{number}") for number in range(25)]
        assert receive(made, Frame(tuple(Spread(word, 1) for word in words))) == [
            reasons.OWNER_FULL
        ]
        assert len(made.machines[VICTIM].subscriptions.interests) == 10

    def test_signatures_to_check_are_limited(self) -> None:
        """A peer that sends new things without end is refused before they cost anything."""
        made = bag(verify_rate=1.0, verify_burst=5.0)
        words = [interest(made, owner=100 + number) for number in range(25)]
        assert receive(made, Frame(tuple(Spread(word, 1) for word in words))) == [
            reasons.TOO_MANY_NEW
        ]
        assert len(made.machines[VICTIM].subscriptions.interests) == 5

    def test_ids_of_publications(self) -> None:
        """Ids are remembered up to a limit, the older ones going first."""
        made = bag(max_delivered=100)
        for number in range(500):
            word = publication(made, time=int(made.now * 1e9) + number)
            receive(made, Frame((), (Relay(word, 0),)))
        seen = made.machines[VICTIM].seen
        assert len(seen) <= 100
        assert seen.evicted >= 400

    def test_ids_are_forgotten_in_time(self) -> None:
        """`delivered` is bounded in time."""
        made = bag()
        receive(made, Frame((), (Relay(publication(made), 0),)))
        assert len(made.machines[VICTIM].seen) == 1
        for _ in range(60):
            made.settle(made.now + 5)
        assert not len(made.machines[VICTIM].seen)

    def test_own_requests_have_limits(self) -> None:
        """The application hears why."""
        made = bag(max_subscriptions=1, max_message=8192, max_topic_length=10)
        made.subscribe(VICTIM, "t")
        with pytest.raises(LimitError, match="max_subscriptions"):
            made.subscribe(VICTIM, "u")
        with pytest.raises(LimitError, match="max_message"):
            made.publish(VICTIM, "t", bytes(8192))
        with pytest.raises(LimitError, match="max_topic_length"):
            made.publish(VICTIM, "t" * 11)
        with pytest.raises(LocalError, match="needs a name"):
            made.publish(VICTIM, "")
        with pytest.raises(LocalError, match="UTF-8"):
            made.feed(VICTIM, Publish("\ud800", b""))
        with pytest.raises(LocalError, match="either"):
            made.feed(VICTIM, Subscribe("t", publish_only=True))


class TestPublications:
    """PUB and DIRECTMSG."""

    @pytest.mark.parametrize("direct", [False, True])
    def test_forged_old_and_premature_ones_are_rejected(self, direct: bool) -> None:
        """Each for its reason; none is delivered or passed on."""
        made = bag()
        made.subscribe(VICTIM)
        made.settle()
        now, config = int(made.now * 1e9), RadiusConfig()
        old = int((config.publication_lifetime + config.clock_skew) * 1e9)
        ahead = int(config.clock_skew * 1e9)
        cases = [
            (publication(made, signer=ATTACKER), reasons.INVALID_SIGNATURE),
            (publication(made, time=now - old - 10**6), reasons.EXPIRED),
            (publication(made, time=0), reasons.EXPIRED),
            (publication(made, time=now + ahead + 10**6), reasons.TOO_FAR_AHEAD),
            (publication(made, time=2**64 - 1), reasons.TOO_FAR_AHEAD),
            (publication(made, author=VICTIM), reasons.SELF_ORIGIN),
        ]
        for word, reason in cases:
            frame = Frame(direct=(word,)) if direct else Frame((), (Relay(word, 3),))
            assert receive(made, frame) == [reason]
        assert not made.events[VICTIM]

    def test_a_replay_after_any_time_is_delivered_once(self) -> None:
        """While it is young its id is remembered; when the id is forgotten it is too old."""
        made = bag()
        made.subscribe(VICTIM)
        word = publication(made)
        for _ in range(200):
            receive(made, Frame((), (Relay(word, 3),)))
            receive(made, Frame(direct=(word,)))
            made.settle(made.now + 1)
        assert len(made.events[VICTIM]) == 1

    def test_a_forger_cannot_block_a_publication(self) -> None:
        """A false copy that comes first leaves no trace: the true one is delivered."""
        made = bag()
        made.subscribe(VICTIM)
        false = publication(made, signer=ATTACKER)
        receive(made, Frame((), (Relay(false, 3),)))
        assert receive(made, Frame((), (Relay(publication(made), 3),))) == []
        assert len(made.events[VICTIM]) == 1

    def test_a_false_copy_with_more_hops_is_not_passed_on(self) -> None:
        """A farther travelling copy is checked like the first."""
        made = bag()
        word = publication(made)
        receive(made, Frame((), (Relay(word, 1),)))
        false = msgspec.structs.replace(word, data=b"y", cached_bytes=b"")
        assert receive(made, Frame((), (Relay(false, 3),))) == [reasons.INVALID_SIGNATURE]

    def test_a_letter_for_a_topic_that_we_do_not_want_is_refused(self) -> None:
        """Nothing is delivered that was not asked for."""
        made = bag()
        frame = Frame(direct=(publication(made),))
        assert receive(made, frame) == [reasons.NOT_SUBSCRIBED]

    def test_a_letter_does_not_stop_the_flood(self) -> None:
        """A DIRECTMSG that overtakes the PUB leaves the passing on to the PUB."""
        made = Bag(3, [(0, 1), (0, 2)], sub_hops=0, pub_hops=3)
        made.subscribe(0)
        made.settle()
        word = publication(made)
        made.feed(0, Received(peer_id(1), Frame(direct=(word,))))
        assert not made.sent
        made.feed(0, Received(peer_id(1), Frame((), (Relay(word, 2),))))
        assert [(source, target) for source, target, _ in made.sent] == [(0, 2)]
        assert len(made.events[0]) == 1

    def test_absurd_hops_are_cut(self) -> None:
        """A publication with 2^31 hops is passed on with the limit less one."""
        made = Bag(3, [(0, 1), (0, 2)], sub_hops=0, pub_hops=3)
        frame = Frame((), (Relay(publication(made), 2**31),))
        made.feed(0, Received(peer_id(1), frame))
        assert made.refused[0] == [reasons.HOPS_CLAMPED]
        assert made.sent[0][2].publications[0].hops == RadiusConfig().max_hops - 1


class TestValidation:
    """What the application's validator says of publications."""

    @pytest.mark.parametrize(
        ("verdict", "delivered"),
        [(Verdict.ACCEPT, 1), (Verdict.REJECT, 0), (Verdict.IGNORE, 0)],
    )
    @pytest.mark.parametrize("deferred", [False, True])
    def test_a_verdict_counts_for_every_copy(
        self, verdict: Verdict, delivered: int, deferred: bool
    ) -> None:
        """Accepted ones are delivered once and passed on; of others no copy goes any further,
        however many hops it has left."""
        made = Bag(3, [(0, 1), (0, 2)], sub_hops=0, pub_hops=3)
        answer = Verdict.DEFER if deferred else verdict
        made.machines[0]._validator = lambda _event, _peer: answer
        made.subscribe(0)
        word = publication(made)
        made.feed(0, Received(peer_id(1), Frame((), (Relay(word, 1),))))
        made.feed(0, Received(peer_id(1), Frame((), (Relay(word, 2),))))
        if deferred:
            assert not made.sent
            made.feed(0, Validated(word.id, verdict))
        made.feed(0, Received(peer_id(1), Frame((), (Relay(word, 5),))))
        made.feed(0, Received(peer_id(2), Frame(direct=(word,))))
        assert len(made.events[0]) == delivered
        assert bool(made.sent) == bool(delivered)

    @pytest.mark.parametrize(("verdict", "passed_on"), [(Verdict.ACCEPT, 1), (Verdict.REJECT, 0)])
    def test_a_relay_asks_too(self, verdict: Verdict, passed_on: bool) -> None:
        """Also of topics that are not its own: what is rejected is not passed on."""
        made = Bag(3, [(0, 1), (0, 2)], sub_hops=0, pub_hops=3)
        made.machines[0]._validator = lambda _event, _peer: verdict
        made.feed(0, Received(peer_id(1), Frame((), (Relay(publication(made), 1),))))
        assert not made.events[0]
        assert bool(made.sent) == passed_on

    @pytest.mark.parametrize(
        ("verdict", "passed_on"),
        [(Verdict.ACCEPT, 1), (Verdict.REJECT, 0), (Verdict.IGNORE, 0), (Verdict.DEFER, 0)],
    )
    def test_what_was_fetched_and_refused_is_not_passed_on_when_it_arrives(
        self, verdict: Verdict, passed_on: bool
    ) -> None:
        """A verdict on what sync has brought counts for every copy that comes later."""
        made = Bag(3, [(0, 1), (0, 2)], sub_hops=0, pub_hops=3)
        victim = made.machines[0]
        victim._validator = victim._recovery._validator = lambda _event, _peer: verdict
        made.subscribe(0)
        word = publication(made)
        made.feed(0, Recovered(peer_id(1), word.to_event(), word))
        made.feed(0, Received(peer_id(1), Frame((), (Relay(word, 2),))))
        assert bool(made.sent) == passed_on

    def test_waiting_verdicts_are_limited(self) -> None:
        """Beyond the limit publications are refused, and counted."""
        made = bag(max_pending_validations=2)
        made.machines[VICTIM]._validator = lambda _event, _peer: Verdict.DEFER
        made.subscribe(VICTIM)
        for number in range(3):
            word = publication(made, time=int(made.now * 1e9) + number)
            refused = receive(made, Frame((), (Relay(word, 1),)))
        assert refused == [reasons.VALIDATION_THROTTLED]


class TestJunk:
    """Anything that decodes."""

    @pytest.mark.parametrize("overlay", ["links", "hyparview"])
    @given(seed=st.integers(0, 2**32))
    def test_arbitrary_frames_do_no_harm(self, overlay: str, seed: int) -> None:
        """Nothing raises, nothing is delivered, and own subscriptions stand."""
        made = bag(overlay=overlay)
        made.subscribe(VICTIM)
        rng = random.Random(seed)
        peers = [peer_id(number) for number in range(4)]
        for _ in range(20):
            frame = junk_frame(rng, peers, ["t", "u"])
            assert len(SPEC.encode(frame)) == frame.meta.size
            receive(made, frame)
        assert not made.events[VICTIM]
        assert list(made.machines[VICTIM].subscriptions.own) == ["t"]
        assert not len(made.machines[VICTIM].subscriptions.interests)


class TestConfig:
    """Configurations that contradict themselves are refused with a sentence."""

    @pytest.mark.parametrize(
        "changes",
        [
            {"overlay": "links"},
            {"overlay": "links", "sub_hops": 3},
            {"serving": "few", "fanout": 3},
            {"clock_skew": 6.0},
            {"ttl": 601.0},
            {"renew_left": 1.0},
            {"sub_hops": 33},
            {"network_size": 0},
            {"max_message": 1024},
            {"hyparview.active_size": 0},
            {"hyparview.passive_walk": 7},
            {"hyparview.epoch": 3.0},
        ],
    )
    def test_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            SPEC.configure("default", changes)
