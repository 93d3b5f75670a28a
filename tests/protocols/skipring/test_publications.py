"""Publications: the example of Figure 2, Theorems 17 and 23, histories, restarts, flooding.

Sections are those of Feldmann, Kolb, Scheideler, Strothmann: Self-Stabilizing Supervised
Publish-Subscribe Systems.
"""

import random
from itertools import count

import pytest
from publication_rig import TOPIC, Ring, Subscriber

from rumormill.core.inputs import Verdict
from rumormill.overlay.patricia import EMPTY_HASH, EVERYTHING, Prefix, Summary, leaf_hash
from rumormill.overlay.patricia import inner_hash as h
from rumormill.protocols.skipring import reasons
from rumormill.protocols.skipring.config import PublicationConfig
from rumormill.protocols.skipring.envelope import Publication, check_event
from rumormill.protocols.skipring.messages import (
    CheckAndPublish,
    CheckTrie,
    PublishBundle,
    PublishNew,
    Want,
)
from rumormill.protocols.skipring.publications import CHECK_AGAIN

SILENT = PublicationConfig(flooding=False)
"""Flooding off: "we do not rely on flooding to show convergence" (section 4.3)."""


def node(label: str, value: bytes) -> Summary:
    return Summary(Prefix.parse(label), value)


class TestFigure2:
    """The example of section 4.2: v lacks P4. Keys have three bits."""

    BITS = PublicationConfig(flooding=False, key_bits=3)

    def setup_method(self) -> None:
        self.u, self.v = Subscriber(1, self.BITS), Subscriber(2, self.BITS)
        self.u.ring, self.v.ring = [self.v.id], [self.u.id]
        self.p1, self.p2, self.p3, self.p4 = map(self.with_key, ("000", "010", "100", "101"))
        for publication in (self.p1, self.p2, self.p3, self.p4):
            self.u.has(publication)
        for publication in (self.p1, self.p2, self.p3):
            self.v.has(publication)
        self.h1, self.h2, self.h3, self.h4 = (
            leaf_hash(each.id) for each in (self.p1, self.p2, self.p3, self.p4)
        )

    def with_key(self, key: str) -> Publication:
        """Publish one text after another until h̄_3 gives the key of the figure."""
        for number in count():
            text = f"{key} {number}".encode()
            publication = self.u.author.compose(TOPIC, text, 1.0, bits=3)
            if str(Prefix(publication.id, 3)) == key:
                return publication
        raise AssertionError

    def first_letter(self, sender: Subscriber) -> CheckTrie:
        sender.timeout()
        ((_, message),) = sender.outbox
        return message

    def test_a_chain_that_u_begins_ends_at_u(self) -> None:
        """ "Both comparisons result in the hashes being equal, which ends the chain"."""
        request = self.first_letter(self.u)
        assert request.nodes == (node("", h(h(self.h1, self.h2), h(self.h3, self.h4))),)
        (answer,) = self.v.receive(self.u.id, request)
        zero = node("0", h(self.h1, self.h2))
        assert answer == CheckTrie(TOPIC, (zero, node("100", self.h3)))
        assert self.u.receive(self.v.id, answer) == []

    def test_a_chain_that_v_begins_brings_p4_to_v(self) -> None:
        """ "v sends CHECKANDPUBLISH(v, (100, h(P3)), p = 101) to u", and u sends P4."""
        request = self.first_letter(self.v)
        assert request.nodes == (node("", h(h(self.h1, self.h2), self.h3)),)
        (answer,) = self.u.receive(self.v.id, request)
        zero, one_zero = node("0", h(self.h1, self.h2)), node("10", h(self.h3, self.h4))
        assert answer == CheckTrie(TOPIC, (zero, one_zero))
        (wanted,) = self.v.receive(self.u.id, answer)
        assert wanted == CheckAndPublish(
            TOPIC, (node("100", self.h3),), (Want(Prefix.parse("101")),)
        )
        (bundle,) = self.u.receive(self.v.id, wanted)
        assert bundle.publications == (self.p4,)
        assert self.v.receive(self.u.id, bundle) == []
        assert self.v.own.root_hash == self.u.own.root_hash
        assert [event.id for event in self.v.delivered] == [self.p4.id]

    def test_equal_tries_have_equal_root_hashes_and_nothing_to_say(self) -> None:
        """ "Subscriber u does not send any response to v in this case" (case i)."""
        self.v.has(self.p4)
        assert self.u.receive(self.v.id, self.first_letter(self.v)) == []


def scattered(ring: Ring, publications: int) -> dict[bytes, None]:
    """Publications of arbitrary authors, each stored at arbitrary subscribers."""
    keys: dict[bytes, None] = {}
    for number in range(publications):
        author = ring.chance.choice(ring.members)
        publication = author.author.compose(TOPIC, b"%d" % number, 1.0, author.config.key_bits)
        keys[publication.id] = None
        for member in ring.chance.sample(ring.members, ring.chance.randrange(1, 3)):
            member.has(publication)
    return keys


class TestTheorem17:
    """ "Eventually all subscribers store a Patricia trie consisting of all publications"."""

    @pytest.mark.parametrize("size", [2, 3, 5, 9])
    @pytest.mark.parametrize("seed", range(4))
    def test_publications_at_arbitrary_nodes_reach_everyone(self, size: int, seed: int) -> None:
        """Flooding off, letters in any order; Φ never increases (Lemma 19) and ends at 0."""
        ring = Ring(size, seed, SILENT)
        keys = sorted(scattered(ring, 24))
        potential = ring.potential
        assert potential > 0
        steps = 0
        while not ring.converged:
            ring.step()
            now = ring.potential
            assert now <= potential
            potential = now
            steps += 1
            assert steps < 200_000
        assert potential == 0
        for member in ring.members:
            assert member.keys == keys
            ids = [event.id for event in member.delivered]
            assert len(ids) == len(set(ids)), "delivered exactly once"
            assert set(member.log.events) == set(keys)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(100))
    def test_from_many_starts(self, seed: int) -> None:
        """The same from a hundred random starts, with answers cut into the smallest chunks."""
        chance = random.Random(seed)
        config = PublicationConfig(
            flooding=False,
            nodes_per_message=chance.choice([2, 3, 256]),
            publications_per_message=chance.choice([1, 3, 256]),
            answer_bytes=chance.choice([1, 200, 1 << 18]),
        )
        ring = Ring(chance.randrange(2, 13), seed, config)
        keys = sorted(scattered(ring, chance.randrange(1, 60)))
        for step in range(1_000_000):
            if step % 64 == 0 and ring.converged:
                break
            ring.step()
        assert all(member.keys == keys for member in ring.members)

    def test_the_smallest_chunks_are_enough(self) -> None:
        """The smallest possible messages only take more of them."""
        config = PublicationConfig(
            flooding=False, nodes_per_message=2, publications_per_message=1, answer_bytes=1
        )
        ring = Ring(3, 5, config)
        keys = sorted(scattered(ring, 30))
        for _ in range(20_000):
            ring.step()
            if ring.converged:
                break
        assert all(member.keys == keys for member in ring.members)

    def test_limits_that_bite_do_not_stop_it(self) -> None:
        """Far more differences than an interval has room for: every interval finds some of them."""
        config = PublicationConfig(flooding=False, nodes_per_message=8, nodes_per_interval=300)
        ring = Ring(2, 1, config)
        for member in ring.members:
            for number in range(400):
                member.publish(b"%d" % number)
        intervals = 0
        while not ring.converged and intervals < 400:
            missing = ring.potential
            for _ in range(4):
                for member in ring.members:
                    member.timeout()
                ring.drain()
                intervals += 1
            assert ring.potential < missing
        assert ring.converged


class TestTheorem23:
    """ "No Patricia trie is modified ... as long as no subscriber issues a publish request"."""

    def test_nothing_moves_when_all_tries_are_equal(self) -> None:
        """ "The only type of request regarding publications is the periodic CHECKTRIE request"."""
        ring = Ring(6, 3, SILENT)
        scattered(ring, 20)
        for _ in range(50_000):
            ring.step()
            if ring.converged:
                break
        ring.drain()
        hashes = [member.own.root_hash for member in ring.members]
        delivered = [len(member.delivered) for member in ring.members]
        for _ in range(1000):
            before = ring.sent
            for member in ring.members:
                member.timeout()
            ring.drain()
            assert ring.sent - before == len(ring.members)
        assert [member.own.root_hash for member in ring.members] == hashes
        assert [len(member.delivered) for member in ring.members] == delivered

    def test_empty_tries_are_equal(self) -> None:
        """A ring without any publication is silent but for the checks."""
        ring = Ring(4, 1, SILENT)
        for member in ring.members:
            member.timeout()
        ring.drain()
        assert ring.sent == 4
        assert {member.own.root_hash for member in ring.members} == {EMPTY_HASH}


class TestHistory:
    """Late subscribers and restarted ones."""

    @pytest.mark.parametrize("late_starts", [True, False])
    def test_a_late_subscriber_receives_the_whole_history_in_one_round(self, late_starts) -> None:
        """Whoever begins: chunk after chunk is asked for until everything is there."""
        config = PublicationConfig(flooding=False, publications_per_message=16)
        ring = Ring(2, 1, config)
        old, late = ring.members
        published = [old.publish(b"%d" % number) for number in range(200)]
        (late if late_starts else old).timeout()
        ring.drain()
        assert late.own.root_hash == old.own.root_hash
        assert sorted(event.id for event in late.delivered) == sorted(p.id for p in published)
        assert {event.data for event in late.delivered} == {b"%d" % n for n in range(200)}

    def test_answers_are_bounded_and_name_the_rest(self) -> None:
        """No answer exceeds its limits, and the rest begins behind the last publication sent."""
        config = PublicationConfig(flooding=False, publications_per_message=10)
        old = Subscriber(1, config)
        for number in range(25):
            old.publish(b"%d" % number)
        sizes, wants = [], (Want(EVERYTHING),)
        while wants:
            bundle, *_ = old.receive(b"late", CheckAndPublish(TOPIC, (), wants))
            sizes.append(len(bundle.publications))
            wants = bundle.rest
        assert sizes == [10, 10, 5]

    def test_answers_are_bounded_in_bytes(self) -> None:
        """A publication that is larger than an answer travels alone."""
        config = PublicationConfig(flooding=False, answer_bytes=1000)
        old = Subscriber(1, config)
        for length in (400, 400, 5000, 400, 400, 400):
            old.publish(bytes(length))
        wants: tuple[Want, ...] = (Want(EVERYTHING),)
        total = 0
        while wants:
            bundle, *_ = old.receive(b"late", CheckAndPublish(TOPIC, (), wants))
            assert len(bundle.publications) == 1 or bundle.body.size(bundle) <= 1100
            total += len(bundle.publications)
            wants = bundle.rest
        assert total == 6

    def test_the_trie_is_rebuilt_from_the_log(self) -> None:
        """A restart loses nothing, delivers nothing again, and still answers for all of it."""
        ring = Ring(2, 1, SILENT)
        first, second = ring.members
        for number in range(20):
            first.publish(b"%d" % number)
        first.timeout()
        ring.drain()
        before, delivered = second.own.root_hash, len(second.delivered)
        second.restart()
        assert second.own.root_hash == before == first.own.root_hash
        for member in ring.members:
            member.timeout()
        ring.drain()
        assert len(second.delivered) == delivered == 20

    def test_events_of_another_protocol_in_the_log_are_passed_over(self) -> None:
        """Only what has a publication's name becomes part of the trie."""
        one = Subscriber(1, SILENT)
        publication = one.publish(b"ours")
        event = publication.to_event()
        other = type(event)(TOPIC, b"theirs", b"author", b"12 byte name", proof=b"\xff\xff")
        renamed = type(event)(TOPIC, b"theirs", b"author", bytes(32), proof=event.proof)
        one.log.events[other.id] = other
        one.log.events[renamed.id] = renamed
        one.restart()
        assert one.keys == [publication.id]

    def test_what_is_no_longer_kept_is_counted_and_the_rest_is_sent(self) -> None:
        """A publication whose data is gone does not stop the answer, and is not the asker's fault:
        retention has deleted it."""
        one = Subscriber(1, SILENT)
        gone, *rest = [one.publish(b"%d" % number) for number in range(3)]
        del one.log.events[gone.id]
        (bundle,) = one.receive(b"peer", CheckAndPublish(TOPIC, (), (Want(EVERYTHING),)))
        assert {each.id for each in bundle.publications} == {each.id for each in rest}
        assert one.blamed == [(one.id, "no-longer-kept")]

    def test_a_kept_event_convinces_a_third_party(self) -> None:
        """Event and proof together show that the author said it, in this topic."""
        one, another = Subscriber(1, SILENT), Subscriber(2, SILENT)
        event = one.publish(b"said").to_event()
        assert event.created == 1.0
        assert check_event(event, another.identity)
        changes = (
            {"data": b"never said"},
            {"topic": "other"},
            {"author": another.id},
            {"proof": b""},
            {"proof": b"\xff"},
            {"id": bytes(32)},
            {"data": b""},
        )
        for change in changes:
            fields = {name: getattr(event, name) for name in event.__struct_fields__}
            assert not check_event(type(event)(**{**fields, **change}), another.identity), change


class TestPublishing:
    """Own publications and the flood of section 4.3."""

    def test_the_same_text_twice_is_two_publications(self) -> None:
        """The envelope has a sequence number, so the keys differ."""
        one = Subscriber(1, SILENT)
        first, second = one.publish(b"same"), one.publish(b"same")
        assert first.id != second.id
        assert len(one.keys) == 2
        assert [event.data for event in one.delivered] == [b"same", b"same"]

    def test_a_restarted_author_does_not_repeat_sequence_numbers(self) -> None:
        """Numbers begin at the clock."""
        one = Subscriber(1, SILENT)
        one.author.start(100.0)
        first = one.author.compose(TOPIC, b"", 100.0)
        one.author.start(101.0)
        assert one.author.compose(TOPIC, b"", 101.0).seqno > first.seqno > 100e9

    def test_a_new_publication_floods_ring_and_shortcuts_and_is_delivered_once(self) -> None:
        """ "In case that p is already stored in v.T, v just drops the message"."""
        ring = Ring(8, 2, PublicationConfig())
        for place, member in enumerate(ring.members):
            member.shortcuts = [ring.members[(place + 4) % 8].id]
        ring.members[0].publish(b"news")
        assert len(ring.members[0].outbox) == 3
        ring.drain()
        assert ring.converged
        assert all(len(member.delivered) == 1 for member in ring.members)
        assert ring.sent == 3 + 7 * 2, "each sends to all of its neighbours but the first sender"

    def test_a_neighbour_in_two_places_is_sent_one_copy(self) -> None:
        """A ring neighbour may be a shortcut too."""
        one = Subscriber(1, PublicationConfig())
        one.ring, one.shortcuts = [b"a", b"b"], [b"b"]
        one.publish(b"news")
        assert [peer for peer, _ in one.outbox] == [b"a", b"b"]

    def test_a_little_that_the_tries_bring_is_flooded_on(self) -> None:
        """Flooding missed it here, so it may have missed others: neighbour by neighbour the tries
        would take seconds for each. Not a history, which we lack alone, nor a part of one."""
        one, other = Subscriber(1, PublicationConfig()), Subscriber(2, SILENT)
        one.ring, one.shortcuts = [b"a", b"b"], [b"c"]
        found = [other.publish(b"%d" % number) for number in range(2 * CHECK_AGAIN)]
        one.receive(b"a", PublishBundle(TOPIC, tuple(found[:2])))
        assert one.outbox == [
            (near, PublishNew(TOPIC, each)) for each in found[:2] for near in (b"b", b"c")
        ]
        one.outbox.clear()
        assert one.receive(b"a", PublishBundle(TOPIC, tuple(found[2 : 2 + CHECK_AGAIN]))) == []
        rest = (Want(EVERYTHING),)
        one.receive(b"a", PublishBundle(TOPIC, (found[-1],), rest))
        assert one.outbox == [(b"a", CheckAndPublish(TOPIC, (), rest))]
        assert len(one.delivered) == 3 + CHECK_AGAIN

    def test_what_only_one_has_is_everywhere_as_soon_as_a_neighbour_has_it(self) -> None:
        """A publication whose flood was lost, at somebody who comes back with it."""
        ring = Ring(64, 3, PublicationConfig())
        lost = ring.members[0].author.compose(TOPIC, b"lost", 1.0)
        ring.members[0].has(lost)
        ring.members[0].timeout()
        ring.drain()
        assert ring.converged
        assert all(lost.id in member.own.trie for member in ring.members)


class TestValidation:
    """The application judges what peers bring."""

    def test_refused_publications_are_not_kept_and_not_judged_again(self) -> None:
        """Neighbours go on offering them: each offer costs a table lookup."""
        for verdict in (Verdict.REJECT, Verdict.IGNORE):
            judged = []

            def validator(event, peer, answer=verdict, seen=judged) -> Verdict:
                seen.append(event.id)
                return answer

            one = Subscriber(1, SILENT, validator)
            publication = Subscriber(2, SILENT).publish(b"spam")
            for _ in range(3):
                one.receive(b"peer", PublishNew(TOPIC, publication))
            assert judged == [publication.id]
            assert one.keys == []
            assert one.delivered == []
            assert sum(one.refusals.values()) == 3

    @pytest.mark.parametrize("deferred", [False, True])
    def test_nobody_is_to_blame_for_what_we_lacked_and_refuse(self, deferred: bool) -> None:
        """Whoever floods it is; but what the tries bring was taken by rules of its keeper's own."""
        one = Subscriber(
            1, SILENT, lambda event, peer: Verdict.DEFER if deferred else Verdict.REJECT
        )
        kept, new = (Subscriber(2, SILENT).publish(text) for text in (b"kept", b"new"))
        for message in (
            PublishBundle(TOPIC, (kept,)),
            PublishNew(TOPIC, new),
            PublishBundle(TOPIC, (kept, new)),
            PublishNew(TOPIC, kept),
        ):
            one.receive(b"peer", message)
            for publication in (kept, new) if deferred else ():
                one.judge(publication.id, Verdict.REJECT)
        assert one.blamed == [
            (one.id, reasons.VALIDATION_FAILED),
            (b"peer", reasons.VALIDATION_FAILED),
            (one.id, reasons.REFUSED_BEFORE),
            (one.id, reasons.REFUSED_BEFORE),
            (b"peer", reasons.REFUSED_BEFORE),
        ]

    def test_a_deferred_verdict_counts_when_it_comes(self) -> None:
        """Until then the publication is neither delivered nor passed on."""
        config = PublicationConfig(max_pending_validations=2)
        one = Subscriber(1, config, lambda event, peer: Verdict.DEFER)
        one.ring = [b"a", b"b"]
        other = Subscriber(2, SILENT)
        first, second, third = (other.publish(text) for text in (b"1", b"2", b"3"))
        for publication in (first, first, second, third):
            assert one.receive(b"a", PublishNew(TOPIC, publication)) == []
        assert [event.id for event in one.asked] == [first.id, second.id]
        assert one.refusals == {"validation throttled": 1}
        one.judge(first.id, Verdict.ACCEPT)
        one.judge(second.id, Verdict.REJECT)
        one.judge(third.id, Verdict.ACCEPT)
        assert one.keys == [first.id]
        assert one.outbox == [(b"b", PublishNew(TOPIC, first))]


class TestRefusedInTheWay:
    """Publications that a subscriber refuses stay different for ever; they must hide no others."""

    def test_what_lies_behind_refused_publications_is_found(self) -> None:
        """More refused ones than a check has room for, all in front of the true ones."""

        def no_spam(event, peer) -> Verdict:
            return Verdict.REJECT if event.data.startswith(b"spam") else Verdict.ACCEPT

        config = PublicationConfig(flooding=False, nodes_per_message=8)
        ring = Ring(2, 1, config)
        picky, other = ring.members
        picky.validator = no_spam
        for number in range(100):
            old = self.composed(other, b"old %d" % number, front=number % 2 == 0)
            for member in ring.members:
                member.has(old)
        picky.restart()
        for number in range(40):
            other.has(self.composed(other, b"spam %d" % number, front=True))
        true = [self.composed(other, b"true %d" % number, front=False) for number in range(5)]
        for publication in true:
            other.has(publication)
        for _ in range(300):
            for member in ring.members:
                member.timeout()
                ring.drain()
        assert {event.id for event in picky.delivered} == {each.id for each in true}
        assert not any(b"spam" in event.data for event in picky.log.events.values())

    def composed(self, author: Subscriber, text: bytes, *, front: bool) -> Publication:
        """A publication whose key lies in the first or in the second half of all keys."""
        for _ in range(100):
            publication = author.author.compose(TOPIC, text, 1.0)
            if (publication.id[0] < 0x80) == front:
                return publication
        raise AssertionError
