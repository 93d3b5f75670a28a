"""go's peer exchange tests: a star becomes a mesh."""

from typing import Any

from protocols.conformance import publish_and_check
from protocols.pubsub_rig import Rig
from rumormill.core.ids import PeerId
from rumormill.protocols.gossipsub import reasons
from rumormill.sim.identity import SimulatedIdentity

HUB: dict[str, Any] = {"D": 0, "D_lo": 0, "D_hi": 0, "D_out": 0, "D_score": 0}
LEAF: dict[str, Any] = {"D": 4, "D_lo": 3, "D_hi": 5, "D_score": 3}
EXCHANGING: dict[str, Any] = {"do_px": True, "flood_publish": True, "scoring": False}


def record_of(peer: PeerId, signer: PeerId | None = None) -> bytes:
    claim = b"peer record of " + peer
    return claim + SimulatedIdentity(signer or peer).sign(claim)


def record_holds(peer: PeerId, record: bytes) -> bool:
    claim = b"peer record of " + peer
    signed, signature = record[:-64], record[-64:]
    return signed == claim and SimulatedIdentity(peer).verify(peer, b"", claim, signature)


def a_star(rig: Rig, hub_options: dict[str, Any], leaf_options: dict[str, Any]) -> list[int]:
    """20 subscribers that know peer 0 alone, which keeps no mesh and offers the others."""
    peers = rig.add(**HUB, **EXCHANGING, options=hub_options)
    # Leaves that check records offer nobody themselves, since they know no records.
    leaf = LEAF | EXCHANGING | {"do_px": not leaf_options}
    peers += rig.add(19, **leaf, options=leaf_options)
    for peer in peers[1:]:
        rig.connect(0, peer)
    rig.run(1)
    rig.subscribe(peers)
    rig.run(10)
    return peers


def test_gossipsub_star_topology() -> None:
    """Peer exchange turns a star into a mesh. go: TestGossipsubStarTopology."""
    rig = Rig()
    peers = a_star(rig, {}, {})
    assert rig.mesh(0) == []
    for peer in peers:
        assert len(rig.host(peer).links) > 1
    for peer in peers:
        publish_and_check(rig, [peer], peers, count=1, settle=0.0)


def test_gossipsub_star_topology_with_signed_peer_records() -> None:
    """Only peers whose records hold are dialled.

    go: TestGossipsubStarTopologyWithSignedPeerRecords.

    The hub knows a record of each peer. That of peer 7 is signed by another.
    """
    rig = Rig()
    ids = [number.to_bytes(4, "big") for number in range(20)]
    records = {peer: record_of(peer) for peer in ids}
    records[ids[7]] = record_of(ids[7], signer=ids[8])
    peers = a_star(rig, {"peer_records": records}, {"check_record": record_holds})
    for peer in peers:
        assert len(rig.host(peer).links) > 1
        links = rig.host(peer).links
        assert peer == 0 or ids[7] not in links or not links[ids[7]].outbound
    refused = [reason for peer in peers for reason in rig.refusals(peer)]
    assert reasons.PX_BAD_RECORD in refused
    for peer in peers:
        publish_and_check(rig, [peer], peers, count=1, settle=0.0)


def test_default_px_record_reducer() -> None:
    """Records are passed on as their owners signed them. go: TestDefaultPXRecordReducer.

    A peer of which none is known is named without one.
    """
    rig = Rig()
    ids = [number.to_bytes(4, "big") for number in range(1, 3)]
    rig.add(**EXCHANGING, options={"peer_records": {ids[0]: record_of(ids[0])}})
    others = [*rig.add(2), rig.add_puppet()]
    rig.subscribe([0, *others[:-1]])
    for other in others:
        rig.connect(0, other)
    rig.run(0.1)
    pruned, now = rig.id(others[-1]), rig.network.engine.now
    offered = rig.router(0)._prune_for(pruned, "news", 60.0, now, px=True).peers
    assert {info.peer: info.record for info in offered} == {ids[0]: record_of(ids[0]), ids[1]: b""}
