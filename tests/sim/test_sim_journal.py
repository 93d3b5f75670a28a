"""Journals: what is safe when, what a crash takes back, what is read, and disks in trouble."""

from typing import Any

import msgspec
import pytest
from sim_rig import LATENCY, Net, Note, Run

from rumormill.core.effects import Append, ById, Effect, FromOffset, KeepNote, Load, Notes, Send
from rumormill.core.event import Event
from rumormill.core.event import Note as StoredNote
from rumormill.core.inputs import Loaded, NotStored, PeerConnected, Received, Stored
from rumormill.core.trace import DeliverMessage, PublishMessage, UndeliverableMessage
from rumormill.sim.host import Host
from rumormill.sim.journal import PIECE, Journal
from rumormill.sim.network import CRASHED
from rumormill.sim.scenario import Scenario

DELAY = 0.1


def event(number: int, topic: str = "t") -> Event:
    return Event(topic, b"data", b"author", number.to_bytes(2))


def note(key: str, value: bytes = b"kept") -> StoredNote:
    return StoredNote(key, value)


def ids(loaded: Loaded | None) -> list[int]:
    assert loaded is not None
    return [int.from_bytes(each.id) for each in loaded.events]


def filled(*events: Event, **options: Any) -> Journal:
    journal = Journal(**options)
    for each in events:
        journal.keep(each, 5.0)
    return journal


# What is stored, and how it is read.


def test_events_have_dense_offsets_in_their_topic_and_the_time_of_their_arrival() -> None:
    """An event is stored once, however often it is appended."""
    journal = filled(event(1), event(2, "other"), event(3), event(1))
    assert len(journal) == 3
    assert ("other", event(2).id) in journal
    loaded = journal.load(Load(7, "t", FromOffset()))
    assert loaded == Loaded(
        7,
        (
            msgspec.structs.replace(event(1), offset=0, received=5.0),
            msgspec.structs.replace(event(3), offset=1, received=5.0),
        ),
    )


def test_what_is_there_is_read_by_its_id_in_the_order_of_asking() -> None:
    """What is not there is left out; nobody has stored anything in other topics."""
    journal = filled(event(1), event(2), event(3))
    wanted = tuple(event(number).id for number in (3, 9, 1))
    assert ids(journal.load(Load(1, "t", ById(wanted)))) == [3, 1]
    assert journal.load(Load(2, "nobody's", ById(wanted))) == Loaded(2)
    assert journal.load(Load(3, "nobody's", FromOffset())) == Loaded(3)


def test_an_answer_is_a_piece_and_says_whether_more_is_there() -> None:
    """Asking on behind the last one gets everything, once."""
    count = 2 * PIECE + 1
    journal = filled(*map(event, range(count)))
    found: list[int] = []
    pieces = []
    offset, more = 0, True
    while more:
        loaded = journal.load(Load(1, "t", FromOffset(offset)))
        assert loaded is not None
        pieces.append(len(loaded.events))
        found += ids(loaded)
        offset, more = loaded.events[-1].offset + 1, loaded.more
    assert found == list(range(count))
    assert pieces == [PIECE, PIECE, 1]
    everything = tuple(event(number).id for number in range(count))
    by_id = journal.load(Load(2, "t", ById(everything)))
    assert by_id is not None
    assert by_id.more
    assert ids(by_id) == list(range(PIECE))


def test_a_full_journal_forgets_what_it_stored_first() -> None:
    """Of whatever topic; offsets go on, and are never given again."""
    journal = filled(event(1, "first"), event(2), event(3), event(4), limit=2)
    assert len(journal) == 2
    assert journal.load(Load(1, "first", FromOffset())) == Loaded(1)
    loaded = journal.load(Load(2, "t", FromOffset()))
    assert loaded is not None
    assert [(each.id, each.offset) for each in loaded.events] == [
        (event(3).id, 1),
        (event(4).id, 2),
    ]
    assert ids(journal.load(Load(3, "t", FromOffset(2)))) == [4]


def test_notes_are_read_by_what_their_keys_begin_with() -> None:
    """In the order of their keys, in pieces; a later note replaces an earlier one."""
    journal = Journal()
    for key in ("b/2", "a/1", "b/1", "c"):
        journal.append(KeepNote(note(key)))
    journal.append(KeepNote(note("b/1", b"new")))
    journal.commit(1.0)
    loaded = journal.load(Load(1, "", Notes("b/")))
    assert loaded == Loaded(1, notes=(note("b/1", b"new"), note("b/2")))
    assert journal.load(Load(2, "", Notes("b/", after="b/1"))) == Loaded(2, notes=(note("b/2"),))
    journal.append(KeepNote(note("b/1", b"")))
    journal.commit(1.0)
    gone = journal.load(Load(5, "", Notes("b/")))
    assert gone == Loaded(5, notes=(note("b/2"),)), "one without a value is kept no longer"
    for number in range(PIECE + 1):
        journal.append(KeepNote(note(f"n/{number:04}")))
    journal.commit(1.0)
    first = journal.load(Load(3, "", Notes("n/")))
    assert first is not None
    assert first.more
    assert len(first.notes) == PIECE
    rest = journal.load(Load(4, "", Notes("n/", after=first.notes[-1].key)))
    assert rest == Loaded(4, notes=(note(f"n/{PIECE:04}"),))


# When it is safe.


def stored(net: Net) -> list[Any]:
    """What the journal told the machine."""
    return net.inputs(0, Stored | NotStored | Loaded)  # type: ignore[arg-type]


def with_journal(delay: float = DELAY) -> tuple[Net, Host, list[Event]]:
    """Two connected peers, the first with a disk, and what its application gets."""
    net, events = Net(2), list[Event]()
    net.connect(0, 1)
    host = net.host(0)
    host.journal = Journal(commit_delay=delay)
    host.on_event = events.append
    return net, host, events


def test_a_barrier_is_answered_when_its_event_is_safe() -> None:
    """Then, and not before, the application gets it; what waits with it is safe with it."""
    net, host, events = with_journal()
    net.act(0, Append(event(1), deliver=True, barrier="one"), Append(event(2)))
    net.run(0.06)
    net.act(0, Append(event(3), deliver=True, barrier="three"))
    assert (stored(net), events, len(host.journal)) == ([], [], 0)
    net.run(0.05)
    assert stored(net) == [Stored(("one", "three"))]
    assert events == [event(1), event(3)]
    net.act(0, Append(event(4), barrier="four"))
    net.run(DELAY)
    assert stored(net)[1:] == [Stored(("four",))]
    assert len(host.journal) == 4


def test_what_is_said_behind_a_barrier_is_said_when_the_disk_has_answered() -> None:
    """The other peer hears of it a commit and a latency later."""
    net, _, _ = with_journal()
    began = net.engine.now
    net.probe(0).answers[Stored] = [Send(net.host(1).id, Note("it is safe"))]
    net.act(0, Append(event(1), barrier=1))
    net.run(1.0)
    ((arrived, text),) = net.arrivals(1)
    assert text == "it is safe"
    assert arrived == pytest.approx(began + DELAY + LATENCY)


@pytest.mark.parametrize("delay", [0.0, DELAY])
def test_an_event_that_is_stored_already_is_not_handed_out_again(delay: float) -> None:
    """Its barrier is answered all the same: it is safe."""
    net, _, events = with_journal(delay)
    for barrier in (1, 2):
        net.act(0, Append(event(1), deliver=True, barrier=barrier))
        net.run(2 * DELAY)
    assert events == [event(1)]
    assert stored(net) == [Stored((1,)), Stored((2,))]


def test_a_read_sees_what_was_appended_before_it() -> None:
    """It waits for that; with nothing on its way it is answered at once."""
    net, _, _ = with_journal()
    net.act(0, Append(event(1)), Load(1, "t", FromOffset()), Append(event(2)))
    assert stored(net) == []
    net.run(DELAY)
    (loaded,) = stored(net)
    assert ids(loaded) == [1, 2]
    net.act(0, Load(2, "t", ById((event(2).id,))))
    assert ids(stored(net)[1]) == [2]


def test_the_answers_wait_while_a_peer_stands_still() -> None:
    """The disk goes on, and the machine hears of it first of all."""
    net, host, events = with_journal()
    net.act(0, Append(event(1), deliver=True, barrier=1))
    host.pause()
    net.send(1, 0, "hello")
    net.run(1.0)
    assert stored(net) == []
    assert events == [event(1)]
    host.resume()
    assert [type(each) for each in net.inputs(0)[-2:]] == [Stored, Received]


def test_messages_that_wait_for_a_slow_reader_do_not_hold_the_disk_up() -> None:
    """The disk is not the network: its answers pass what the network brought before."""
    net, host, _ = with_journal(0.0)
    host.read_slowly(1.0)
    host.pause()
    net.send(1, 0, "one", "two")
    net.run(0.1)
    net.network.dial(net.add(), host.id)
    net.run(0.1)
    host.resume()
    net.act(0, Append(event(1), barrier=1))
    assert stored(net) == [Stored((1,))]
    assert net.texts(0) == ["one"]
    assert not net.inputs(0, PeerConnected), "it came behind the second message"


# What a crash takes back.


def test_a_crash_takes_back_what_is_not_safe_and_nothing_else() -> None:
    """The machine is told, for it may come back; the application never gets the event."""
    net, host, events = with_journal()
    net.act(0, Append(event(1), deliver=True, barrier=1))
    net.run(DELAY)
    net.act(0, Append(event(2), deliver=True, barrier=2), Load(9, "t", FromOffset()))
    net.act(0, Append(event(3), deliver=True))
    net.network.crash(host)
    assert stored(net) == [Stored((1,)), NotStored((2,), CRASHED), Loaded(9)]
    assert events == [event(1)]
    assert net.trace(UndeliverableMessage, 0) == [UndeliverableMessage(event(3).id, "t", CRASHED)]
    net.network.start(host, keep_state=True)
    net.run(1.0)
    assert stored(net)[3:] == [], "the commit of before the crash is nobody's"
    net.act(0, Load(1, "t", FromOffset()))
    assert ids(stored(net)[3]) == [1]


# A disk in trouble.


@pytest.mark.parametrize("delay", [0.0, DELAY])
def test_what_cannot_be_stored_is_said_and_counted(delay: float) -> None:
    """With a barrier it is the machine's to answer for, without one the runtime's."""
    net, host, events = with_journal(delay)
    assert host.journal is not None
    host.journal.trouble = "the disk is full"
    effects: tuple[Effect, ...] = (
        KeepNote(note("key")),
        Append(event(1), deliver=True, barrier=1),
        Append(event(2), deliver=True),
        Append(event(3)),
        Load(4, "t", FromOffset()),
    )
    for effect in effects:
        net.act(0, effect)
    net.run(DELAY)
    assert stored(net) == [NotStored((1,), "the disk is full"), Loaded(4)]
    assert events == []
    lost = UndeliverableMessage(event(2).id, "t", "the disk is full")
    assert net.trace(UndeliverableMessage, 0) == [lost]
    host.journal.trouble = ""
    net.act(0, Append(event(1), deliver=True, barrier=5), Load(6, "", Notes("")))
    net.run(DELAY)
    assert stored(net)[2:] == [Stored((5,)), Loaded(6)]
    assert events == [event(1)]


def troubled(protocol: str, kind: str) -> Run:
    """A run in which the disks of a third of the peers do not work for two seconds."""
    return Run(
        Scenario.from_dict(
            {
                "protocol": protocol,
                "peers": 12,
                "topology": {"degree": 6},
                "warm_up": 5.0,
                "cool_down": 20.0,
                "workload": {"messages": 60, "rate": 10.0, "publishers": 12},
                "disk": {"commit_delay": 0.02},
                "faults": [{"kind": kind, "at": 1.0, "peers": [0, 1, 2, 3], "duration": 2.0}],
            }
        ),
        keep_trace=True,
    )


@pytest.mark.parametrize("kind", ["disk-full", "disk-broken"])
@pytest.mark.parametrize("protocol", ["gossipsub", "radius", "skipring"])
def test_a_disk_in_trouble_costs_its_own_peer_alone(protocol: str, kind: str) -> None:
    """What it cannot store nobody hears of, what others publish it loses, and that is counted."""
    run = troubled(protocol, kind)
    run.check_books()
    began = run.scenario.workload_start + 1.0
    silent = [
        peer for now, peer, _ in run.trace(PublishMessage) if began + 0.02 <= now < began + 2.0
    ]
    assert silent
    assert not {0, 1, 2, 3} & set(silent)
    lost = run.trace(UndeliverableMessage)
    assert lost
    assert {peer for _, peer, _ in lost} <= {0, 1, 2, 3}
    reason = {"disk-full": "the disk is full", "disk-broken": "the log has failed"}[kind]
    assert {each.reason for _, _, each in lost} == {reason}
    for index, mine in enumerate(run.delivered):
        if index > 3:
            assert len(mine) == len(run.trace(PublishMessage))


def test_in_a_ring_what_a_full_disk_lost_comes_again() -> None:
    """The trie holds what is stored and nothing else, so neighbours bring the rest."""
    run = troubled("skipring", "disk-full")
    assert run.trace(UndeliverableMessage)
    published = len(run.trace(PublishMessage))
    assert [len(mine) for mine in run.delivered] == [published] * 12


def test_a_commit_takes_its_time_before_anybody_hears() -> None:
    """Nothing of what is published is delivered elsewhere sooner than the disk answers."""
    base = {"protocol": "gossipsub", "peers": 8, "topology": {"degree": 4}, "cool_down": 5.0}
    slow = Run(Scenario.from_dict({**base, "disk": {"commit_delay": 0.5}}), keep_trace=True)
    quick = Run(Scenario.from_dict(base), keep_trace=True)
    for run, delay in ((slow, 0.5), (quick, 0.0)):
        due = {planned.at + delay for planned in run.simulation.plan.publications}
        said = {now for now, _, _ in run.trace(PublishMessage)}
        assert max(said) == pytest.approx(max(due))
        assert len(run.trace(DeliverMessage)) == 8 * len(run.trace(PublishMessage))
