"""An event is had by its CID alone, and what is said of a history is true."""

import pytest
from pulsarcast_rig import Lone, World, event_by

from rumormill.core.effects import Effects, Load, Outcome, SetTimer
from rumormill.core.event import Event
from rumormill.core.inputs import Command, TimerFired
from rumormill.overlay.kademlia.operations import LookupKind, LookupResult
from rumormill.overlay.kademlia.validators import content_key
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import FetchEvent, History, ReadHistory
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.codec import encode_signatures
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.sim.network import peer_id

DATE = "1970-01-01T00:10:00.000Z"


def outcomes(effects: Effects) -> list[Outcome]:
    return [each for each in effects if isinstance(each, Outcome)]


class Asking(Lone):
    """A machine that looks for an event; what the DHT says is what a test says."""

    def fetch(self, event: str | bytes) -> list[Outcome]:
        return outcomes(self.feed(Command(1, FetchEvent(event=event))))

    def dht_has(self, cid: bytes, value: bytes | None = None, proof: bytes = b"") -> list[Outcome]:
        """The DHT has, or has not, a value under a CID, each time that it is asked."""
        found: list[Outcome] = []
        while not found and cid in self.machine._fetcher:
            effects: Effects = []
            key = content_key(cid)
            result = LookupResult(1, LookupKind.GET_VALUE, key, value=value, proof=proof)
            self.machine._on_result(result, self.now, effects)
            self._loads += [each for each in effects if isinstance(each, Load)]
            timers = [each.timer for each in effects if isinstance(each, SetTimer)]
            found += outcomes(effects) + outcomes(self.commit())
            for timer in timers:
                found += outcomes(self.feed(TimerFired(timer)))
        return found


def dag(signed: SignedEvent) -> tuple[bytes, bytes, bytes]:
    return signed.cid, signed.event.dag(), encode_signatures(signed)


# One machine.


def test_an_event_from_the_dht_is_handed_out_and_not_kept() -> None:
    asking = Asking(5)
    signed = event_by(3, cids.of(b"a topic that nobody has"), b"hello", DATE)
    assert asking.fetch(cids.text(signed.cid)) == []
    assert asking.dht_has(*dag(signed)) == [], "its topic is looked for first"
    (outcome,) = asking.dht_has(signed.event.topic)
    assert isinstance(outcome.result, Event)
    assert (outcome.result.data, outcome.result.id) == (b"hello", signed.cid)
    assert len(asking.journal) == 0


@pytest.mark.parametrize("how", ["base58", "base32", "bytes", "hex"])
def test_an_event_is_named_as_receipts_and_histories_show_it(how: str) -> None:
    asking = Asking(5)
    cid = cids.of(b"something")
    written = {"base58": cids.text(cid), "base32": cids.text32(cid), "bytes": cid, "hex": cid.hex()}
    assert asking.fetch(written[how]) == []
    assert cid in asking.machine._fetcher


@pytest.mark.parametrize("name", ["", "news", "zdpu", "01711220", "01711220" + "zz" * 32, b"short"])
def test_what_names_no_event_is_refused_at_once(name: str | bytes) -> None:
    (outcome,) = Asking(5).fetch(name)
    assert "names no event" in outcome.error


def test_who_may_not_publish_in_the_topic_is_refused() -> None:
    """Signed by whom it says, under the CID that was asked for, and still nobody's event."""
    asking = Asking(5)
    topic = asking.create()
    signed = event_by(3, topic.cid, b"smuggled in", DATE)
    asking.fetch(cids.text(signed.cid))
    (outcome,) = asking.dht_has(*dag(signed))
    assert outcome.result is None
    assert reasons.NOT_ALLOWED in outcome.error


@pytest.mark.parametrize("flaw", ["unsigned", "forged"])
def test_an_event_that_nobody_vouches_for_is_refused(flaw: str) -> None:
    asking = Asking(5)
    signed = event_by(3, cids.of(b"topic"), b"x", DATE)
    other = event_by(3, cids.of(b"topic"), b"y", DATE)
    asking.fetch(cids.text(signed.cid))
    proof = b"" if flaw == "unsigned" else encode_signatures(other)
    (outcome,) = asking.dht_has(signed.cid, signed.event.dag(), proof)
    reason = reasons.NOT_SIGNED if flaw == "unsigned" else reasons.BAD_SIGNATURE
    assert reason in outcome.error


def test_a_topics_cid_is_no_events() -> None:
    asking = Asking(5)
    topic = TopicDescriptor("news", peer_id(3), DATE)
    asking.fetch(cids.text(topic.cid))
    (outcome,) = asking.dht_has(topic.cid, topic.dag())
    assert reasons.NOT_AN_EVENT in outcome.error


@pytest.mark.parametrize(
    ("met", "reason"), [(True, reasons.NO_SUCH_EVENT), (False, reasons.NOBODY_TO_ASK)]
)
def test_it_is_said_why_there_is_no_event(met: bool, reason: str) -> None:
    """Nobody has it, or nobody could be asked: it is looked for a few times before that."""
    asking = Asking(5)
    if met:
        asking.machine.dht.contacts.answered(peer_id(3), asking.now, [])
    cid = cids.of(b"lost")
    asking.fetch(cids.text(cid))
    (outcome,) = asking.dht_has(cid)
    assert reason in outcome.error


def test_what_is_at_hand_is_asked_of_nobody() -> None:
    """Out of memory, and after a while out of the log."""
    asking = Asking(5)
    topic = asking.create(allowed_publishers=None)
    signed = event_by(3, topic.cid, b"mine", DATE)
    feed = asking.machine.feeds.open[topic.cid]
    asking.machine._events.backfill(feed, peer_id(3), signed, asking.now, effects := [])
    asking.journal.append(effects[0])
    for _ in range(2):
        (outcome,) = asking.fetch(signed.cid)
        assert isinstance(outcome.result, Event)
        assert outcome.result.data == b"mine"
        feed.recent.clear()


# A simulated network.


def test_a_stranger_gets_an_event_whose_author_is_gone() -> None:
    """It follows nothing; the author and the only subscriber are dead."""
    world = World(10, store_events=True)
    topic = world.create(0)
    world.subscribe(topic, 1, wait=5.0)
    world.publish(topic, 0, b"before it died", wait=5.0)
    (event,) = [each for each in world.events[0] if each.topic == topic]
    world.crash(0, 1)
    world.run(20.0)
    for reader in range(2, 10):
        found = world.command(reader, FetchEvent(event=event.id), wait=30.0)
        assert isinstance(found.result, Event), found.error
        assert (found.result.data, found.result.author) == (b"before it died", peer_id(0))
    lost = world.command(5, FetchEvent(event=cids.of(b"nobody's")), wait=60.0)
    assert reasons.NO_SUCH_EVENT in lost.error


def test_a_history_is_complete_only_if_its_author_said_so() -> None:
    """Its author alone, its author's neighbour, and far down the tree."""
    world = World(8, fan_out=1)
    topic = world.create(0)
    history = world.command(0, ReadHistory(topic=topic), wait=10.0).result
    assert isinstance(history, History)
    assert (history.complete, history.answered) == (True, 0)
    world.subscribe(topic, *range(1, 8), wait=10.0)
    world.publish(topic, 0, b"one", wait=5.0)
    for reader in range(1, 8):
        history = world.command(reader, ReadHistory(topic=topic), wait=20.0).result
        assert isinstance(history, History)
        assert (history.complete, len(history.events)) == (True, 1)
        assert history.answered >= 1


def test_a_history_that_nobody_could_be_asked_for_is_not_complete() -> None:
    """Others take the author's place in the tree, and have nothing: that is no history."""
    world = World(10)
    topic = world.create(0)
    for number in range(3):
        world.publish(topic, 0, b"%d" % number)
    world.crash(0)
    world.run(20.0)
    history = world.command(5, ReadHistory(topic=topic), wait=60.0).result
    assert isinstance(history, History)
    assert history.events == ()
    assert not history.complete
