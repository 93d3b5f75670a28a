"""The ledger: every pair of an event and an expected subscriber is in exactly one state."""

from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.trace import (
    DeliverMessage,
    DropRPC,
    FailPublish,
    Join,
    Leave,
    MessageMeta,
    NodeDown,
    NodeUp,
    PublishMessage,
    RejectMessage,
    RpcMeta,
    UndeliverableMessage,
)
from rumormill.trace import ledger as ledger_module
from rumormill.trace.ledger import NOT_PUBLISHED, OTHER_REASONS, Ledger

A, B, C, D = b"a", b"b", b"c", b"d"
M1, M2 = b"m1", b"m2"


def ledger_of(*happenings):
    """A ledger into which (peer, payload) pairs were entered in one batch."""
    ledger = Ledger()
    ledger.observe([(0.0, peer, payload) for peer, payload in happenings])
    return ledger


def three_up():
    """A, B and C are up and subscribe to `t`."""
    return [(peer, payload) for peer in (A, B, C) for payload in (NodeUp(), Join("t"))]


def publish(message_id=M1, topic="t"):
    return PublishMessage(message_id, topic)


def deliver(message_id=M1, source=A):
    return DeliverMessage(message_id, "t", source)


def lost(to, reason, *message_ids):
    messages = tuple(MessageMeta(message_id, "t") for message_id in message_ids)
    return DropRPC(to, RpcMeta(messages=messages), reason)


def standing(ledger, topic="t"):
    """(expected, delivered, pending, dropped) of a topic."""
    sums = ledger.sums()[topic]
    return sums.expected, sums.delivered, sums.pending, sums.dropped


def test_every_subscriber_that_is_up_is_expected_the_publisher_too():
    """Three subscribers: three pairs, of which the publisher's own is delivered at once."""
    ledger = ledger_of(*three_up(), (A, publish()), (A, deliver()))
    assert standing(ledger) == (3, 1, 2, {})


def test_a_publisher_that_does_not_subscribe_is_no_pair():
    """Only subscribers are owed an event."""
    ledger = ledger_of((B, Join("t")), (A, publish()), (B, deliver()))
    assert standing(ledger) == (1, 1, 0, {})


def test_peers_that_are_down_or_have_left_are_not_expected():
    """B is down and C has left when A publishes."""
    ledger = ledger_of(*three_up(), (B, NodeDown("crash")), (C, Leave("t")), (A, publish()))
    assert standing(ledger) == (1, 0, 1, {})


def test_a_subscription_outlives_a_restart():
    """B was down for a while and does not join again: it is expected again once it is up."""
    ledger = ledger_of(*three_up(), (B, NodeDown("crash")), (B, NodeUp()), (A, publish()))
    assert standing(ledger) == (3, 0, 3, {})


def test_joining_while_down_counts_from_the_start_on():
    """A subscription made before the peer is up again takes effect when it is."""
    ledger = ledger_of(
        (B, NodeDown("stop")),
        (B, Join("t")),
        (A, publish(M1)),
        (B, NodeUp()),
        (A, publish(M2)),
    )
    assert standing(ledger) == (1, 0, 1, {})


def test_going_down_or_leaving_before_the_delivery_drops_the_pair():
    """Each of the two has its own reason."""
    ledger = ledger_of(*three_up(), (A, publish()), (B, NodeDown("crash")), (C, Leave("t")))
    assert standing(ledger) == (3, 0, 1, {"subscriber-down": 1, "subscriber-left": 1})


def test_going_down_after_the_delivery_changes_nothing():
    """What was delivered stays delivered."""
    ledger = ledger_of(*three_up(), (A, publish()), (B, deliver()), (B, NodeDown("crash")))
    assert standing(ledger) == (3, 1, 2, {})


def test_delivered_wins_over_down():
    """B returns and gets the event after all."""
    ledger = ledger_of(
        *three_up(), (A, publish()), (B, NodeDown("crash")), (B, NodeUp()), (B, deliver())
    )
    assert standing(ledger) == (3, 1, 2, {})


def test_a_rejected_event_is_dropped_for_the_rejects_reason_unless_a_copy_is_delivered():
    """The first copy is refused at B and C; C accepts another one."""
    refused = RejectMessage(M1, A, "blacklisted peer", "t")
    ledger = ledger_of(*three_up(), (A, publish()), (B, refused), (C, refused), (C, deliver()))
    assert standing(ledger) == (3, 1, 1, {"blacklisted peer": 1})


def test_an_undeliverable_event_is_dropped_before_and_after_its_delivery_was_traced():
    """The application's queue decides, whichever of the two is recorded first."""
    full = UndeliverableMessage(M1, "t", "queue-full")
    ledger = ledger_of(*three_up(), (A, publish()), (B, deliver()), (B, full), (C, full))
    assert standing(ledger) == (3, 0, 1, {"undeliverable": 2})


def test_an_undeliverable_event_is_found_again_after_everybody_had_it():
    """The table of a fully delivered event was freed; it comes back."""
    full = UndeliverableMessage(M1, "t", "queue-full")
    everybody = [(peer, deliver()) for peer in (A, B, C)]
    ledger = ledger_of(*three_up(), (A, publish()), *everybody, (B, full))
    assert standing(ledger) == (3, 2, 0, {"undeliverable": 1})
    ledger.observe([(1.0, B, deliver())])
    assert standing(ledger) == (3, 3, 0, {})


def test_a_lost_copy_is_a_reason_only_when_nothing_came_later():
    """Two copies for B are lost, one for C, but C gets another: at the end B's last loss counts."""
    ledger = ledger_of(
        *three_up(),
        (A, publish()),
        (A, deliver()),
        (A, lost(B, "loss", M1)),
        (C, lost(B, "queue-full", M1)),
        (A, lost(C, "loss", M1)),
        (C, deliver()),
    )
    assert standing(ledger) == (3, 2, 1, {})
    ledger.close()
    assert standing(ledger) == (3, 2, 0, {"queue-full": 1})


def test_a_pair_of_which_nothing_is_known_stays_pending():
    """Closing invents no reason."""
    ledger = ledger_of(*three_up(), (A, publish()), (A, lost(B, "", M1)))
    ledger.close()
    assert standing(ledger) == (3, 0, 2, {"unspecified": 1})


def test_a_loss_before_leaving_ends_as_left():
    """The note of a lost copy does not outlive the subscription."""
    ledger = ledger_of(*three_up(), (A, publish()), (A, lost(B, "loss", M1)), (B, Leave("t")))
    ledger.close()
    assert standing(ledger) == (3, 0, 2, {"subscriber-left": 1})


def test_deliveries_beyond_the_pairs_are_counted_apart():
    """D joined later: extra. B delivers twice: repeated. Nobody published M2: unpublished."""
    ledger = ledger_of(
        *three_up(),
        (A, publish()),
        (D, Join("t")),
        (D, deliver()),
        (B, deliver()),
        (B, deliver()),
        (B, deliver(M2)),
    )
    sums = ledger.sums()["t"]
    assert (sums.expected, sums.delivered, sums.pending) == (3, 1, 2)
    assert (sums.extra, sums.repeated, ledger.unpublished) == (1, 1, 1)


def test_a_delivery_before_its_publication_counts_with_it():
    """B's clock is behind A's: nothing is lost, nor counted twice, and D was not expected."""
    early = [(B, deliver()), (B, deliver()), (D, deliver())]
    ledger = ledger_of(*three_up(), *early)
    assert ledger.unpublished == 3
    ledger.observe([(0.0, A, publish())])
    sums = ledger.sums()["t"]
    assert (sums.expected, sums.delivered, sums.pending) == (3, 1, 2)
    assert (sums.extra, sums.repeated, ledger.unpublished) == (1, 1, 0)


def test_few_deliveries_wait_for_their_publication(monkeypatch):
    """The latest; what is older was never published, as far as the ledger is concerned."""
    monkeypatch.setattr(ledger_module, "MAX_EARLY", 2)
    early = [(B, deliver(M1)), (B, deliver(M2)), (C, deliver(M2))]
    ledger = ledger_of(*three_up(), *early, (A, publish(M1)), (A, publish(M2)))
    assert standing(ledger) == (6, 2, 4, {})
    assert ledger.unpublished == 1


def test_deliveries_after_everybody_has_it_are_told_apart_too():
    """Without its table an event still knows who was expected."""
    everybody = [(peer, deliver()) for peer in (A, B, C)]
    ledger = ledger_of(*three_up(), (A, publish()), *everybody, (B, deliver()), (D, deliver()))
    sums = ledger.sums()["t"]
    assert (sums.delivered, sums.extra, sums.repeated) == (3, 1, 1)


def test_publishing_the_same_event_again_opens_no_second_account():
    """The id decides."""
    ledger = ledger_of(*three_up(), (A, publish()), (B, publish()))
    assert standing(ledger) == (3, 0, 3, {})
    assert ledger.republished == 1


def test_topics_have_their_own_sums():
    """What happens on one topic does not show on another."""
    ledger = ledger_of(
        (A, Join("t")), (A, Join("u")), (B, Join("u")), (A, publish(M1)), (A, publish(M2, "u"))
    )
    assert standing(ledger, "t") == (1, 0, 1, {})
    assert standing(ledger, "u") == (2, 0, 2, {})
    assert ledger.total().expected == 3


def test_reasons_beyond_the_table_share_one_name():
    """A peer that invents reasons cannot make the ledger grow: the sums still hold."""
    ledger = ledger_of((A, Join("t")))
    for number in range(300):
        message_id = number.to_bytes(2, "big")
        ledger.publish(A, publish(message_id))
        ledger.reject(A, RejectMessage(message_id, B, f"reason {number}", "t"))
    sums = ledger.sums()["t"]
    assert sum(sums.dropped.values()) == 300
    assert len(sums.dropped) <= 125
    assert sums.dropped[OTHER_REASONS] > 150


def test_events_beyond_the_limit_are_counted_and_not_followed(monkeypatch):
    """The table of events is bounded."""
    monkeypatch.setattr(ledger_module, "MAX_EVENTS", 1)
    ledger = ledger_of(*three_up(), (A, publish(M1)), (A, publish(M2)), (B, deliver(M2)))
    assert standing(ledger) == (3, 0, 3, {})
    assert (ledger.untracked, ledger.unpublished) == (1, 1)


class Model:
    """The ledger's rules in the plainest form: a dictionary from pair to state."""

    def __init__(self):
        self.up, self.subscribed = {}, {}
        self.pairs, self.notes, self.known, self.early = {}, {}, set(), {}

    def enter(self, peer, payload):
        match payload:
            case NodeUp():
                self.up[peer] = True
            case NodeDown():
                self.up[peer] = False
                for topic in self.subscribed.get(peer, ()):
                    self._drop_all(peer, topic, "subscriber-down")
            case Join(topic):
                self.subscribed.setdefault(peer, {})[topic] = None
            case Leave(topic):
                if self.subscribed.get(peer, {}).pop(topic, 0) is None:
                    self._drop_all(peer, topic, "subscriber-left")
            case _:
                self._enter_message(peer, payload)

    def _enter_message(self, peer, payload):
        match payload:
            case PublishMessage(message_id, topic) if message_id not in self.known:
                self.known.add(message_id)
                for other, topics in self.subscribed.items():
                    if topic in topics and self.up.get(other, True):
                        self.pairs[message_id, other] = (topic, "pending")
                for early in self.early.get(message_id, ()):
                    self._enter_message(*early)
            case DeliverMessage(message_id) if message_id not in self.known:
                self.early.setdefault(message_id, []).append((peer, payload))
            case DeliverMessage(message_id):
                self._move((message_id, peer), "delivered", lambda state: True)
            case RejectMessage(message_id):
                self._move((message_id, peer), payload.reason, lambda state: state == "pending")
            case UndeliverableMessage(message_id):
                allowed = ("pending", "delivered")
                self._move((message_id, peer), "undeliverable", lambda state: state in allowed)
            case DropRPC(send_to):
                for message in payload.meta.messages:
                    if (message.message_id, send_to) in self.pairs:
                        self.notes[message.message_id, send_to] = payload.reason

    def close(self):
        for pair, reason in self.notes.items():
            self._move(pair, reason, lambda state: state == "pending")

    def _drop_all(self, peer, topic, reason):
        for pair, (of, state) in self.pairs.items():
            if pair[1] == peer and of == topic and state == "pending":
                self.pairs[pair] = (of, reason)

    def _move(self, pair, target, allowed):
        if pair in self.pairs and allowed(self.pairs[pair][1]):
            self.pairs[pair] = (self.pairs[pair][0], target)

    def standing(self, topic):
        states = [state for of, state in self.pairs.values() if of == topic]
        dropped = {s: states.count(s) for s in states if s not in ("pending", "delivered")}
        return len(states), states.count("delivered"), states.count("pending"), dropped


PEERS = st.sampled_from([A, B, C, D])
TOPICS = st.sampled_from(["t", "u"])
IDS = st.sampled_from([b"1", b"2", b"3"])
REASONS = st.sampled_from(["loss", "queue-full"])
PAYLOADS = st.one_of(
    st.just(NodeUp()),
    st.just(NodeDown("crash")),
    st.builds(Join, TOPICS),
    st.builds(Leave, TOPICS),
    st.builds(PublishMessage, IDS, TOPICS),
    st.builds(DeliverMessage, IDS, TOPICS, PEERS),
    st.builds(RejectMessage, IDS, PEERS, REASONS, TOPICS),
    st.builds(UndeliverableMessage, IDS, TOPICS, REASONS),
    st.builds(lost, PEERS, REASONS, IDS, IDS),
)


@given(st.lists(st.tuples(PEERS, PAYLOADS), max_size=60))
def test_any_sequence_keeps_the_sums_and_agrees_with_the_plain_rules(happenings):
    """After every step: expected = delivered + pending + dropped, as a plain model says."""
    ledger, model = Ledger(), Model()

    def check():
        for topic, sums in ledger.sums().items():
            assert sums.expected == sums.delivered + sums.pending + sum(sums.dropped.values())
            assert standing(ledger, topic) == model.standing(topic)

    for peer, payload in happenings:
        ledger.observe([(0.0, peer, payload)])
        model.enter(peer, payload)
        check()
    ledger.close()
    model.close()
    check()


def test_what_could_not_be_published_is_owed_to_those_who_would_have_been_owed_it():
    """Nobody can get it: three pairs are dropped, and who joins later was owed nothing."""
    ledger = ledger_of(*three_up(), (A, FailPublish("t", "refused")), (D, NodeUp()), (D, Join("t")))
    assert standing(ledger) == (3, 0, 0, {NOT_PUBLISHED: 3})
    assert ledger.sums()["t"].published == 0
