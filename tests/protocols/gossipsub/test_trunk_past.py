"""Trunk where links are new or lost: what a new link tells of the past, and who comes next."""

from protocols.gossipsub.test_trunk import (
    AUTHOR,
    LATENCY,
    come_late,
    foreign,
    grown,
    name_of,
    operations,
    parent_of,
    parts,
    puppet_at,
    said,
    source_at,
)
from protocols.gossipsub.test_trunk_copies import settled
from protocols.pubsub_rig import Rig
from protocols.router_inputs import signed
from rumormill.core.effects import Effects, Send
from rumormill.core.trace import DuplicateMessage, Penalise, Refuse
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.sources import BACKUPS, YOUNG, Source
from rumormill.protocols.gossipsub.trunk import HELD, PAST_TOLD, WISHES_MAX
from rumormill.protocols.gossipsub.trunk_missing import LONGEST_WAIT
from rumormill.protocols.gossipsub.trunk_parents import EARLY, INSTEAD, SELDOM
from rumormill.protocols.gossipsub.trunk_past import AHEAD, NEWER
from rumormill.protocols.pubsub.messages import Rpc
from rumormill.protocols.pubsub.trunk_part import PAST_MAX, Past, TrunkPart, tag_of

TAG = tag_of("news", AUTHOR)
LAST = name_of(foreign(1))


def newcomer(rig: Rig, count: int, **changes: object) -> tuple[int, list[int]]:
    """A peer that has heard nothing, and puppets in its mesh."""
    (peer,) = rig.add(1, trunk=True, **changes)
    rig.subscribe([peer])
    return peer, [puppet_at(rig, peer) for _ in range(count)]


def tells(rig: Rig, puppet: int, peer: int, age: float, *names: bytes, topic: str = "news") -> None:
    """A puppet tells of the past; its word has arrived."""
    heard = names or (LAST,)
    said(rig, puppet, TrunkPart(past=(Past(topic, heard, (age,) * len(heard)),)), peer)
    rig.run(2 * LATENCY + 0.001)


def source_of(rig: Rig, peer: int, tag: bytes = TAG) -> Source | None:
    trunk = rig.router(peer).trunk
    assert trunk is not None
    return trunk.sources.by_tag.get(tag)


def last_parts(rig: Rig, puppet: int, before: int) -> list[TrunkPart]:
    """What a puppet was sent since it had so many parts."""
    return parts(rig, puppet)[before:]


def test_who_comes_late_gets_everything_once_and_asks_for_nothing() -> None:
    """Its parents stand before the first message comes, and nothing goes where it is known."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    late = come_late(rig, peers)
    copies = len(rig.trace(DuplicateMessage))
    told = [b"said %d" % number for number in range(5)]
    for data in told:
        rig.publish(peers[0], data)
        rig.run(0.5)
    assert rig.data(late) == told
    assert "want" not in operations(rig, late)
    assert len(rig.mesh(late)) > 1
    assert len(rig.trace(DuplicateMessage)) == copies


def test_of_two_that_tell_of_the_same_message_the_earlier_is_the_parent() -> None:
    """The other is asked not to send, and is the first in reserve."""
    rig = Rig(latency=LATENCY)
    peer, (slow, fast, slowest) = newcomer(rig, 3)
    before = [len(parts(rig, puppet)) for puppet in (slow, fast)]
    tells(rig, slow, peer, 5.0)
    assert last_parts(rig, slow, before[0]) == [TrunkPart(unchoke=(TAG,))]
    tells(rig, fast, peer, 5.3)
    tells(rig, slowest, peer, 5.0)
    assert last_parts(rig, slow, before[0])[1:] == [TrunkPart(choke=(TAG,))]
    assert last_parts(rig, fast, before[1]) == [TrunkPart(unchoke=(TAG,))]
    source = source_of(rig, peer)
    assert source is not None
    assert source.parent == rig.id(fast)
    assert source.backups == (rig.id(slow), rig.id(slowest))


def test_who_lacks_the_last_message_is_no_parent() -> None:
    """A link that has brought nothing since is no good one, however early it was before."""
    rig = Rig(latency=LATENCY)
    peer, (stale, good) = newcomer(rig, 2)
    tells(rig, stale, peer, 60.0)
    tells(rig, good, peer, 5.0, name_of(foreign(2)))
    source = source_of(rig, peer)
    assert source is not None
    assert source.parent == rig.id(good)
    tells(rig, stale, peer, 5.0 - NEWER / 2, name_of(foreign(3)))
    assert source.parent == rig.id(good), "that may have been on its way"


def test_a_source_that_was_foretold_has_a_tree_with_its_first_message() -> None:
    """It goes to nobody who has not asked for it, and is announced to the others."""
    rig = Rig(latency=LATENCY)
    peer, (parent, child, other) = newcomer(rig, 3)
    tells(rig, parent, peer, 5.0)
    said(rig, child, TrunkPart(unchoke=(TAG,)), peer)
    rig.run(0.1)
    message = foreign(2)
    rig.send(parent, peer, Rpc(publish=(message,)))
    rig.run(0.2)
    copies = {p: [m.data for rpc in rig.rpcs(p) for m in rpc.publish] for p in (child, other)}
    assert copies == {child: [message.data], other: []}
    assert any(name_of(message) in part.have for part in parts(rig, other))


def test_of_a_source_that_is_known_nobody_is_believed_but_may_race() -> None:
    """Whoever would have been earlier may send too; whose message comes first is the parent."""
    rig = Rig(latency=LATENCY)
    peer, (parent, other, late) = settled(rig, 3)
    source = source_of(rig, peer)
    assert source is not None
    age = rig.network.engine.now - source.at
    before = [len(parts(rig, puppet)) for puppet in (other, late)]
    tells(rig, late, peer, age + LATENCY + AHEAD / 2)
    tells(rig, other, peer, age + 3 * LATENCY + 0.001 + 2 * AHEAD)
    assert last_parts(rig, late, before[1]) == []
    assert last_parts(rig, other, before[0]) == [TrunkPart(unchoke=(TAG,))]
    assert source.parent == rig.id(parent)
    message = foreign(2)
    rig.send(other, peer, Rpc(publish=(message,)))
    rig.run(0.1)
    assert source.parent == rig.id(other)
    rig.send(parent, peer, Rpc(publish=(message,)))
    rig.run(0.1)
    assert parts(rig, parent)[-1] == TrunkPart(choke=(TAG,))


def test_what_neighbours_say_of_our_own_messages_or_of_other_topics_is_nothing() -> None:
    rig = Rig(latency=LATENCY)
    peer, (puppet, *_) = newcomer(rig, 1)
    own = tag_of("news", rig.id(peer))
    before = len(parts(rig, puppet))
    tells(rig, puppet, peer, 5.0, own + bytes(4))
    tells(rig, puppet, peer, 5.0, topic="elsewhere")
    assert last_parts(rig, puppet, before) == []
    assert source_of(rig, peer, own) is None
    assert source_of(rig, peer) is None


def test_a_liar_costs_a_wait_and_a_round_trip() -> None:
    """It says that it had everything first, and sends nothing."""
    rig = Rig(latency=LATENCY)
    peer, (liar, honest) = newcomer(rig, 2)
    tells(rig, liar, peer, 500.0)
    for number in range(2, 6):
        message = foreign(number)
        said(rig, honest, TrunkPart(have=(name_of(message),)), peer)
        rig.run(LATENCY + LONGEST_WAIT)
        assert any(part.want or TAG in part.unchoke for part in parts(rig, honest))
        rig.send(honest, peer, Rpc(publish=(message,)))
        rig.run(1)
    rig.send(honest, peer, Rpc(publish=(foreign(6),)))
    rig.run(0.1)
    assert rig.data(peer) == [foreign(number).data for number in range(2, 7)]
    source = source_of(rig, peer)
    assert source is not None
    assert source.parent == rig.id(honest)
    assert not rig.trace(Penalise)


def test_no_more_of_the_past_is_told_or_heeded_than_is_useful() -> None:
    """The sources heard last, in bounds on both sides; what a topic has no room for is left out."""
    rig = Rig(latency=LATENCY)
    peer, (puppet, second) = newcomer(rig, 2, trunk_sources=PAST_MAX + 20)
    named = [name_of(signed("news", b"", b"author %d" % n, bytes(8))) for n in range(PAST_MAX)]
    tells(rig, puppet, peer, 5.0, *named)
    made_up = [n.to_bytes(4, "big") + bytes(4) for n in range(PAST_MAX)]
    tells(rig, second, peer, 5.0, *made_up)
    trunk = rig.router(peer).trunk
    assert trunk is not None
    assert len(trunk.sources.foretold["news"]) == PAST_MAX + 20
    rig.run(1.5)
    for _ in range(WISHES_MAX // PAST_MAX + 1):
        said(rig, puppet, TrunkPart(past=(Past("news", tuple(named), (5.0,) * PAST_MAX),)), peer)
    rig.run(0.1)
    assert [each.reason for each in rig.trace(Refuse)] == [reasons.WISH_TOO_MANY]
    for number in range(PAST_MAX + 20):
        said_now = signed("news", b"now %d" % number, b"author %d" % number, bytes(8))
        rig.send(puppet, peer, Rpc(publish=(said_now,)))
    rig.run(1)
    assert not trunk.sources.foretold, "what comes is worth more than what was told"
    later = puppet_at(rig, peer)
    (past,) = [past for part in parts(rig, later) for past in part.past]
    assert len(past.names) == PAST_MAX
    assert past.names[0][:4] == tag_of("news", b"author %d" % (PAST_MAX + 19))


def test_a_peer_is_told_the_past_of_no_more_sources_than_it_heeds_in_a_heartbeat() -> None:
    """However many topics it is linked in at once; in the next one there is room again."""
    rig = Rig(latency=LATENCY)
    peer, (puppet, *_) = newcomer(rig, 1)
    trunk = rig.router(peer).trunk
    assert trunk is not None
    topics = [f"topic {number}" for number in range(PAST_TOLD // PAST_MAX + 2)]
    for topic in topics:
        for number in range(PAST_MAX):
            source = trunk.sources.add(topic, b"%d" % number, {}, 0.0)
            assert source is not None
            source.hear(bytes(4), 0.0)

    def told() -> int:
        effects: Effects = []
        for topic in topics:
            trunk.linked(topic, rig.id(puppet), 1.0, effects)
        sent = [each.message.control.trunk for each in effects if isinstance(each, Send)]
        return sum(len(past.names) for part in sent for past in part.past)

    assert PAST_TOLD - PAST_MAX < told() <= PAST_TOLD < WISHES_MAX
    assert told() == 0
    trunk.heartbeat(1.0)
    assert told() > 0


def test_of_a_source_that_speaks_seldom_one_early_announcement_is_enough() -> None:
    """Its sender may send the next one too; of one that speaks often it has to be two in a row."""
    for silence, opened in ((SELDOM + 1, True), (1.0, False)):
        rig = Rig(latency=LATENCY)
        peer, (parent, other) = settled(rig, 2)
        rig.run(silence)
        message = foreign(2)
        said(rig, other, TrunkPart(have=(name_of(message),)), peer)
        rig.run(EARLY + 0.002)
        before = len(parts(rig, other))
        rig.send(parent, peer, Rpc(publish=(message,)))
        rig.run(0.1)
        assert any(TAG in part.unchoke for part in last_parts(rig, other, before)) == opened


def test_the_next_best_are_remembered_and_without_one_the_nearest_are_opened() -> None:
    """In the turn in which a link ends, one after the other; nobody has to be asked."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    far = [p for p in peers[1:] if parent_of(rig, p, peers[0]) != peers[0]]
    child = max(far, key=lambda peer: len(rig.mesh(peer)))
    source = source_at(rig, child, peers[0])
    assert 1 < len(source.backups) <= BACKUPS
    for backup in source.backups:
        rig.disconnect(child, parent_of(rig, child, peers[0]))
        assert source.parent == backup
    links = len(rig.mesh(child)) - 1
    before = operations(rig, child).count("unchoke")
    rig.disconnect(child, parent_of(rig, child, peers[0]))
    assert source.parent == b""
    assert operations(rig, child).count("unchoke") - before == INSTEAD <= links
    wants = operations(rig, child).count("want")
    rig.publish(peers[0], b"still here")
    rig.run(1)
    assert rig.data(child)[-1] == b"still here"
    assert operations(rig, child).count("want") == wants


def test_who_announced_a_message_before_it_came_is_next() -> None:
    """It is not behind us in the tree, as those may be who say so later."""
    rig = Rig(latency=LATENCY)
    peer, (parent, early, late) = settled(rig, 3)
    message = foreign(2)
    said(rig, early, TrunkPart(have=(name_of(message),)), peer)
    rig.run(0.005)
    rig.send(parent, peer, Rpc(publish=(message,)))
    rig.run(0.001)
    said(rig, late, TrunkPart(have=(name_of(message),)), peer)
    rig.run(0.2)
    source = source_of(rig, peer)
    assert source is not None
    assert source.backups == (rig.id(early), rig.id(late))


def test_of_a_young_source_messages_are_announced_almost_at_once() -> None:
    """Half of those who have no tree yet have to ask."""
    rig = Rig(latency=LATENCY)
    peer, (sender, *others) = newcomer(rig, 6)
    rig.send(sender, peer, Rpc(publish=(foreign(1), foreign(2))))
    rig.run(2 * LATENCY + HELD / 2)
    young = [p for p in others if any(name_of(foreign(2)) in each.have for each in parts(rig, p))]
    assert young
    rig.run(2 * YOUNG)
    for puppet in others:
        said(rig, puppet, TrunkPart(choke=(TAG,)), peer)
    rig.run(0.1)
    rig.send(sender, peer, Rpc(publish=(foreign(3),)))
    rig.run(2 * LATENCY + HELD / 2)
    name = name_of(foreign(3))
    assert not any(name in part.have for p in others for part in parts(rig, p))
    rig.run(HELD)
    assert all(any(name in part.have for part in parts(rig, p)) for p in others)
