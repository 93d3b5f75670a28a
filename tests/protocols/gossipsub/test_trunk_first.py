"""Trunk where no tree is known yet: first messages of a source; and who is asked for a lost one."""

from protocols.gossipsub.test_trunk import (
    AUTHOR,
    LATENCY,
    foreign,
    grown,
    name_of,
    parts,
    puppet_at,
    said,
)
from protocols.pubsub_rig import Rig
from protocols.router_inputs import signed
from rumormill.core.trace import DuplicateMessage, Penalise
from rumormill.protocols.gossipsub.sources import FEW, FEW_FIRST, YOUNG
from rumormill.protocols.pubsub.messages import Message, Rpc
from rumormill.protocols.pubsub.trunk_part import ANSWER, CALL, TrunkPart, tag_of


def sent_to(rig: Rig, puppets: list[int], message: Message) -> list[int]:
    """The puppets that were sent a message in full."""
    copies = {p: [m.data for rpc in rig.rpcs(p) for m in rpc.publish] for p in puppets}
    return [p for p in puppets if message.data in copies[p]]


def told(rig: Rig, puppets: list[int], message: Message) -> list[int]:
    """The puppets to whom a message was announced."""
    return [p for p in puppets if any(name_of(message) in part.have for part in parts(rig, p))]


def test_of_a_burst_each_message_goes_to_a_few_until_chokes_can_have_come() -> None:
    """The first to everybody, the others to two each, not always the same; the rest is told."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    sender, *others = [puppet_at(rig, peer) for _ in range(6)]
    burst = [foreign(number) for number in range(1, 6)]
    for message in burst:
        rig.send(sender, peer, Rpc(publish=(message,)))
    rig.run(YOUNG / 2)
    assert sent_to(rig, others, burst[0]) == others
    used: set[int] = set()
    for message in burst[1:]:
        sent = sent_to(rig, others, message)
        assert 0 < len(sent) <= FEW
        assert sorted([*sent, *told(rig, others, message)]) == others
        used.update(sent)
    assert len(used) > FEW
    rig.run(YOUNG)
    late = foreign(9)
    rig.send(sender, peer, Rpc(publish=(late,)))
    rig.run(0.1)
    assert sent_to(rig, others, late) == others, "nobody has choked"


def test_what_comes_together_is_announced_together() -> None:
    """One RPC to each neighbour, however many messages came in one."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    sender, *others = [puppet_at(rig, peer) for _ in range(4)]
    rig.send(sender, peer, Rpc(publish=(foreign(1),)))
    rig.run(0.1)
    for puppet in others:
        said(rig, puppet, TrunkPart(choke=(tag_of("news", AUTHOR),)), peer)
    rig.run(2 * YOUNG)
    together = [foreign(number) for number in range(2, 14)]
    rig.send(sender, peer, Rpc(publish=tuple(together)))
    rig.run(0.1)
    names = tuple(map(name_of, together))
    for puppet in others:
        assert [part.have for part in parts(rig, puppet) if part.have] == [names]


def test_the_first_message_of_a_source_goes_to_those_who_want_what_others_say() -> None:
    """And is announced to the rest, who may ask; with no other source known it goes to all."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    sender, *others = [puppet_at(rig, peer) for _ in range(6)]
    rig.send(sender, peer, Rpc(publish=(foreign(1),)))
    rig.run(0.1)
    for puppet in others[:3]:
        said(rig, puppet, TrunkPart(choke=(tag_of("news", AUTHOR),)), peer)
    rig.run(2 * YOUNG)
    new = signed("news", b"hello", b"a newcomer", bytes(8))
    rig.send(sender, peer, Rpc(publish=(new,)))
    rig.run(0.1)
    assert sent_to(rig, others, new) == others[3:]
    assert len(others[3:]) == FEW_FIRST
    assert told(rig, others, new) == others[:3]


def test_bursts_and_newcomers_reach_everybody() -> None:
    """Whoever is only told asks in time: no gossip is needed, and nobody is blamed."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    for peer in peers[1:4]:
        burst = [b"%d of %d" % (number, peer) for number in range(10)]
        before = len(rig.trace(DuplicateMessage))
        for data in burst:
            rig.publish(peer, data)
        rig.run(0.9)
        for other in peers:
            assert other == peer or set(burst) <= set(rig.data(other))
        copies = len(rig.trace(DuplicateMessage)) - before
        assert copies < 2.5 * len(burst) * (len(peers) - 1)
    assert not rig.trace(Penalise)


def test_a_new_neighbour_is_called_and_a_call_is_answered_at_once() -> None:
    """That is how the round trip is known; an answer that nobody asked for changes nothing."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    puppet = puppet_at(rig, peer)
    assert [part.echo for part in parts(rig, puppet)].count(CALL) == 1
    speaker = rig.router(peer).trunk.speakers[rig.id(puppet)]
    said(rig, puppet, TrunkPart(echo=ANSWER), peer)
    rig.run(0.1)
    assert speaker.measured
    measured = speaker.round_trip
    said(rig, puppet, TrunkPart(echo=ANSWER), peer)
    said(rig, puppet, TrunkPart(echo=CALL), peer)
    rig.run(0.1)
    assert speaker.round_trip == measured
    assert [part.echo for part in parts(rig, puppet)].count(ANSWER) == 1


def test_a_nearer_announcer_is_asked_beside_one_that_is_far() -> None:
    """Whoever announces later and can answer well before the one that was asked is asked too."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    far, near, alike = [puppet_at(rig, peer) for _ in range(3)]
    speakers = rig.router(peer).trunk.speakers
    for puppet, seconds in ((far, 0.3), (near, 0.05), (alike, 0.3)):
        speakers[rig.id(puppet)].took(seconds)
    message = foreign(1)
    for puppet in (far, alike, near):
        said(rig, puppet, TrunkPart(have=(name_of(message),)), peer)
        rig.run(0.05)
    rig.run(0.05)
    asked = [p for p in (far, near, alike) if any(part.want for part in parts(rig, p))]
    assert asked == [far, near]
