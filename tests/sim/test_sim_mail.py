"""Letters and questions: what travels without a connection, what it costs, and how it fails."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_rig import LATENCY, Net, Note, PairLatency

from rumormill.core.effects import Answer, Ask, Connect, Decline, Disconnect, Effect, Learn, Mail
from rumormill.core.inputs import (
    NO_ANSWER,
    Answered,
    Asked,
    AskFailed,
    ConnectFailed,
    PeerConnected,
    Received,
    SendDropped,
)
from rumormill.core.trace import DropRPC, RecvRPC, SendRPC
from rumormill.sim import mail
from rumormill.sim.link import LOST, PEER_DOWN, QUEUE_FULL
from rumormill.sim.mail import DECLINED, IDLE_AFTER, UNKNOWN_PEER, UNREACHABLE
from rumormill.sim.network import CRASHED, NO_COMMON_PROTOCOL

STRANGER = b"\xff\xff\xff\xff"


def times(net: Net, index: int) -> list[float]:
    """When letters arrived."""
    return [now for now, _ in net.arrivals(index)]


def told(net: Net, index: int) -> list[tuple[float, object]]:
    """Everything that a machine was told since its start, with the time."""
    return net.probe(index).inputs[1:]


# The way of a letter.


def test_the_first_letter_pays_a_handshake_and_later_ones_do_not() -> None:
    """Three ways for the first, one for those that find the route warm; nobody is connected."""
    net = Net(2)
    net.mail(0, 1, "first")
    net.run(1.0)
    net.mail(0, 1, "second")
    net.run(1.0)
    assert times(net, 1) == pytest.approx([3 * LATENCY, 1.0 + LATENCY])
    assert [sent.send_to for sent in net.trace(SendRPC, 0)] == [net.host(1).id] * 2
    assert [got.received_from for got in net.trace(RecvRPC, 1)] == [net.host(0).id] * 2
    assert not net.linked(0, 1)
    assert net.inputs(0, PeerConnected) + net.inputs(1, PeerConnected) == []


def test_letters_that_wait_for_the_handshake_stay_in_order() -> None:
    """What is sent during the handshake arrives behind what was sent before."""
    net = Net(2)
    for text in "abcd":
        net.mail(0, 1, text)
        net.run(0.03)
    net.run(1.0)
    assert net.arrivals(1) == [
        (pytest.approx(at), text)
        for at, text in ((0.15, "a"), (0.15, "b"), (0.15, "c"), (0.15, "d"))
    ]


def test_what_comes_back_needs_no_handshake() -> None:
    """A connection serves both directions."""
    net = Net(2)
    net.mail(0, 1, "hello")
    net.run(3 * LATENCY)
    net.mail(1, 0, "hello yourself")
    net.run(1.0)
    assert times(net, 0) == pytest.approx([4 * LATENCY])


@pytest.mark.parametrize(("pause", "ways"), [(IDLE_AFTER - 1, 1), (IDLE_AFTER + 1, 3)])
def test_an_idle_route_goes_cold(pause: float, ways: int) -> None:
    """After a minute without letters the next one shakes hands again."""
    net = Net(2)
    net.mail(0, 1, "early")
    net.run(pause)
    net.mail(0, 1, "late")
    net.run(1.0)
    assert times(net, 1)[1] == pytest.approx(pause + ways * LATENCY)


def test_a_closed_or_restarted_peer_needs_a_handshake() -> None:
    """A `Disconnect` and a crash both end the connection that a route stands for."""
    net = Net(2)
    net.mail(0, 1, "warm")
    net.run(1.0)
    net.act(0, Disconnect(net.host(1).id, "done"))
    net.mail(0, 1, "after closing")
    net.run(1.0)
    assert times(net, 1)[1] == pytest.approx(1.0 + 3 * LATENCY)
    net.network.crash(net.host(1))
    net.network.start(net.host(1))
    net.mail(0, 1, "after a restart")
    net.run(1.0)
    assert times(net, 1) == pytest.approx([2.0 + 3 * LATENCY])


def test_warm_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The route that was not used for longest is closed first."""
    monkeypatch.setattr(mail, "MOST_ROUTES", 2)
    net = Net(4)
    for target in (1, 2, 1, 3):
        net.mail(0, target, "x")
        net.run(1.0)
    assert [number for number in range(4) if net.host(0).warm.since(number) > 0] == [1, 3]
    net.mail(0, 2, "cold")
    net.mail(0, 3, "warm")
    net.run(1.0)
    assert times(net, 2)[-1] == pytest.approx(4.0 + 3 * LATENCY)
    assert times(net, 3)[-1] == pytest.approx(4.0 + LATENCY)


def test_a_letter_to_a_connected_peer_takes_the_link() -> None:
    """It costs what a `Send` costs, and opens no route."""
    net = Net(2)
    net.connect(0, 1)
    net.mail(0, 1, "hello")
    net.run(1.0)
    assert times(net, 1) == pytest.approx([0.1 + LATENCY])
    assert not net.host(0).routes
    assert not net.host(0).warm


def test_a_new_connection_does_not_overtake_letters() -> None:
    """A letter sent before the link stood arrives before one sent over it."""
    net = Net(2)
    net.network.dial(net.host(0), net.host(1).id)
    net.run(0.04)
    net.mail(0, 1, "before")
    net.run(0.02)
    assert net.linked(0, 1)
    net.mail(0, 1, "after")
    net.run(1.0)
    assert net.texts(1) == ["before", "after"]


@given(st.integers(0, 2**32), st.lists(st.floats(0.0, 0.03), min_size=2, max_size=20))
def test_jitter_delays_letters_and_never_reorders_them(seed: int, gaps: list[float]) -> None:
    """The faults of links strike letters too."""
    net = Net(2, jitter=0.1, seed=seed)
    for number, gap in enumerate(gaps):
        net.mail(0, 1, str(number))
        net.run(gap)
    net.run(1.0)
    assert net.texts(1) == [str(number) for number in range(len(gaps))]
    assert 0.15 - 1e-9 <= times(net, 1)[0] <= 0.25 + 1e-9


def test_reordering_and_loss_strike_letters() -> None:
    """A lost letter is traced and nobody is told; others may overtake each other."""
    net = Net(2, jitter=0.1, reorder=0.5, loss=0.2)
    texts = [f"{number:03}" for number in range(200)]
    for text in texts:
        net.mail(0, 1, text)
        net.run(0.001)
    net.run(1.0)
    lost = net.trace(DropRPC, 0)
    assert {drop.reason for drop in lost} == {LOST}
    assert 20 < len(lost) < 60
    assert len(lost) + len(net.texts(1)) == 200
    assert net.texts(1) != sorted(net.texts(1))
    assert net.inputs(0, SendDropped) == []


def test_letters_take_bandwidth() -> None:
    """100 bytes at 1000 bytes per second are 100 ms up, during the handshake or after it."""
    net = Net(2, upload=1000.0, download=1000.0)
    net.mail(0, 1, "one", "two")
    net.run(1.0)
    assert times(net, 1) == pytest.approx([0.1 + LATENCY + 0.1, 0.2 + LATENCY + 0.1])


def test_a_full_upload_queue_drops_letters() -> None:
    """As on a link: traced, and told to the sender."""
    net = Net(2, upload=1000.0, queue_limit=1)
    net.mail(0, 1, "a", "b")
    net.run(1.0)
    assert net.texts(1) == ["a"]
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [QUEUE_FULL]
    assert net.inputs(0, SendDropped) == [SendDropped(net.host(1).id, Note("b"), QUEUE_FULL)]


def test_a_paused_peer_reads_its_letters_later() -> None:
    """Letters wait in the inbox like what comes over links, and its limit holds."""
    net = Net(2, queue_limit=2)
    net.host(1).pause()
    net.mail(0, 1, "a", "b", "c")
    net.run(1.0)
    assert net.texts(1) == []
    net.host(1).resume()
    assert net.texts(1) == ["a", "b"]
    assert net.inputs(0, SendDropped) == [SendDropped(net.host(1).id, Note("c"), QUEUE_FULL)]


# Letters that do not arrive.


def test_a_letter_to_a_peer_that_is_down_comes_back_after_a_round_trip() -> None:
    """It was never sent, so nothing but the drop is traced."""
    net = Net(2, latency=PairLatency({(0, 1): 0.02, (1, 0): 0.03}))
    net.network.crash(net.host(1))
    net.mail(0, 1, "anybody?")
    net.run(1.0)
    assert told(net, 0) == [(0.05, SendDropped(net.host(1).id, Note("anybody?"), PEER_DOWN))]
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [PEER_DOWN]
    assert net.trace(SendRPC, 0) == []


def test_a_letter_to_nobody_and_to_oneself_comes_back() -> None:
    """An id that no peer has is known to be unknown after a while."""
    net = Net(1)
    net.act(0, Mail(STRANGER, Note("x")), Mail(net.host(0).id, Note("y")))
    net.run(1.0)
    assert [(drop.peer, drop.reason) for drop in net.inputs(0, SendDropped)] == [
        (STRANGER, UNKNOWN_PEER),
        (net.host(0).id, UNKNOWN_PEER),
    ]


def test_a_partition_sends_letters_back_and_their_route_is_cold() -> None:
    """Also those that are under way when it begins."""
    net = Net(2)
    net.mail(0, 1, "warm")
    net.run(1.0)
    net.mail(0, 1, "under way")
    net.run(0.01)
    net.network.partition([[0], [1]])
    net.mail(0, 1, "too late")
    net.run(1.0)
    assert [(at, drop.message.text, drop.reason) for at, drop in told(net, 0)] == [  # type: ignore[attr-defined]
        (1.1, "under way", UNREACHABLE),
        (1.11, "too late", UNREACHABLE),
    ]
    net.network.heal()
    start = net.engine.now
    net.mail(0, 1, "again")
    net.run(1.0)
    assert times(net, 1)[-1] == pytest.approx(start + 3 * LATENCY)


def test_a_sender_that_restarted_is_not_told_of_its_former_letters() -> None:
    """News of a session that is over reach nobody; the trace has them."""
    net = Net(2)
    net.network.crash(net.host(1))
    net.mail(0, 1, "gone")
    net.run(0.01)
    net.network.crash(net.host(0))
    net.network.start(net.host(0))
    net.run(1.0)
    assert net.inputs(0, SendDropped) == []
    assert len(net.trace(DropRPC, 0)) == 1


# Questions.


def ask(net: Net, number: int = 7, timeout: float = 1.0, *, one_way: bool = False) -> None:
    """Peer 0 asks peer 1."""
    question = Ask(net.host(1).id, number, Note("where?", 40), timeout, one_way)
    net.act(0, question)


def prepare(net: Net, *answers: Effect) -> None:
    """Let peer 1 do something when it is asked."""
    net.probe(1).answers[Asked] = list(answers)


def test_a_question_is_answered_after_the_handshake_and_a_round_trip() -> None:
    """The asker's number comes back with the answer; both messages are traced at both ends."""
    net = Net(2)
    prepare(net, Answer(1, Note("here", 60)))
    ask(net)
    net.run(2.0)
    asker = net.host(0)
    question = Asked(asker.id, 1, Note("where?", 40), asker.address)
    assert told(net, 1) == [(0.15, question)]
    assert told(net, 0) == [(0.2, Answered(net.host(1).id, 7, Note("here", 60)))]
    for one, other in ((0, 1), (1, 0)):
        assert len(net.trace(SendRPC, one)) == len(net.trace(RecvRPC, other)) == 1
    assert (net.host(0).questions, net.host(1).asked) == ({}, {})


def test_a_question_to_a_connected_peer_needs_no_handshake() -> None:
    """It is a new stream on the connection that there is."""
    net = Net(2)
    net.connect(0, 1)
    prepare(net, Answer(1, Note("here")))
    ask(net)
    net.run(1.0)
    assert [now for now, _ in net.probe(0).inputs] == [0.2]


def test_a_silent_peer_costs_the_asker_its_patience() -> None:
    """The timeout is the asker's; the answer that comes afterwards is nobody's."""
    net = Net(2)
    ask(net, timeout=0.3)
    net.run(0.25)
    assert list(net.host(1).asked) == [1]
    net.run(1.0)
    assert told(net, 0) == [(0.3, AskFailed(net.host(1).id, 7, NO_ANSWER))]
    net.act(1, Answer(1, Note("late")), Answer(99, Note("to nobody")))
    net.run(1.0)
    assert net.inputs(0, Answered) == []
    assert net.trace(SendRPC, 1) == []


@pytest.mark.parametrize("patience", [[0.3, 0.3, 0.3], [0.9, 0.6, 0.3], [0.3, 0.9, 0.6]])
def test_every_question_has_a_patience_of_its_own(patience: list[float]) -> None:
    """Whichever was asked first; those that end together end in the order in which they began."""
    net = Net(2)
    for number, timeout in enumerate(patience):
        ask(net, number, timeout)
    net.run(2.0)
    peer = net.host(1).id
    expected = [(each, AskFailed(peer, number, NO_ANSWER)) for number, each in enumerate(patience)]
    assert told(net, 0) == sorted(expected, key=lambda failure: failure[0])
    assert len(net.network.engine) == 0


def test_what_was_answered_does_not_wait_for_the_end_of_its_time() -> None:
    """Nothing of the questions is kept; one look at the time is left, however many there were."""
    net = Net(2)
    for number in range(1, 6):
        prepare(net, Answer(number, Note("here")))
        ask(net, number, timeout=60.0)
        net.run(1.0)
    assert len(net.inputs(0, Answered)) == 5
    assert len(net.network.engine) == 1
    net.run(61.0)
    assert len(net.network.engine) == 0
    assert net.inputs(0, AskFailed) == []


def test_a_declined_question_costs_the_asker_no_more_than_the_way_back() -> None:
    """The asker is told when the news reaches it; a second word of the target is nobody's."""
    net = Net(2)
    net.connect(0, 1)
    prepare(net, Decline(1))
    ask(net, timeout=60.0)
    net.run(1.0)
    assert net.probe(0).inputs == [(0.2, AskFailed(net.host(1).id, 7, DECLINED))]
    net.act(1, Answer(1, Note("on second thoughts")), Decline(1), Decline(99))
    net.run(1.0)
    assert net.inputs(0, Answered) == []
    assert not net.host(0).questions


def test_an_answer_that_is_under_way_when_the_time_is_up_is_forgotten() -> None:
    """A question ends once."""
    net = Net(2)
    prepare(net, Answer(1, Note("just too late")))
    ask(net, timeout=0.19)
    net.run(1.0)
    assert [type(event) for _, event in told(net, 0)] == [AskFailed]
    assert net.trace(RecvRPC, 0) == []


def test_a_question_that_arrives_too_late_is_not_put() -> None:
    """Its stream is closed by then."""
    net = Net(2)
    ask(net, timeout=0.1)
    net.run(1.0)
    assert net.inputs(1, Asked) == []
    assert net.host(1).asked == {}


@pytest.mark.parametrize("one_way", [False, True])
def test_questions_fail_when_the_peer_is_out_of_reach(one_way: bool) -> None:
    """Down: after a round trip. Cut off: the same. Unknown: after a moment."""
    net = Net(3)
    net.network.crash(net.host(1))
    net.network.partition([[0, 1], [2]])
    for number, peer in enumerate((net.host(1).id, net.host(2).id, STRANGER)):
        net.act(0, Ask(peer, number, Note("?"), 1.0, one_way))
    net.run(2.0)
    assert sorted((failed.number, failed.reason) for _, failed in told(net, 0)) == [  # type: ignore[attr-defined]
        (0, PEER_DOWN),
        (1, UNREACHABLE),
        (2, UNKNOWN_PEER),
    ]
    assert len(net.trace(DropRPC, 0)) == 3
    assert net.host(0).questions == {}


def test_a_peer_that_dies_with_a_question_fails_it_at_once() -> None:
    """The asker sees the connection break a latency later, long before its timeout."""
    net = Net(2)
    ask(net, timeout=60.0)
    net.run(0.2)
    net.network.crash(net.host(1))
    net.run(1.0)
    assert told(net, 0) == [(0.25, AskFailed(net.host(1).id, 7, PEER_DOWN))]


def test_an_asker_that_dies_leaves_no_question_open() -> None:
    """A machine that keeps its state is told, and the answer finds nobody."""
    net = Net(2)
    ask(net)
    net.run(0.2)
    net.network.crash(net.host(0))
    assert net.host(1).asked == {}
    assert net.inputs(0, AskFailed) == [AskFailed(net.host(1).id, 7, CRASHED)]
    net.network.start(net.host(0), keep_state=True)
    net.act(1, Answer(1, Note("late")))
    net.run(2.0)
    assert net.inputs(0, Answered) == []


def test_a_one_way_question_ends_when_it_arrives() -> None:
    """No answer can come, no timeout either; a lost one leaves nothing behind."""
    net = Net(2)
    prepare(net, Answer(1, Note("you did not ask")))
    ask(net, timeout=0.1, one_way=True)
    net.run(2.0)
    assert len(net.inputs(1, Asked)) == 1
    assert told(net, 0) == []
    assert net.host(0).questions == {}
    lossy = Net(2, loss=1.0)
    ask(lossy, one_way=True)
    lossy.run(2.0)
    assert (told(lossy, 0), lossy.host(0).questions) == ([], {})


def test_lost_questions_and_answers_end_with_the_timeout() -> None:
    """Nobody knows of a loss but the clock."""
    net = Net(2, loss=1.0)
    ask(net, timeout=0.5)
    net.run(2.0)
    assert told(net, 0) == [(0.5, AskFailed(net.host(1).id, 7, NO_ANSWER))]
    assert [drop.reason for drop in net.trace(DropRPC)] == [LOST]


def test_a_paused_peer_answers_when_it_goes_on() -> None:
    """Questions wait in the inbox like letters."""
    net = Net(2)
    prepare(net, Answer(1, Note("here")))
    net.host(1).pause()
    ask(net, timeout=10.0)
    net.run(1.0)
    net.host(1).resume()
    net.run(1.0)
    assert told(net, 0) == [(1.05, Answered(net.host(1).id, 7, Note("here")))]


# Connections that a machine wants.


def connect(net: Net, peer: bytes) -> None:
    net.act(0, Connect(peer))


def test_a_machine_is_told_when_a_connection_fails() -> None:
    """Down, cut off, unknown, and a peer that dies while it is dialled."""
    net = Net(4)
    net.network.crash(net.host(1))
    net.network.partition([[0, 1, 3], [2]])
    for peer in (net.host(1).id, net.host(2).id, STRANGER):
        connect(net, peer)
    net.run(0.2)
    assert sorted((failed.peer, failed.reason) for failed in net.inputs(0, ConnectFailed)) == [
        (net.host(1).id, PEER_DOWN),
        (net.host(2).id, UNREACHABLE),
        (STRANGER, UNKNOWN_PEER),
    ]
    connect(net, net.host(3).id)
    net.run(0.01)
    net.network.crash(net.host(3))
    net.run(1.0)
    assert told(net, 0)[-1] == (0.3, ConnectFailed(net.host(3).id, PEER_DOWN))


def test_a_connection_that_failed_is_not_dialled_when_a_partition_heals() -> None:
    """The machine knows of the failure and asks again when it likes."""
    net = Net(2)
    net.network.partition([[0], [1]])
    connect(net, net.host(1).id)
    net.run(1.0)
    net.network.heal()
    net.run(1.0)
    assert not net.linked(0, 1)


def test_peers_without_a_common_protocol_fail_to_connect() -> None:
    """As with the stream negotiation of a node."""
    net = Net()
    net.add("/one")
    other = net.add("/two")
    connect(net, other.id)
    net.run(1.0)
    assert told(net, 0) == [(0.1, ConnectFailed(other.id, NO_COMMON_PROTOCOL))]


def test_only_a_machines_own_wish_can_fail() -> None:
    """What the topology dials comes to nothing in silence, and success is told once."""
    net = Net(2)
    net.network.crash(net.host(1))
    net.network.dial(net.host(0), net.host(1).id)
    net.run(1.0)
    assert told(net, 0) == []
    net.network.start(net.host(1))
    connect(net, net.host(1).id)
    net.run(1.0)
    connect(net, net.host(1).id)
    net.run(1.0)
    assert [type(event) for _, event in told(net, 0)] == [PeerConnected]


def test_addresses_are_learnt_in_silence() -> None:
    """Simulated peers find each other by their ids."""
    net = Net(2)
    net.act(0, Learn(net.host(1).id, (b"anything",)))
    net.run(1.0)
    assert told(net, 0) == []
    assert net.inputs(1, Received) == []
