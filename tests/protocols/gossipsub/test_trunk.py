"""Trunk: trees inside the mesh. What grows, what breaks, and what liars and strangers can do."""

from typing import Any

import pytest

from protocols.pubsub_rig import Rig
from protocols.router_inputs import signed
from rumormill.core.effects import Effects, Send, SetTimer
from rumormill.core.inputs import TimerFired
from rumormill.core.trace import DuplicateMessage, Penalise, Refuse, SendRPC
from rumormill.protocols.gossipsub import reasons, trunk, trunk_missing
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_2, GOSSIPSUB_1_3
from rumormill.protocols.gossipsub.sources import Source
from rumormill.protocols.pubsub.messages import Control, Message, Rpc, SubOpts
from rumormill.protocols.pubsub.trunk_part import TrunkPart, key_of, mark_of, tag_of

LATENCY = 0.03
ROUND_TRIP = 2 * LATENCY


def grown(rig: Rig, count: int = 16, **changes: Any) -> list[int]:
    """Peers whose mesh has formed, and in which the first has published until its tree stood."""
    peers = rig.add(count, trunk=True, **changes)
    rig.connect_some(peers, 4)
    rig.run(0.2)
    rig.subscribe(peers)
    rig.run(5)
    for number in range(8):
        rig.publish(peers[0], b"grow %d" % number)
        rig.run(0.5)
    return peers


def come_late(rig: Rig, peers: list[int]) -> int:
    """One more peer, which is linked to some of those that were there before."""
    (late,) = rig.add(1, trunk=True)
    for peer in peers[:6]:
        rig.connect(late, peer)
    rig.run(0.1)
    rig.subscribe([late])
    rig.run(3)
    return late


def published(rig: Rig, peer: int, count: int = 10) -> list[bytes]:
    """Publish so many messages, a fifth of a second apart."""
    told = [b"said %d" % number for number in range(count)]
    for data in told:
        rig.publish(peer, data)
        rig.run(0.2)
    rig.run(2)
    return told


def source_at(rig: Rig, peer: int, author: int) -> Source:
    router = rig.router(peer)
    assert router.trunk is not None
    source = router.trunk.sources.get("news", rig.id(author))
    assert source is not None
    return source


def parent_of(rig: Rig, peer: int, author: int) -> int:
    return int.from_bytes(source_at(rig, peer, author).parent, "big")


def operations(rig: Rig, peer: int | None = None) -> list[str]:
    """What peers have said in the extension's words."""
    sent = rig.trace(SendRPC, peer)
    return [each.name for rpc in sent for each in rpc.meta.operations]


def puppet_at(rig: Rig, peer: int, protocol: str = GOSSIPSUB_1_3) -> int:
    """A puppet in the mesh of a peer; it speaks the extension if the protocol allows it."""
    puppet = rig.add_puppet((protocol,))
    rig.connect(puppet, peer)
    rig.run(0.1)
    if protocol == GOSSIPSUB_1_3:
        rig.send(puppet, peer, Rpc(control=Control(offers_trunk=True)))
    grafting = Control(graft=("news",))
    rig.send(puppet, peer, Rpc(subscriptions=(SubOpts(True, "news"),), control=grafting))
    rig.run(0.1)
    assert puppet in rig.mesh(peer)
    return puppet


def said(rig: Rig, puppet: int, part: TrunkPart, to: int) -> None:
    rig.send(puppet, to, Rpc(control=Control(trunk=part)))


def parts(rig: Rig, puppet: int) -> list[TrunkPart]:
    """The extension's parts that a puppet was sent."""
    found = [rpc.control.trunk for rpc in rig.rpcs(puppet) if rpc.control is not None]
    return [part for part in found if part is not None]


AUTHOR = b"somebody else"


def foreign(number: int) -> Message:
    """A message of an author who is not here."""
    return signed("news", b"foreign %d" % number, AUTHOR, number.to_bytes(8, "big"))


def name_of(message: Message) -> bytes:
    return tag_of("news", message.author) + mark_of(message.seqno)


def test_a_tree_brings_each_message_once_and_to_all() -> None:
    """When the tree stands, nobody gets anything twice; all other links carry announcements."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    duplicates = len(rig.trace(DuplicateMessage))
    told = published(rig, peers[0])
    assert len(rig.trace(DuplicateMessage)) == duplicates
    for peer in peers[1:]:
        assert rig.data(peer)[-len(told) :] == told
    assert duplicates > 0 < operations(rig).count("have")


def test_each_source_has_a_tree_of_its_own() -> None:
    """What the first publisher's tree is says nothing of the second's."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    for number in range(5):
        rig.publish(peers[7], b"other %d" % number)
        rig.run(0.5)
    duplicates = len(rig.trace(DuplicateMessage))
    for publisher in (peers[0], peers[7]):
        published(rig, publisher, 3)
    assert len(rig.trace(DuplicateMessage)) == duplicates
    assert all(
        parent_of(rig, peer, peers[7]) == peers[7]
        for peer in rig.mesh(peers[7])
        if peer != peers[0]
    ), "everybody beside a publisher has it as parent"


def test_it_is_offered_first_and_only_where_it_may_be_known() -> None:
    """Before subscriptions, as 1.3 wants it, and never to who speaks 1.2."""
    rig = Rig()
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    new, old = rig.add_puppet((GOSSIPSUB_1_3,)), rig.add_puppet((GOSSIPSUB_1_2,))
    for puppet in (new, old):
        rig.connect(puppet, peer)
    first = rig.rpcs(new)[0]
    assert first.control == Control(offers_trunk=True)
    assert not first.subscriptions
    assert all(rpc.control is None for rpc in rig.rpcs(old))


def test_who_has_it_off_says_nothing_of_it() -> None:
    """And passes over what others say."""
    rig = Rig()
    (peer,) = rig.add(1)
    rig.subscribe([peer])
    puppet = puppet_at(rig, peer)
    said(rig, puppet, TrunkPart(have=(b"unknown!",), choke=(b"none",)), peer)
    rig.publish(peer, b"news")
    rig.run(2)
    assert parts(rig, puppet) == []
    assert [m.data for rpc in rig.rpcs(puppet) for m in rpc.publish] == [b"news"]


def test_peers_that_do_not_know_it_are_served_as_ever() -> None:
    """Half of the peers speak 1.2 alone: they get copies, and nothing that they cannot read."""
    rig = Rig(latency=LATENCY)
    old = rig.add(8, protocols=(GOSSIPSUB_1_2,))
    new = rig.add(8, trunk=True, protocols=(GOSSIPSUB_1_3, GOSSIPSUB_1_2))
    peers = [*old, *new]
    rig.connect_some(peers, 5)
    rig.run(0.2)
    rig.subscribe(peers)
    rig.run(5)
    said_by = {publisher: published(rig, publisher, 12) for publisher in (old[0], new[0])}
    for publisher, told in said_by.items():
        for peer in set(peers) - {publisher}:
            assert [data for data in rig.data(peer) if data in told][-12:] == told
    strangers = {rig.id(peer) for peer in old}
    spoken = [rpc for rpc in rig.trace(SendRPC) if rpc.meta.operations]
    assert spoken
    assert not [rpc for rpc in spoken if rpc.send_to in strangers]
    assert not rig.trace(Penalise)


def test_a_parent_that_is_gone_is_replaced_at_once() -> None:
    """The neighbour that had the last message next is told in the turn in which the link ends."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    child = next(p for p in peers[1:] if parent_of(rig, p, peers[0]) != peers[0])
    parent, backup = parent_of(rig, child, peers[0]), source_at(rig, child, peers[0]).backups[0]
    assert backup not in {b"", rig.id(parent)}
    rig.disconnect(child, parent)
    assert source_at(rig, child, peers[0]).parent == backup
    before, wants = len(rig.trace(DuplicateMessage, child)), operations(rig, child).count("want")
    assert published(rig, peers[0], 1) == rig.data(child)[-1:]
    assert len(rig.trace(DuplicateMessage, child)) == before
    assert operations(rig, child).count("want") == wants, "nobody had to be asked"


def test_a_silent_parent_is_replaced_within_the_longest_wait_and_a_round_trip() -> None:
    """Nothing tells that it is gone but the announcements of others."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    child = next(p for p in peers[1:] if parent_of(rig, p, peers[0]) != peers[0])
    parent = parent_of(rig, child, peers[0])
    arrivals: dict[bytes, float] = {}
    engine = rig.network.engine
    rig.host(child).on_event = lambda event: arrivals.setdefault(event.data, engine.now)
    rig.publish(peers[0], b"before")
    rig.run(1)
    usual = arrivals[b"before"] - (engine.now - 1)
    rig.host(parent).pause()
    for data in (b"first", b"second"):
        at = engine.now
        rig.publish(peers[0], data)
        rig.run(1)
        late = arrivals[data] - at - usual
        assert late <= trunk_missing.LONGEST_WAIT + ROUND_TRIP + LATENCY
    assert late <= LATENCY, "the second message comes by the new tree"
    assert parent_of(rig, child, peers[0]) != parent


def test_a_cycle_of_parents_is_opened_by_announcements() -> None:
    """Two peers that wait for each other hear of what they miss from everybody else."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    one = next(p for p in peers[1:] if peers[0] not in rig.mesh(p))
    other = next(p for p in rig.mesh(one) if p != peers[0])
    for here, there in ((one, other), (other, one)):
        source = source_at(rig, here, peers[0])
        source.parent, source.choked = rig.id(there), {}
        for peer in peers:
            if peer != here and "news" in rig.router(peer).mesh.links:
                known = source_at(rig, peer, peers[0])
                known.eager.pop(rig.id(here), None)
        source_at(rig, there, peers[0]).eager[rig.id(here)] = None
    for data in (b"closed", b"as before", b"open"):
        rig.publish(peers[0], data)
        rig.run(0.5)
        assert rig.data(one)[-1] == rig.data(other)[-1] == data
    assert {parent_of(rig, one, peers[0]), parent_of(rig, other, peers[0])} != {one, other}


@pytest.mark.parametrize("seed", range(3))
def test_delays_that_change_all_the_time_lose_nothing(seed: int) -> None:
    """Each way of each link gets another delay before each message, so that parents go in circles;
    still everybody has everything within a second, and gossip has had no part in it."""
    rig = Rig(latency=LATENCY, seed=seed)
    peers = grown(rig)
    for number in range(30):
        for peer in peers:
            for link in rig.host(peer).links.values():
                link.latency = rig.randomness.choice((0.005, 0.03, 0.12))
        data = b"jolt %d" % number
        rig.publish(peers[0], data)
        rig.run(0.9)
        assert all(data in rig.data(peer) for peer in peers[1:])
    assert not rig.trace(Penalise)


def test_who_is_always_earlier_becomes_the_parent() -> None:
    """A neighbour's announcements come well before the parent's messages, twice in a row."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    slow, fast = puppet_at(rig, peer), puppet_at(rig, peer)
    for number in range(1, 4):
        message = foreign(number)
        if number > 1:
            said(rig, fast, TrunkPart(have=(name_of(message),)), peer)
        rig.run(0.015)
        rig.send(slow, peer, Rpc(publish=(message,)))
        rig.run(0.5)
    tag = tag_of("news", AUTHOR)
    assert parts(rig, fast)[-1] == TrunkPart(unchoke=(tag,))
    message = foreign(4)
    rig.send(fast, peer, Rpc(publish=(message,)))
    rig.run(0.015)
    rig.send(slow, peer, Rpc(publish=(message,)))
    rig.run(0.5)
    assert parts(rig, slow)[-1] == TrunkPart(choke=(tag,)), "once the new parent has delivered"


def test_what_is_announced_in_one_go_wins_once() -> None:
    """Of a burst all is as early as its first: that is one early announcement, not many."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    parent, rival = puppet_at(rig, peer), puppet_at(rig, peer)
    rig.send(parent, peer, Rpc(publish=(foreign(1),)))
    rig.run(0.5)

    def burst(first: int) -> None:
        messages = tuple(foreign(number) for number in range(first, first + 4))
        said(rig, rival, TrunkPart(have=tuple(map(name_of, messages))), peer)
        rig.run(0.015)
        rig.send(parent, peer, Rpc(publish=messages))
        rig.run(0.5)

    burst(2)
    tag = tag_of("news", AUTHOR)
    assert TrunkPart(unchoke=(tag,)) not in parts(rig, rival)
    burst(6)
    assert parts(rig, rival)[-1] == TrunkPart(unchoke=(tag,))


def test_a_copy_that_was_on_its_way_is_counted_as_such() -> None:
    """The receiver knows that the sender could not know; it does not say so twice at once."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    parent, other = puppet_at(rig, peer), puppet_at(rig, peer)
    for number in range(3):
        for puppet in (parent, other):
            rig.send(puppet, peer, Rpc(publish=(foreign(number + 1),)))
            rig.run(0.01)
    rig.run(0.3)
    assert [each.cause for each in rig.trace(DuplicateMessage)] == ["", "choke race", "choke race"]
    assert [part.choke for part in parts(rig, other)].count((tag_of("news", AUTHOR),)) == 1
    rig.run(1)
    for puppet in (parent, other):
        rig.send(puppet, peer, Rpc(publish=(foreign(9),)))
        rig.run(0.01)
    rig.run(0.3)
    chokes = [part.choke for part in parts(rig, other) if part.choke]
    assert len(chokes) == 2, "our choke was lost"


def test_announcers_are_asked_one_after_the_other() -> None:
    """The first does not answer; the second is asked when an answer would have come; and so on."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    puppets = [puppet_at(rig, peer) for _ in range(3)]
    message = foreign(1)
    for puppet in puppets:
        said(rig, puppet, TrunkPart(have=(name_of(message),)), peer)
    asked: list[int] = []
    for _ in range(150):
        rig.run(0.01)
        asked += [
            puppet
            for puppet in puppets
            if puppet not in asked and any(part.want for part in parts(rig, puppet))
        ]
        waiting = [p for p in puppets if any(part.want for part in parts(rig, p))]
        assert waiting == asked, "never two at once"
        if len(asked) == 2:
            rig.send(asked[-1], peer, Rpc(publish=(message,)))
    assert asked == puppets[:2]
    assert rig.data(peer) == [message.data]


def test_announcements_of_a_moment_share_an_rpc() -> None:
    """One RPC for each neighbour names what came within the time, and no list is too long."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    puppets = [puppet_at(rig, peer) for _ in range(2)]
    for puppet in puppets:
        said(rig, puppet, TrunkPart(choke=(tag_of("news", rig.id(peer)),)), peer)
    rig.publish(peer, b"the first makes the source known")
    for puppet in puppets:
        said(rig, puppet, TrunkPart(choke=(tag_of("news", rig.id(peer)),)), peer)
    rig.run(0.2)
    begun = [len(parts(rig, puppet)) for puppet in puppets]
    for _ in range(3):
        rig.publish(peer, b"at once")
    rig.run(trunk.HELD + LATENCY)
    for puppet, count in zip(puppets, begun, strict=True):
        (part,) = parts(rig, puppet)[count:]
        assert len(part.have) == 3
    begun = [len(parts(rig, puppet)) for puppet in puppets]
    for _ in range(trunk.HAVES_MAX + 1):
        rig.publish(peer, b"very many at once")
    rig.run(1)
    for puppet, count in zip(puppets, begun, strict=True):
        assert [len(part.have) for part in parts(rig, puppet)[count:]] == [trunk.HAVES_MAX, 1]


def test_who_is_late_himself_does_not_ask_at_once() -> None:
    """What was announced may wait unread in his own sockets; the second time he asks."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    puppet = puppet_at(rig, peer)
    said(rig, puppet, TrunkPart(have=(name_of(foreign(1)),)), peer)
    rig.run(LATENCY + 0.001)
    router, now, late = rig.router(peer), rig.network.engine.now, 0.08
    alarm = TimerFired(trunk_missing.ALARM)
    effects: Effects = []
    router.handle(alarm, now + trunk_missing.SHORTEST_WAIT + late, effects)
    (again,) = effects
    assert isinstance(again, SetTimer)
    assert again.timer == trunk_missing.ALARM
    assert again.at == pytest.approx(now + trunk_missing.SHORTEST_WAIT + 2 * late, abs=0.01)
    effects = []
    router.handle(alarm, again.at + late, effects)
    (asking,) = (each.message for each in effects if isinstance(each, Send))
    tag, name = tag_of("news", AUTHOR), name_of(foreign(1))
    wanted = TrunkPart(want=(key_of(name),), unchoke=(tag,))
    assert asking == Rpc(control=Control(trunk=wanted))


def test_a_liar_that_announces_and_never_sends_is_shunned_and_charged() -> None:
    """It is asked three times; then nobody asks it for a minute, and then once."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    liar = puppet_at(rig, peer)
    for number in range(1, 8):
        said(rig, liar, TrunkPart(have=(name_of(foreign(number)),)), peer)
        rig.run(1)
    asked = [key for part in parts(rig, liar) for key in part.want]
    assert len(asked) == trunk_missing.UNKEPT
    assert [each.reason for each in rig.trace(Penalise)] == [reasons.EMPTY_ANNOUNCEMENT]
    rig.run(trunk_missing.SHUNNED)
    for number in range(8, 12):
        said(rig, liar, TrunkPart(have=(name_of(foreign(number)),)), peer)
        rig.run(1)
    asked = [key for part in parts(rig, liar) for key in part.want]
    assert len(asked) == trunk_missing.UNKEPT + 1
    assert len(rig.trace(Penalise)) == 2


def test_who_has_brought_something_is_asked_before_who_has_only_announced() -> None:
    """However early the announcement was."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    liar, honest = puppet_at(rig, peer), puppet_at(rig, peer)
    rig.send(honest, peer, Rpc(publish=(foreign(1),)))
    rig.run(0.1)
    for puppet in (liar, honest):
        said(rig, puppet, TrunkPart(have=(name_of(foreign(2)),)), peer)
        rig.run(0.002)
    rig.run(0.1)
    assert [part.want for part in parts(rig, honest) if part.want] == [
        (key_of(name_of(foreign(2))),)
    ]
    assert not any(part.want for part in parts(rig, liar))


def test_a_liar_that_announces_early_and_delivers_late_is_elected_once() -> None:
    """It wins by its announcements, is late, is replaced, and wins no more."""
    rig = Rig(latency=LATENCY)
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    honest, liar = puppet_at(rig, peer), puppet_at(rig, peer)
    tag = tag_of("news", AUTHOR)
    elected = 0
    for number in range(1, 20):
        message = foreign(number)
        name = name_of(message)
        said(rig, liar, TrunkPart(have=(name,)), peer)
        rig.run(0.015)
        state = [part for part in parts(rig, honest) if tag in (*part.choke, *part.unchoke)]
        if state and tag in state[-1].choke:
            said(rig, honest, TrunkPart(have=(name,)), peer)
        else:
            rig.send(honest, peer, Rpc(publish=(message,)))
        for _ in range(20):
            rig.run(0.02)
            if any(key_of(name) in part.want for part in parts(rig, honest)):
                rig.send(honest, peer, Rpc(publish=(message,)))
                break
        rig.run(0.5)
        rig.send(liar, peer, Rpc(publish=(message,)))
        rig.run(0.2)
    elected = sum(tag in part.unchoke for part in parts(rig, liar) if not part.want)
    assert len(rig.data(peer)) == 19
    assert elected == 1


def test_a_new_link_carries_announcements() -> None:
    """It brings no messages as long as those that are there do."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    late = come_late(rig, peers)
    told = published(rig, peers[0])
    assert rig.data(late) == told
    assert not rig.trace(DuplicateMessage, late)
    one = next(p for p in peers if p != late and p not in rig.mesh(late))
    rig.connect(one, late)
    rig.run(0.1)
    rig.router(one).mesh._add("news", rig.router(one).mesh.links["news"], rig.id(late), 0.0, [])
    rig.router(late).mesh._add("news", rig.router(late).mesh.links["news"], rig.id(one), 0.0, [])
    before = operations(rig, late).count("want")
    published(rig, peers[0], 1)
    assert operations(rig, late).count("want") == before
    sent = [rpc.meta for rpc in rig.trace(SendRPC, one) if rpc.send_to == rig.id(late)]
    assert [each.name for meta in sent for each in meta.operations] == ["have"]
    assert not any(meta.messages for meta in sent)


def test_a_source_that_was_silent_for_long_floods_again() -> None:
    """Its tree is forgotten on both sides, and grows anew."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig, trunk_memory=20.0, probes="off")
    rig.run(30)
    assert all(not rig.router(peer).trunk.sources.by_tag for peer in peers)
    duplicates = len(rig.trace(DuplicateMessage))
    rig.publish(peers[0], b"again")
    rig.run(2)
    assert all(rig.data(peer)[-1] == b"again" for peer in peers[1:])
    assert len(rig.trace(DuplicateMessage)) > duplicates


def test_a_publisher_that_speaks_seldom_keeps_its_tree_by_probes() -> None:
    """A minute and a half of silence, and still one copy for everybody."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig, trunk_memory=60.0)
    rig.run(90)
    duplicates = len(rig.trace(DuplicateMessage))
    rig.publish(peers[0], b"again")
    rig.run(2)
    assert all(rig.data(peer)[-1] == b"again" for peer in peers[1:])
    assert len(rig.trace(DuplicateMessage)) == duplicates
    assert "probe" in operations(rig)


def test_subscribers_that_probe_have_trees_before_they_say_anything() -> None:
    """The first message of each of them comes once."""
    rig = Rig(latency=LATENCY)
    peers = rig.add(12, trunk=True, probes="subscribers")
    rig.connect_some(peers, 4)
    rig.run(0.2)
    rig.subscribe(peers)
    rig.run(10)
    for peer in peers:
        rig.publish(peer, b"first of %d" % peer)
        rig.run(1)
    assert all(len(rig.data(peer)) == len(peers) for peer in peers)
    assert not rig.trace(DuplicateMessage)


def test_who_leaves_a_topic_forgets_its_trees_and_asks_nobody_for_anything() -> None:
    """Its links end; those who had it as parent go on with another."""
    rig = Rig(latency=LATENCY)
    peers = grown(rig)
    leaver = next(parent_of(rig, p, peers[0]) for p in peers[1:] if peers[0] not in rig.mesh(p))
    if leaver == peers[0]:
        leaver = peers[1]
    before = len(operations(rig, leaver))
    rig.unsubscribe([leaver])
    assert len(operations(rig, leaver)) == before
    rig.run(0.5)
    assert not rig.router(leaver).trunk.sources.by_tag
    told = published(rig, peers[0], 3)
    for peer in set(peers) - {peers[0], leaver}:
        assert rig.data(peer)[-3:] == told


def test_tables_are_bounded() -> None:
    """Sources beyond the limit make the longest silent go; announcements beyond theirs count."""
    rig = Rig()
    (peer,) = rig.add(1, trunk=True, trunk_sources=4)
    rig.subscribe([peer])
    puppet = puppet_at(rig, peer)
    for number in range(6):
        message = signed("news", b"x", b"author %d" % number, bytes(8))
        rig.send(puppet, peer, Rpc(publish=(message,)))
    rig.run(0.1)
    known = rig.router(peer).trunk
    assert known is not None
    assert list(known.sources.by_topic["news"]) == [b"author %d" % n for n in range(2, 6)]
    assert len(known.sources.by_tag) == 4
    assert rig.router(peer).view().evicted["sources"] == 2
    names = tuple(number.to_bytes(8, "big") for number in range(trunk.HAVES_MAX))
    for _ in range(2):
        said(rig, puppet, TrunkPart(have=names[: trunk.HAVES_MAX // 2 + 1]), peer)
    rig.run(0.01)
    refused = [each for each in rig.trace(Refuse, peer) if each.reason == reasons.HAVE_TOO_MANY]
    assert [each.count for each in refused] == [2]


def test_a_stranger_cannot_speak_it() -> None:
    """Who came by an older protocol has not agreed to anything."""
    rig = Rig()
    (peer,) = rig.add(1, trunk=True)
    rig.subscribe([peer])
    puppet = puppet_at(rig, peer, GOSSIPSUB_1_2)
    said(rig, puppet, TrunkPart(have=(b"unknown!",)), peer)
    rig.run(0.5)
    assert rig.refusals(peer) == [reasons.TRUNK_NOT_OFFERED]
    assert parts(rig, puppet) == []


def test_a_neighbour_that_is_kept_from_sending_is_not_blamed_for_it() -> None:
    """P3 asks for deliveries; with the published parameters, whoever is choked would fall."""
    hardening = PRESETS["hardening"]
    assert isinstance(hardening, GossipSubConfig)
    rig = Rig(latency=0.001)
    peers = rig.add(8, config=hardening, trunk=True)
    rig.connect_all(peers)
    rig.subscribe(peers)
    rig.run(5)
    for number in range(500):
        rig.publish(peers[0], b"%d" % number)
        rig.run(0.2)
    others = {rig.id(peer) for peer in peers[1:]}
    views = [rig.router(peer).view().scores for peer in peers[1:]]
    assert min(score for view in views for peer, score in view.items() if peer in others) >= 0
    assert "choke" in operations(rig)
