"""go's IDONTWANT tests (GossipSub 1.2): who tells whom, when, and what it changes.

Most tests have three peers in a row: a publisher, a real peer in the middle, and a neighbour whose
part the test plays.
"""

from protocols.conformance import by_data, controls, datas, idontwants, ihaves, subscribe_and
from protocols.pubsub_rig import Rig
from rumormill.core.event import Event
from rumormill.core.inputs import Verdict
from rumormill.core.trace import RecvRPC
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_1, PROTOCOLS
from rumormill.protocols.pubsub.control_codec import MAX_ID_BYTES
from rumormill.protocols.pubsub.messages import Control, Prune, Rpc

PUBLISHER, MIDDLE, NEIGHBOUR = 0, 1, 2


def a_row(
    *,
    threshold: int = 1024,
    grafts: bool = True,
    protocols: tuple[str, ...] = PROTOCOLS,
) -> Rig:
    """Three connected subscribers; the neighbour grafts the middle peer, or refuses links."""
    rig = Rig()
    rig.add(2, idontwant_threshold=threshold, flood_publish=False, options={"message_id": by_data})
    rig.add_puppet(protocols)
    rig.subscribe([PUBLISHER, MIDDLE])
    rig.connect(PUBLISHER, MIDDLE)
    rig.connect(MIDDLE, NEIGHBOUR)
    first = subscribe_and(graft=("news",)) if grafts else subscribe_and(prune=(Prune("news"),))
    rig.send(NEIGHBOUR, MIDDLE, first)
    rig.run(1.5)
    assert PUBLISHER in rig.mesh(MIDDLE)
    assert (NEIGHBOUR in rig.mesh(MIDDLE)) == grafts
    return rig


def publish_some(rig: Rig, size: int) -> list[bytes]:
    sent = [rig.randomness.randbytes(size) for _ in range(10)]
    for data in sent:
        rig.publish(PUBLISHER, data)
    rig.run(1)
    return sent


def test_gossipsub_idontwant_send() -> None:
    """It is sent before validation, once per message. go: TestGossipsubIdontwantSend."""
    rig = a_row(threshold=16)
    router, host = rig.router(MIDDLE), rig.host(MIDDLE)
    known_at_verdict: list[int] = []

    def verdict(event: Event) -> Verdict:
        known_at_verdict.append(len(idontwants(rig.rpcs(NEIGHBOUR))))
        return Verdict.ACCEPT

    router._validator = lambda event, peer: Verdict.DEFER
    host.validation_delay = 0.1
    host.verdict = verdict
    rig.run(0.1)
    sent = [rig.randomness.randbytes(16) for _ in range(10)]
    for data in sent:
        rig.publish(PUBLISHER, data)
    rig.run(0.09)
    assert sorted(idontwants(rig.rpcs(NEIGHBOUR))) == sorted(sent)
    assert rig.data(MIDDLE) == []
    rig.run(1)
    assert rig.data(MIDDLE) == sent
    assert len(known_at_verdict) == 10
    assert sorted(idontwants(rig.rpcs(NEIGHBOUR))) == sorted(sent)


def test_gossipsub_idontwant_receive() -> None:
    """A peer that said so is not sent the message. go: TestGossipsubIdontwantReceive."""
    rig = a_row()
    rig.send(NEIGHBOUR, MIDDLE, Rpc(control=Control(idontwant=(b"unwanted",))))
    rig.run(0.1)
    rig.publish(PUBLISHER, b"unwanted")
    rig.publish(PUBLISHER, b"wanted")
    rig.run(1)
    assert rig.data(MIDDLE) == [b"unwanted", b"wanted"]
    assert datas(rig.rpcs(NEIGHBOUR)) == [b"wanted"]


def test_gossipsub_no_idontwant_to_message_sender() -> None:
    """Who sent the message is not told. go: TestGossipsubNoIDONTWANTToMessageSender."""
    rig = a_row()
    data = bytes(1025)
    rig.publish(PUBLISHER, data)
    rig.run(1)
    received = [rpc.meta.control for rpc in rig.trace(RecvRPC, PUBLISHER) if rpc.meta.control]
    assert not any(control.idontwant for control in received)
    assert idontwants(rig.rpcs(NEIGHBOUR)) == [data[:MAX_ID_BYTES]], "others are"


def test_gossipsub_idontwant_before_first_publish() -> None:
    """A publisher announces its own message first. go: TestGossipsubIDONTWANTBeforeFirstPublish."""
    rig = a_row()
    already = len(rig.trace(RecvRPC, MIDDLE))
    rig.publish(PUBLISHER, bytes(1025))
    rig.run(0.01)
    kinds = [
        "idontwant" if rpc.meta.control and rpc.meta.control.idontwant else "publish"
        for rpc in rig.trace(RecvRPC, MIDDLE)[already:]
        if rpc.meta.messages or (rpc.meta.control and rpc.meta.control.idontwant)
    ]
    assert kinds == ["idontwant", "publish"]


def test_gossipsub_idontwant_non_mesh() -> None:
    """Peers outside the mesh are not told. go: TestGossipsubIdontwantNonMesh."""
    rig = a_row(threshold=16, grafts=False)
    sent = publish_some(rig, 16)
    assert rig.data(MIDDLE) == sent
    assert idontwants(rig.rpcs(NEIGHBOUR)) == []


def test_gossipsub_idontwant_incompat() -> None:
    """Peers that speak 1.1 are not told. go: TestGossipsubIdontwantIncompat."""
    rig = a_row(threshold=16, protocols=(GOSSIPSUB_1_1,))
    sent = publish_some(rig, 16)
    assert datas(rig.rpcs(NEIGHBOUR)) == sent
    assert idontwants(rig.rpcs(NEIGHBOUR)) == []


def test_gossipsub_idontwant_small_message() -> None:
    """Small messages are not worth it. go: TestGossipsubIdontwantSmallMessage."""
    rig = a_row(threshold=16)
    sent = publish_some(rig, 8)
    assert datas(rig.rpcs(NEIGHBOUR)) == sent
    assert idontwants(rig.rpcs(NEIGHBOUR)) == []


def test_gossipsub_idontwant_before_iwant() -> None:
    """An IWANT after IDONTWANT is not answered. go: TestGossipsubIdontwantBeforeIwant."""
    rig = a_row(grafts=False)
    rig.publish(PUBLISHER, b"gossiped")
    rig.publish(PUBLISHER, b"gossiped too")
    rig.run(1.1)
    assert set(ihaves(rig.rpcs(NEIGHBOUR))) == {b"gossiped", b"gossiped too"}
    rig.send(NEIGHBOUR, MIDDLE, Rpc(control=Control(idontwant=(b"gossiped",))))
    rig.run(0.1)
    rig.send(NEIGHBOUR, MIDDLE, Rpc(control=Control(iwant=(b"gossiped", b"gossiped too"))))
    rig.run(0.5)
    assert datas(rig.rpcs(NEIGHBOUR)) == [b"gossiped too"]


def test_gossipsub_idontwant_clear() -> None:
    """It is forgotten after 3 heartbeats. go: TestGossipsubIdontwantClear."""
    rig = a_row()
    unwanted = rig.router(MIDDLE).gossip.unwanted
    rig.send(NEIGHBOUR, MIDDLE, Rpc(control=Control(idontwant=(b"unwanted for a while",))))
    rig.run(0.1)
    assert list(unwanted[rig.id(NEIGHBOUR)]) == [b"unwanted for a while"]
    rig.run(4)
    assert unwanted == {}
    rig.publish(PUBLISHER, b"unwanted for a while")
    rig.run(0.1)
    assert datas(rig.rpcs(NEIGHBOUR)) == [b"unwanted for a while"]
    assert not any(control.idontwant for control in controls(rig.rpcs(NEIGHBOUR)))
