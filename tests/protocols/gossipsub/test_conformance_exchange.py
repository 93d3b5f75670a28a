"""go's peer exchange tests: a star becomes a mesh, and records of private addresses stay home."""

import hashlib
from typing import Any

import pytest

from protocols.conformance import publish_and_check
from protocols.pubsub_rig import Rig
from rumormill.core.errors import DecodeError
from rumormill.core.ids import PeerId
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.exchange import (
    is_public,
    names_public_address,
    public_records,
    whole_record,
)
from rumormill.protocols.pubsub.messages import PeerInfo
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


def a_record(*addresses: str) -> bytes:
    """A record in a format of this test: addresses, and a checksum."""
    text = ",".join(addresses).encode()
    return hashlib.sha256(text).digest() + text


def addresses_of(record: bytes) -> list[str]:
    checksum, text = record[:32], record[32:]
    if hashlib.sha256(text).digest() != checksum:
        raise DecodeError("bad-record", "the checksum is wrong")
    return text.decode().split(",")


PRIVATE, PUBLIC = a_record("192.168.1.1"), a_record("8.8.8.8")


def offered(reduce: Any, *records: bytes) -> list[PeerInfo]:
    """What a peer that is pruned is offered, by the peer and with the records given."""
    rig = Rig()
    count = len(records)
    ids = [number.to_bytes(4, "big") for number in range(1, count + 1)]
    known = {peer: record for peer, record in zip(ids, records, strict=True) if record}
    options = {"peer_records": known, "reduce_record": reduce}
    rig.add(**EXCHANGING, options=options)
    others = [*rig.add(count), rig.add_puppet()]
    rig.subscribe([0, *others[:-1]])
    for other in others:
        rig.connect(0, other)
    rig.run(0.1)
    router = rig.router(0)
    prune = router._prune_for(rig.id(others[-1]), "news", 60.0, rig.network.engine.now, px=True)
    return sorted(prune.peers, key=lambda info: info.peer)


def test_check_pub_addrs_on_signed_peer_record() -> None:
    """A record needs a public address and must be well-formed.

    go: TestCheckPubAddrsOnSignedPeerRecord.
    """
    assert not names_public_address(PRIVATE, addresses_of)
    assert names_public_address(PUBLIC, addresses_of)
    assert names_public_address(a_record("10.0.0.1", "8.8.8.8"), addresses_of)
    assert not names_public_address(b"", addresses_of)
    assert not names_public_address(b"malformed", addresses_of)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("relay.rumormill.net", True),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("127.0.0.1", False),
        ("169.254.1.1", False),
        ("100.64.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("localhost", False),
        ("printer.local", False),
        ("", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    """An address is public if it means the same host to everybody."""
    assert is_public(address) == public


def test_default_px_record_reducer() -> None:
    """By default records are passed on as they are. go: TestDefaultPXRecordReducer."""
    assert [info.record for info in offered(whole_record, PRIVATE, PRIVATE)] == [PRIVATE] * 2
    assert [info.record for info in offered(whole_record, PRIVATE, PUBLIC)] == [PRIVATE, PUBLIC]
    assert [info.record for info in offered(whole_record, b"", b"")] == [b""] * 2


def test_public_addrs_px_record_reducer() -> None:
    """Records without a public address are left out, their peers are named.

    go: TestPublicAddrsPXRecordReducer.
    """
    reduce = public_records(addresses_of)
    for known, passed_on in (
        ((PRIVATE, PRIVATE), [b"", b""]),
        ((PUBLIC, PUBLIC), [PUBLIC, PUBLIC]),
        ((PRIVATE, PUBLIC), [b"", PUBLIC]),
        ((b"", b""), [b"", b""]),
        ((b"malformed", PUBLIC), [b"", PUBLIC]),
    ):
        infos = offered(reduce, *known)
        assert [info.peer[-1] for info in infos] == [1, 2]
        assert [info.record for info in infos] == passed_on
