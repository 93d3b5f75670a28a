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
from rumormill.protocols.gossipsub.sources import YOUNG
from rumormill.protocols.gossipsub.trunk_missing import LONGEST_WAIT
from rumormill.protocols.gossipsub.trunk_probes import HABIT, INTERVAL
from rumormill.protocols.pubsub.messages import Control, Rpc, SubOpts
from rumormill.protocols.pubsub.trunk_part import TrunkPart, key_of, tag_of

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
    peers = grown(rig, trunk_memory=60.0, probes="off")
    (late,) = rig.add(1, trunk=True)
    for peer in peers[:4]:
        rig.connect(late, peer)
    rig.run(0.1)
    rig.subscribe([late])
    rig.run(3)
    for number in range(count):
        rig.publish(late, b"%d" % number)
        rig.run(1)
    rig.run(2 * INTERVAL)
    assert ("probe" in operations(rig, late)) == (count >= HABIT)
