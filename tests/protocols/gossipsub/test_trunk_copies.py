"""Trunk where copies could be saved, or are worth it: opened links, late parents, far peers, gossip
and probes."""

from typing import Any

import pytest

from protocols.gossipsub.test_trunk import (
    AUTHOR,
    LATENCY,
    foreign,
    grown,
    name_of,
    operations,
    parts,
    puppet_at,
    said,
)
from protocols.pubsub_rig import Rig
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_3
from rumormill.protocols.gossipsub.sources import YOUNG, Sources
from rumormill.protocols.gossipsub.trunk_missing import LONGEST_WAIT, SHORTEST_WAIT
from rumormill.protocols.gossipsub.trunk_parents import DOUBLED, LONG
from rumormill.protocols.gossipsub.trunk_probes import HABIT
from rumormill.protocols.pubsub.messages import Control, Rpc, SubOpts
from rumormill.protocols.pubsub.trunk_part import ANSWER, CALL, TrunkPart, key_of, tag_of

TAG = tag_of("news", AUTHOR)


def settled(rig: Rig, count: int, **changes: Any) -> tuple[int, list[int]]:
    """A peer and puppets in its mesh, of which the first has brought a source's first message."""
    (peer,) = rig.add(1, trunk=True, **changes)
    rig.subscribe([peer])
    puppets = [puppet_at(rig, peer) for _ in range(count)]
    rig.send(puppets[0], peer, Rpc(publish=(foreign(1),)))
    rig.run(2 * YOUNG)
    return peer, puppets


def test_who_is_outside_the_mesh_is_told_by_keys_and_may_ask() -> None:
    """Four bytes for each message, once; what is unknown is asked for when the mesh has had its
    time, and of an outsider nothing more than that."""
    rig = Rig(latency=LATENCY)
    peer, (parent,) = settled(rig, 1, D=1, D_lo=1, D_hi=1, D_score=1, D_out=0)
    outsider = rig.add_puppet((GOSSIPSUB_1_3,))
    rig.connect(outsider, peer)
    rig.run(0.1)
    rig.send(outsider, peer, Rpc(control=Control(offers_trunk=True)))
    rig.send(outsider, peer, Rpc(subscriptions=(SubOpts(True, "news"),)))
    rig.run(0.1)
    message, unknown = foreign(2), foreign(3)
    rig.send(parent, peer, Rpc(publish=(message,)))
    rig.run(4)
    assert rig.mesh(peer) == [parent]
    key, missing = key_of(name_of(message)), key_of(name_of(unknown))
    assert [each for part in parts(rig, outsider) for each in part.gossip].count(key) == 1
    said(rig, outsider, TrunkPart(gossip=(key, missing)), peer)
    rig.run(LONGEST_WAIT / 2)
    assert not any(part.want for part in parts(rig, outsider))
    rig.run(LONGEST_WAIT)
    assert [part.want for part in parts(rig, outsider) if part.want] == [(missing,)]
    assert not any(part.unchoke for part in parts(rig, outsider)), "it is no neighbour"


@pytest.mark.parametrize("count", [HABIT - 1, HABIT])
def test_a_publisher_probes_when_it_has_made_a_habit_of_it(count: int) -> None:
    """The tree of who has hardly spoken is not worth its probes."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig, probes="off")
    (late,) = rig.add(1, trunk=True, trunk_memory=60.0)
    for peer in peers[:4]:
        rig.connect(late, peer)
    rig.run(0.1)
    rig.subscribe([late])
    rig.run(3)
    for number in range(count):
        rig.publish(late, b"%d" % number)
        rig.run(1)
    rig.run(60)
    assert ("probe" in operations(rig, late)) == (count >= HABIT)


@pytest.mark.parametrize("answers", [True, False])
def test_one_lost_message_changes_the_tree_only_if_the_parent_does_not_answer(
    answers: bool,
) -> None:
    """It is asked for after a wait, and the parent is called meanwhile."""
    rig = Rig(latency=LATENCY)
    peer, (parent, other, _) = settled(rig, 3)
    lost = foreign(2)
    said(rig, other, TrunkPart(have=(name_of(lost),)), peer)
    rig.run(2 * LATENCY + SHORTEST_WAIT + 0.001)
    assert parts(rig, other)[-1] == TrunkPart(want=(key_of(name_of(lost)),))
    assert parts(rig, parent)[-1] == TrunkPart(echo=CALL)
    if answers:
        said(rig, parent, TrunkPart(echo=ANSWER), peer)
    rig.send(other, peer, Rpc(publish=(lost,)))
    rig.run(1)
    assert rig.data(peer)[-1] == lost.data
    assert (TrunkPart(unchoke=(TAG,)) in parts(rig, other)) == (not answers)


def test_a_parent_that_announces_what_it_should_send_is_replaced_at_once() -> None:
    """It does not mean to send it, be it that our word was lost or that it lies."""
    rig = Rig(latency=LATENCY)
    peer, (parent, other, _) = settled(rig, 3)
    lost = foreign(2)
    for puppet in (parent, other):
        said(rig, puppet, TrunkPart(have=(name_of(lost),)), peer)
    rig.run(2 * LATENCY + SHORTEST_WAIT + 0.001)
    asked = [part for puppet in (parent, other) for part in parts(rig, puppet) if part.want]
    assert asked == [TrunkPart(want=(key_of(name_of(lost)),), unchoke=(TAG,))]
    assert not [part for part in parts(rig, parent) if part.echo == CALL][1:]


def test_a_parent_that_answers_and_does_not_send_is_replaced_the_second_time() -> None:
    """Whoever is asked for the second message may send the third."""
    rig = Rig(latency=LATENCY)
    peer, (parent, other, _) = settled(rig, 3)
    for number in (2, 3):
        message = foreign(number)
        said(rig, other, TrunkPart(have=(name_of(message),)), peer)
        rig.run(2 * LATENCY + SHORTEST_WAIT + 0.001)
        said(rig, parent, TrunkPart(echo=ANSWER), peer)
        rig.send(other, peer, Rpc(publish=(message,)))
        rig.run(1)
    opened = [TAG in part.unchoke for part in parts(rig, other) if part.want]
    assert opened == [False, True]
    rig.send(other, peer, Rpc(publish=(foreign(4),)))
    rig.run(0.1)
    trunk = rig.router(peer).trunk
    assert trunk is not None
    assert trunk.sources.by_tag[TAG].parent == rig.id(other)


@pytest.mark.parametrize("seconds", [LONG / 2, LONG])
def test_who_had_to_wait_long_for_a_lost_message_is_sent_the_next_ones_twice(
    seconds: float,
) -> None:
    """By the parent and by whoever was asked, for some messages; then that one is choked."""
    rig = Rig(latency=LATENCY)
    peer, (parent, other, _) = settled(rig, 3)
    said(rig, other, TrunkPart(have=(name_of(foreign(2)),)), peer)
    rig.run(LATENCY + seconds)
    said(rig, parent, TrunkPart(echo=ANSWER), peer)
    rig.send(other, peer, Rpc(publish=(foreign(2),)))
    rig.run(0.5)
    copies = 0
    while TrunkPart(choke=(TAG,)) not in parts(rig, other):
        copies += 1
        for puppet in (parent, other):
            rig.send(puppet, peer, Rpc(publish=(foreign(2 + copies),)))
            rig.run(0.1)
    assert copies == (DOUBLED if seconds == LONG else 1)


def test_who_sends_unasked_is_choked_also_outside_the_mesh() -> None:
    """It may not have heard that the link has ended."""
    rig = Rig(latency=LATENCY)
    peer, (parent,) = settled(rig, 1, D=1, D_lo=1, D_hi=1, D_score=1, D_out=0)
    outsider = rig.add_puppet((GOSSIPSUB_1_3,))
    rig.connect(outsider, peer)
    rig.run(0.1)
    rig.send(outsider, peer, Rpc(control=Control(offers_trunk=True)))
    rig.run(0.1)
    for puppet in (parent, outsider):
        rig.send(puppet, peer, Rpc(publish=(foreign(2),)))
        rig.run(0.1)
    assert rig.mesh(peer) == [parent]
    assert parts(rig, outsider)[-1] == TrunkPart(choke=(TAG,))


def test_what_an_author_says_elsewhere_shows_who_wants_it_here() -> None:
    """More than what others say here, where a neighbour has a say in both topics."""
    sources, old = Sources(9), 2 * YOUNG
    wants, chokes, new, sender = b"wants", b"chokes", b"new", b"sender"
    links = {
        "here": dict.fromkeys((wants, chokes, new, sender)),
        "there": dict.fromkeys((wants, chokes, sender)),
    }
    sources.add("here", b"another", dict.fromkeys((chokes, new)), 0.0)
    first = sources.first_eager("here", b"author", links, sender, old)
    assert set(first) == {chokes, new}
    sources.add("there", b"author", {wants: None}, 0.0)
    first = sources.first_eager("here", b"author", links, sender, old)
    assert set(first) == {wants, new}
