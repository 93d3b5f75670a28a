"""Hosts: carrying out effects, timers, pauses, slow reading, crashes and restarts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_rig import LATENCY, Net

from rumormill.core.effects import (
    Append,
    CancelTimer,
    FromOffset,
    Load,
    Outcome,
    Published,
    SetTimer,
    Validate,
)
from rumormill.core.event import Event
from rumormill.core.inputs import (
    Command,
    Loaded,
    PeerConnected,
    PeerDisconnected,
    Publish,
    SendDropped,
    Start,
    Stored,
    Subscribe,
    TimerFired,
    Validated,
    Verdict,
)
from rumormill.core.trace import DropRPC, Join, NodeDown, NodeUp, SkipPublish
from rumormill.sim.host import Host
from rumormill.sim.link import CLOSED, PEER_DOWN, QUEUE_FULL
from rumormill.sim.network import CRASHED

EVENT = Event("notes", b"data", b"author", b"id")


def pair(**options: object) -> Net:
    """Two connected peers at a tenth of a second."""
    net = Net(2, **options)  # type: ignore[arg-type]
    net.connect(0, 1)
    return net


def do(host: Host, *effects: object) -> None:
    """Let a host carry out effects, as if its machine had asked for them."""
    host.effects.extend(effects)  # type: ignore[arg-type]
    host.carry_out()


# Effects.


def test_effects_reach_the_application_and_the_trace() -> None:
    """Deliveries and receipts go to who asked for them; trace payloads are recorded."""
    net, events, receipts = Net(1), [], []
    host = net.host(0)
    host.on_event, host.receipts = events.append, receipts
    published, other = Published(7, EVENT, 3), Event("notes", b"data", b"author", b"other id")
    do(host, Join("notes"), Append(EVENT, deliver=True), Append(other), published)
    assert (events, receipts) == ([EVENT], [published])
    assert net.trace(Join, 0) == [Join("notes")]


def test_without_a_disk_everything_is_safe_at_once_and_nothing_can_be_read() -> None:
    """Answers come when all effects of one input are carried out, in their order."""
    net = Net(1)
    net.probe(0).answers[Stored] = [Append(EVENT, barrier=2)]
    do(net.host(0), Append(EVENT, barrier=1), Load(5, "notes", FromOffset()), SetTimer("t", 1.0))
    assert net.inputs(0)[1:] == [Stored((1,)), Loaded(5), Stored((2,))]


def test_deferred_validation_is_answered_after_its_delay() -> None:
    """The verdict is the application's, and comes back as an input."""
    net = Net(1)
    host = net.host(0)
    host.validation_delay, host.verdict = 0.2, lambda event: Verdict.REJECT
    do(host, Validate(EVENT, b"x"))
    net.run(0.19)
    assert net.inputs(0, Validated) == []
    net.run(0.02)
    assert net.inputs(0, Validated) == [Validated(EVENT.id, Verdict.REJECT)]


def test_a_timer_fires_once_at_its_time() -> None:
    """Then it is forgotten."""
    net = Net(1)
    do(net.host(0), SetTimer("tick", 0.5))
    net.run(2.0)
    assert net.probe(0).inputs[1:] == [(0.5, TimerFired("tick"))]


def test_setting_a_timer_again_moves_it() -> None:
    """The earlier time no longer counts, be it sooner or later than the new one."""
    net = Net(1)
    do(net.host(0), SetTimer("a", 0.5), SetTimer("b", 0.5), SetTimer("a", 0.9), SetTimer("b", 0.1))
    net.run(2.0)
    assert net.probe(0).inputs[1:] == [(0.1, TimerFired("b")), (0.9, TimerFired("a"))]


def test_a_cancelled_timer_does_not_fire() -> None:
    """Cancelling what is not set is nothing."""
    net = Net(1)
    do(net.host(0), SetTimer("a", 0.5), CancelTimer("a"), CancelTimer("never set"))
    net.run(2.0)
    assert net.inputs(0, TimerFired) == []


def test_timers_that_are_moved_or_cancelled_do_not_wait_in_the_queue() -> None:
    """A peer waits there for the soonest that it had, however many it has."""
    net = Net(1)
    before = len(net.engine)
    for step in range(100):
        do(net.host(0), SetTimer("moved", 0.5 + step / 1000), SetTimer(step, 0.6 + step / 1000))
        do(net.host(0), CancelTimer(step))
    do(net.host(0), SetTimer("last", 0.9), SetTimer("same moment", 0.9))
    assert len(net.engine) == before + 1
    net.run(2.0)
    fired = [(0.599, "moved"), (0.9, "last"), (0.9, "same moment")]
    assert net.probe(0).inputs[1:] == [(at, TimerFired(timer)) for at, timer in fired]


# Pause and resume.


def test_a_paused_peer_does_nothing_and_misses_nothing() -> None:
    """Messages, timers and requests wait, and are handled in this order when it goes on."""
    net = pair()
    do(net.host(1), SetTimer("tick", net.engine.now + 0.1))
    net.host(1).pause()
    net.send(0, 1, "a", "b")
    net.host(1).submit(Subscribe("notes"))
    net.run(1.0)
    assert net.inputs(1) == []
    net.host(1).resume()
    assert net.texts(1) == ["a", "b"]
    assert net.inputs(1)[2:] == [TimerFired("tick"), Subscribe("notes")]
    assert net.trace(DropRPC) == []


def test_news_of_connections_wait_in_their_place_among_messages() -> None:
    """A paused peer hears of a new connection before what came over it, and of its end after."""
    net = Net(2)
    net.host(1).pause()
    net.network.dial(net.host(0), net.host(1).id)
    net.run(0.06)
    net.send(0, 1, "hello")
    net.run(0.06)
    net.probe(1).inputs.clear()
    net.host(1).resume()
    assert [type(event).__name__ for event in net.inputs(1)] == ["PeerConnected", "Received"]


def test_news_wait_behind_the_news_that_a_slow_reader_has_not_read() -> None:
    """An old disconnection is never told after a new connection to the same peer."""
    net = pair()
    net.host(1).read_slowly(1.0)
    net.host(1).pause()
    net.send(0, 1, "a", "b", "c")
    net.run(0.06)
    net.network.disconnect(net.host(0), net.host(1).id)
    net.run(0.06)
    net.host(1).resume()
    net.network.dial(net.host(0), net.host(1).id)
    net.run(10.0)
    assert net.inputs(1)[-2:] == [
        PeerDisconnected(net.host(0).id),
        PeerConnected(net.host(0).id, "/probe", False, net.host(0).address),
    ]


def test_a_paused_sender_is_told_of_drops_when_it_goes_on() -> None:
    """Being told is an input, and a paused peer has none."""
    net = pair(queue_limit=1)
    net.host(1).pause()
    net.send(0, 1, "a", "b")
    net.host(0).pause()
    net.run(1.0)
    assert net.inputs(0) == []
    net.host(0).resume()
    assert [drop.reason for drop in net.inputs(0, SendDropped)] == [QUEUE_FULL]


def test_the_inbox_of_a_paused_peer_is_bounded() -> None:
    """What does not fit is dropped, traced, and told to the sender."""
    net = pair(queue_limit=3)
    net.host(1).pause()
    net.send(0, 1, *"abcde")
    net.run(1.0)
    net.host(1).resume()
    assert net.texts(1) == ["a", "b", "c"]
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [QUEUE_FULL] * 2
    assert [drop.message.text for drop in net.inputs(0, SendDropped)] == ["d", "e"]


def test_messages_of_a_link_that_closed_during_the_pause_are_dropped() -> None:
    """They are traced as lost with their connection, and the end is told."""
    net = pair()
    net.host(1).pause()
    net.send(0, 1, "a")
    net.run(0.06)
    net.network.disconnect(net.host(0), net.host(1).id)
    net.run(1.0)
    net.host(1).resume()
    assert net.inputs(1) == [PeerDisconnected(net.host(0).id)]
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [CLOSED]


def test_resuming_who_is_not_paused_changes_nothing() -> None:
    """Neither does a second resume, nor one while down."""
    net = pair()
    net.host(1).resume()
    net.send(0, 1, "a")
    net.run(0.1)
    net.host(1).pause()
    net.host(1).resume()
    net.host(1).resume()
    net.network.crash(net.host(1))
    net.host(1).resume()
    assert net.texts(1) == ["a"]


# Slow readers.


def test_a_slow_reader_reads_at_its_rate() -> None:
    """The first message at once, the next ones when their time has come, in order."""
    net = pair()
    net.host(1).read_slowly(2.0)
    net.send(0, 1, *"abc")
    net.run(10.0)
    assert net.arrivals(1) == [(0.15, "a"), (0.65, "b"), (1.15, "c")]


@given(st.lists(st.floats(0.0, 1.0), max_size=20), st.floats(0.5, 20.0))
def test_a_slow_reader_never_exceeds_its_rate(gaps: list[float], rate: float) -> None:
    """Whenever messages come, the time between two reads is at least the interval."""
    net = pair()
    net.host(1).read_slowly(rate)
    for number, gap in enumerate(gaps):
        net.send(0, 1, str(number))
        net.run(gap)
    net.run(len(gaps) / rate + 1.0)
    times = [now for now, _ in net.arrivals(1)]
    assert net.texts(1) == [str(number) for number in range(len(gaps))]
    for earlier, later in itertools.pairwise(times):
        assert later - earlier >= 1 / rate - 1e-6


def test_timers_and_requests_do_not_wait_for_slow_reading() -> None:
    """Only what comes over links is slow."""
    net = pair()
    net.host(1).read_slowly(0.1)
    net.send(0, 1, "a", "b")
    do(net.host(1), SetTimer("tick", net.engine.now + 0.2))
    net.host(1).submit(Subscribe("notes"))
    net.run(1.0)
    assert net.inputs(1, Subscribe)
    assert net.inputs(1, TimerFired)
    assert net.texts(1) == ["a"]


def test_a_reader_that_is_normal_again_reads_everything_at_once() -> None:
    """The backlog does not wait for the slow reader's next turn."""
    net = pair()
    net.host(1).read_slowly(0.01)
    net.send(0, 1, *"abc")
    net.run(1.0)
    net.host(1).read_slowly(0.0)
    assert net.texts(1) == ["a", "b", "c"]
    net.send(0, 1, "d")
    net.run(0.06)
    assert net.texts(1)[-1] == "d"


def test_a_faster_rate_counts_from_now_on() -> None:
    """The wait of the old rate is cut short."""
    net = pair()
    net.host(1).read_slowly(0.01)
    net.send(0, 1, *"abc")
    net.run(0.9)
    net.host(1).read_slowly(10.0)
    net.run(5.0)
    assert net.arrivals(1) == [(0.15, "a"), (1.1, "b"), (1.2, "c")]


def test_a_paused_slow_reader_is_slow_when_it_goes_on() -> None:
    """Pausing does not heal."""
    net = pair()
    net.host(1).read_slowly(1.0)
    net.host(1).pause()
    net.send(0, 1, *"abc")
    net.run(5.0)
    net.host(1).resume()
    net.run(10.0)
    assert [now for now, _ in net.arrivals(1)] == [5.1, 6.1, 7.1]


def test_a_slow_reader_is_slow_after_a_restart() -> None:
    """Slowness is the machine's that the process runs on."""
    net = pair()
    net.host(1).read_slowly(1.0)
    net.network.crash(net.host(1))
    net.network.start(net.host(1))
    net.connect(0, 1)
    net.run(5.0)
    net.send(0, 1, *"ab")
    net.run(0.5)
    assert net.texts(1) == ["a"]


# Crash and restart.


def test_a_crash_is_told_to_peers_a_latency_later() -> None:
    """Nobody says goodbye: the news travels like everything else."""
    net = pair()
    net.network.crash(net.host(0))
    net.run(LATENCY - 0.001)
    assert net.inputs(1) == []
    net.run(0.002)
    assert net.inputs(1) == [PeerDisconnected(net.host(0).id, lost=True)]
    assert net.trace(NodeDown, 0) == [NodeDown(CRASHED)]


def test_what_a_crashed_peer_had_not_read_is_dropped_and_traced() -> None:
    """Its inbox is lost with it."""
    net = pair()
    net.host(1).pause()
    net.send(0, 1, "a", "b")
    net.run(0.1)
    net.network.crash(net.host(1))
    assert [drop.reason for drop in net.trace(DropRPC, 0)] == [CRASHED] * 2


def test_publications_that_waited_for_a_paused_peer_are_skipped_visibly_by_its_crash() -> None:
    """They were planned and did not happen; other requests are no publications."""
    net = pair()
    net.host(1).pause()
    net.host(1).submit(Publish("notes", b"data"))
    net.host(1).submit(Subscribe("notes"))
    net.network.crash(net.host(1))
    assert net.trace(SkipPublish, 1) == [SkipPublish("notes", CRASHED)]


def test_timers_of_a_crashed_peer_do_not_fire() -> None:
    """Not while it is down, and not for its successor."""
    net = Net(1)
    do(net.host(0), SetTimer("tick", 0.5))
    net.network.crash(net.host(0))
    net.network.start(net.host(0))
    net.run(2.0)
    assert net.inputs(0) == [Start()]


def test_deferred_verdicts_do_not_reach_a_peer_that_is_down() -> None:
    """An answer for a process that is gone is lost."""
    net = Net(1)
    net.host(0).validation_delay = 0.1
    do(net.host(0), Validate(EVENT, b"x"))
    net.network.crash(net.host(0))
    net.run(1.0)
    assert net.inputs(0, Validated) == []


@pytest.mark.parametrize("keep_state", [True, False])
def test_a_restart_keeps_the_machine_or_builds_a_new_one(keep_state: bool) -> None:
    """Either way it starts without connections."""
    net = pair()
    before = net.probe(0)
    net.network.crash(net.host(0))
    net.network.start(net.host(0), keep_state=keep_state)
    assert (net.probe(0) is before) == keep_state
    assert net.inputs(0)[-1] == Start()
    assert not net.linked(0, 1)
    assert len(net.trace(NodeUp, 0)) == 2


def test_a_machine_that_keeps_its_state_knows_that_its_connections_are_gone() -> None:
    """It is told of each, and what it asks for meanwhile is not done: it is down."""
    net = pair()
    net.network.crash(net.host(0))
    assert net.inputs(0) == [PeerDisconnected(net.host(1).id)]


def test_a_machine_that_keeps_its_state_misses_no_end_of_a_connection() -> None:
    """News that were under way, or waited for a pause to end, when it crashed count as told."""
    net = Net(3)
    net.connect(0, 1)
    net.connect(0, 2)
    net.network.crash(net.host(1))
    net.run(0.01)
    net.network.crash(net.host(0))
    assert net.inputs(0) == [PeerDisconnected(net.host(n).id) for n in (1, 2)]

    paused = Net(2)
    paused.connect(0, 1)
    paused.host(0).pause()
    paused.network.crash(paused.host(1))
    paused.run(0.1)
    paused.network.crash(paused.host(0))
    assert paused.inputs(0) == [PeerDisconnected(paused.host(1).id, lost=True)]


def test_a_restart_begins_with_free_lines() -> None:
    """What the old process had queued for its upload does not hold up the new one."""
    net = pair(upload=100.0)
    net.send(0, 1, *"abc")
    net.network.crash(net.host(0))
    net.network.start(net.host(0))
    net.connect(0, 1)
    start = net.engine.now
    net.send(0, 1, "d")
    net.run(5.0)
    assert net.arrivals(1) == [(round(start + 1.0 + LATENCY, 9), "d")]


def test_crashing_who_is_down_and_starting_who_is_up_change_nothing() -> None:
    """The trace has one NODE_DOWN and one NODE_UP for each real change."""
    net = pair()
    net.network.start(net.host(0))
    net.network.crash(net.host(0))
    net.network.crash(net.host(0))
    net.network.start(net.host(0), keep_state=True)
    net.network.start(net.host(0))
    assert (len(net.trace(NodeUp, 0)), len(net.trace(NodeDown, 0))) == (2, 1)


def test_a_crash_ends_a_pause_and_who_is_down_cannot_be_paused() -> None:
    """A new process runs."""
    net = pair()
    net.host(1).pause()
    net.network.crash(net.host(1))
    net.host(1).pause()
    net.network.start(net.host(1))
    net.connect(0, 1)
    net.send(0, 1, "a")
    net.run(0.1)
    assert net.texts(1) == ["a"]


# Commands.


def test_a_command_has_one_outcome() -> None:
    """`then` gets what the machine says under the command's number; other numbers are nobody's."""
    net = Net(1)
    host, outcomes = net.host(0), list[Outcome]()
    host.command("fetch", outcomes.append)
    (asked,) = net.inputs(0, Command)
    assert asked.body == "fetch"
    net.act(0, Outcome(asked.number + 1, "not asked"), Outcome(asked.number, "done"))
    net.act(0, Outcome(asked.number, "done again"))
    assert outcomes == [Outcome(asked.number, "done")]


def test_a_command_fails_with_its_peer() -> None:
    """Down before, down meanwhile, and paused until it goes on."""
    net = Net(1)
    host, outcomes = net.host(0), list[Outcome]()
    host.pause()
    host.command("later", outcomes.append)
    assert net.inputs(0, Command) == []
    host.resume()
    assert len(net.inputs(0, Command)) == 1
    net.network.crash(host)
    host.command("too late", outcomes.append)
    assert [outcome.error for outcome in outcomes] == [CRASHED, PEER_DOWN]
