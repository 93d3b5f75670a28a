"""What stands against peers that hold mesh links and say nothing.

A full mesh whose links bring nothing lets in a peer that brings messages; gossip reaches everybody
outside the mesh in turn. The nine attacks that this is for are in test_attacks.py.
"""

from protocols.conformance import ihaves, subscribe_and
from protocols.pubsub_rig import Rig
from protocols.router_inputs import signed
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.pubsub.messages import Control, Rpc

NO_MESH = {"D": 0, "D_lo": 0, "D_hi": 0, "D_score": 0, "D_out": 0}
SMALL = {"D": 2, "D_lo": 2, "D_hi": 3, "D_score": 2, "D_out": 0}


def dialling_puppets(rig: Rig, count: int, peer: int, **control: object) -> list[int]:
    """Puppets that dial a peer, subscribe, and say something more."""
    puppets = [rig.add_puppet() for _ in range(count)]
    for puppet in puppets:
        rig.connect(puppet, peer)
        rig.send(puppet, peer, subscribe_and(**control))
    rig.run(0.1)
    return puppets


def test_a_full_mesh_that_hears_nothing_takes_in_who_brings_messages() -> None:
    """And nobody else: one silent peer more is refused, as the specification has it."""
    rig = Rig()
    (peer,) = rig.add(1, **SMALL)
    rig.subscribe([peer])
    silent = dialling_puppets(rig, 3, peer, graft=("news",))
    assert sorted(rig.mesh(peer)) == silent, "the mesh is full"
    (bringer, other) = dialling_puppets(rig, 2, peer)
    message = signed("news", b"something new", rig.id(bringer), bytes(8))
    rig.send(bringer, peer, Rpc(publish=(message,)))
    rig.run(2)
    for newcomer in (bringer, other):
        rig.send(newcomer, peer, Rpc(control=Control(graft=("news",))))
    rig.run(0.1)
    assert sorted(rig.mesh(peer)) == [*silent, bringer]
    assert rig.refusals(peer) == [reasons.GRAFT_MESH_FULL]
    rig.run(2)
    assert bringer in rig.mesh(peer), "and when the heartbeat prunes, it is one of the two to stay"
    assert len(rig.mesh(peer)) == SMALL["D"]


def test_gossip_goes_round() -> None:
    """Nobody is told twice of a message before all others were told of it."""
    rig = Rig()
    (peer,) = rig.add(1, D_lazy=4, gossip_factor=0.0, flood_publish=False, **NO_MESH)
    rig.subscribe([peer])
    listeners = dialling_puppets(rig, 12, peer)
    rig.publish(peer, b"news")
    rig.run(4)
    assert [len(ihaves(rig.rpcs(listener))) for listener in listeners] == [1] * 12
