"""go's FloodSub tests: what holds for every router, shown on the simplest one."""

from typing import Any

import pytest

from protocols.conformance import publish_and_check
from protocols.pubsub_rig import Rig
from rumormill.core.errors import LimitError
from rumormill.core.inputs import SendDropped
from rumormill.core.trace import DeliverMessage, RejectMessage
from rumormill.protocols.floodsub.router import FLOODSUB, FloodSub
from rumormill.protocols.pubsub import reasons
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc
from rumormill.protocols.pubsub.config import PubSubConfig, PubsubLimits, SignPolicy
from rumormill.protocols.pubsub.message_ids import content_hash
from rumormill.protocols.pubsub.messages import Message, Rpc, SubOpts
from rumormill.protocols.pubsub.naming import Authorship
from rumormill.protocols.pubsub.router import NO_SUBSCRIBERS
from rumormill.protocols.registry import Hooks
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.link import LinkFaults

TREE = [(0, 1), (1, 2), (1, 4), (2, 3), (0, 5), (5, 6), (5, 8), (6, 7), (8, 9)]


def subscribers(rig: Rig, peer: int, topic: str) -> list[int]:
    """Whom a peer knows to subscribe to a topic."""
    machine: Any = rig.host(peer).machine
    return sorted(int.from_bytes(other, "big") for other in machine.topics.get(topic, ()))


def author(peer: bytes) -> Authorship:
    return Authorship(SimulatedIdentity(peer), SignPolicy.STRICT_SIGN)


class TestDelivery:
    """Messages go wherever a path of subscribers leads."""

    def test_basic_floodsub(self) -> None:
        """100 messages reach 20 peers that dial 3 others each. go: TestBasicFloodsub."""
        rig = Rig()
        peers = rig.add_floodsub(20)
        rig.subscribe(peers)
        rig.connect_sparsely(peers)
        rig.run(0.1)
        publish_and_check(rig, peers, peers, settle=0.0)

    def test_multihops(self) -> None:
        """A message crosses a chain of 6. go: TestMultihops."""
        rig = Rig()
        peers = rig.add_floodsub(6)
        for peer in peers[1:]:
            rig.connect(peer - 1, peer)
        rig.subscribe(peers[1:])
        rig.run(0.1)
        rig.publish(0, b"i like cats")
        rig.run(0.1)
        assert rig.data(5) == [b"i like cats"]

    def test_reconnects(self) -> None:
        """A subscriber leaves and comes back. go: TestReconnects."""
        rig = Rig()
        rig.add_floodsub(3)
        rig.connect(0, 1)
        rig.connect(0, 2)
        rig.subscribe([1, 2])
        rig.run(0.1)
        rig.publish(0, b"apples and oranges")
        rig.run(0.1)
        rig.unsubscribe([2])
        rig.run(0.1)
        rig.publish(0, b"potato")
        rig.run(0.1)
        assert subscribers(rig, 0, "news") == [1]
        rig.subscribe([2])
        rig.run(0.1)
        rig.publish(0, b"all is well")
        rig.run(0.1)
        assert rig.data(1) == [b"apples and oranges", b"potato", b"all is well"]
        assert rig.data(2) == [b"apples and oranges", b"all is well"]

    def test_no_connection(self) -> None:
        """Nothing travels without connections, and the publisher is told. go: TestNoConnection."""
        rig = Rig()
        rig.add_floodsub(10)
        rig.subscribe([5])
        receipt = rig.publish(0, b"TESTING")
        rig.run(0.2)
        assert rig.data(5) == []
        assert (receipt.peers, receipt.note) == (0, NO_SUBSCRIBERS)

    def test_self_receive(self) -> None:
        """A subscriber gets its own messages, and others do not. go: TestSelfReceive."""
        rig = Rig()
        (peer,) = rig.add_floodsub()
        rig.publish(peer, b"hello world")
        rig.subscribe([peer])
        rig.publish(peer, b"goodbye world")
        assert rig.data(peer) == [b"goodbye world"]

    def test_one_to_one(self) -> None:
        """Messages of both of two peers reach the one that subscribes. go: TestOneToOne."""
        rig = Rig()
        rig.add_floodsub(2)
        rig.connect(0, 1)
        rig.subscribe([1])
        rig.run(0.05)
        for peer in (0, 1):
            publish_and_check(rig, [peer], [1], count=1, settle=0.0)

    def test_tree_topology(self) -> None:
        """Messages from two leaves reach a tree of 10. go: TestTreeTopology."""
        rig = Rig()
        peers = rig.add_floodsub(10)
        for one, other in TREE:
            rig.connect(one, other)
        rig.subscribe(peers)
        rig.run(0.05)
        assert subscribers(rig, 0, "news") == [1, 5]
        assert subscribers(rig, 1, "news") == [0, 2, 4]
        assert subscribers(rig, 2, "news") == [1, 3]
        for leaf in (9, 3):
            publish_and_check(rig, [leaf], peers, count=1, settle=0.0)

    def test_floodsub_pluggable_protocol(self) -> None:
        """Peers talk if they share a protocol name. go: TestFloodSubPluggableProtocol.

        One that speaks two is a hub between those that speak one each.
        """
        rig = Rig()
        for protocols in (("/esh", "/lsr"), ("/esh",), ("/lsr",)):
            rig.add(
                protocols=protocols,
                build=lambda peer, rng: FloodSub(SimulatedIdentity(peer), rng, PubSubConfig()),
            )
        rig.subscribe([0, 1, 2])
        rig.connect(1, 2)
        assert not rig.host(1).links, "nothing in common"
        rig.connect(1, 0)
        rig.connect(2, 0)
        rig.run(0.1)
        rig.publish(2, b"bar")
        rig.run(0.1)
        assert [rig.data(peer) for peer in (0, 1, 2)] == [[b"bar"]] * 3

    def test_message_sender(self) -> None:
        """A delivery names the peer that it came from. go: TestMessageSender."""
        rig = Rig()
        peers = rig.add_floodsub(3)
        rig.subscribe(peers)
        rig.connect(0, 1)
        rig.connect(1, 2)
        rig.run(0.1)
        for writer in peers:
            for number in range(100):
                rig.publish(writer, b"%d sent %d" % (writer, number))
                rig.run(0.01)
        for peer in peers:
            senders = [delivery.received_from for delivery in rig.trace(DeliverMessage, peer)]
            for writer in peers:
                expected = writer if 1 in {peer, writer} or peer == writer else 1
                assert senders[writer * 100 : writer * 100 + 100] == [rig.id(expected)] * 100


class TestSubscriptions:
    """Who subscribes to what is known, and changes."""

    def test_sub_reporting(self) -> None:
        """A peer knows its own topics. go: TestSubReporting."""
        rig = Rig()
        (peer,) = rig.add_floodsub()
        machine: Any = rig.host(peer).machine
        for topic in ("foo", "bar", "baz"):
            rig.subscribe([peer], topic)
        assert sorted(machine.subscriptions) == ["bar", "baz", "foo"]
        rig.unsubscribe([peer], "bar")
        rig.unsubscribe([peer], "foo")
        rig.subscribe([peer], "fish")
        assert sorted(machine.subscriptions) == ["baz", "fish"]

    def test_peer_topic_reporting(self) -> None:
        """A peer knows its neighbours' topics. go: TestPeerTopicReporting."""
        rig = Rig()
        rig.add_floodsub(4)
        for peer in (1, 2, 3):
            rig.connect(0, peer)
        for peer, topics in ((1, "foo bar baz"), (2, "foo ipfs"), (3, "baz ipfs")):
            for topic in topics.split():
                rig.subscribe([peer], topic)
        rig.run(0.2)
        known = {topic: subscribers(rig, 0, topic) for topic in ("ipfs", "foo", "baz", "bar")}
        assert known == {"ipfs": [2, 3], "foo": [1, 2], "baz": [1, 3], "bar": [1]}

    def test_subscribe_multiple_times(self) -> None:
        """Subscribing twice is subscribing once. go: TestSubscribeMultipleTimes.

        The application's several readers of one subscription are the runtime's concern.
        """
        rig = Rig()
        rig.add_floodsub()
        puppet = rig.add_puppet((FLOODSUB,))
        rig.connect(0, puppet)
        rig.subscribe([0])
        rig.subscribe([0])
        rig.run(0.01)
        assert [rpc.subscriptions for rpc in rig.rpcs(puppet)] == [(SubOpts(True, "news"),)]
        rig.send(puppet, 0, Rpc(publish=(author(rig.id(puppet)).compose("news", b"bar"),)))
        rig.run(0.01)
        assert rig.data(0) == [b"bar"]

    def test_peer_disconnect(self) -> None:
        """A peer that is gone subscribes to nothing. go: TestPeerDisconnect."""
        rig = Rig()
        peers = rig.add_floodsub(2)
        rig.connect(0, 1)
        rig.subscribe(peers)
        rig.run(0.3)
        assert subscribers(rig, 0, "news") == [1]
        rig.disconnect(1, 0)
        rig.run(0.3)
        assert subscribers(rig, 0, "news") == []

    def test_announce_retry(self) -> None:
        """An announcement that could not be sent is sent again. go: TestAnnounceRetry."""
        rig = Rig()
        rig.add_floodsub()
        watcher = rig.add_puppet((FLOODSUB,))
        rig.subscribe([0])
        rig.connect(0, watcher)
        announcement = Rpc(subscriptions=(SubOpts(True, "news"),))

        def announced() -> list[bool]:
            return [sub.subscribe for rpc in rig.rpcs(watcher) for sub in rpc.subscriptions]

        assert announced() == [True]
        rig.host(0).handle(SendDropped(rig.id(watcher), announcement, "queue full"))
        rig.run(0.9)
        assert announced() == [True]
        rig.run(0.2)
        assert announced() == [True, True]

        rig.host(0).handle(SendDropped(rig.id(watcher), announcement, "queue full"))
        rig.unsubscribe([0])
        rig.run(1.1)
        assert announced() == [True, True, False, False], "what is true by then is announced"

    def test_preconnected_nodes(self) -> None:
        """Peers that were connected before a router came up work too. go: TestPreconnectedNodes.

        Here a router starts anew, with nothing in its memory, and its peer dials it again.
        """
        rig = Rig()
        peers = rig.add_floodsub(2)
        rig.connect(1, 0)
        rig.network.crash(rig.host(1))
        rig.network.start(rig.host(1))
        rig.subscribe(peers)
        rig.connect(0, 1)
        for publisher, receiver in ((0, 1), (1, 0)):
            publish_and_check(rig, [publisher], [receiver], count=1, settle=0.0)

    def test_dedup_inbound_streams(self) -> None:
        """A second connection of a peer that is connected changes nothing.

        go: TestDedupInboundStreams.
        """
        rig = Rig()
        rig.add_floodsub()
        puppet = rig.add_puppet((FLOODSUB,))
        rig.connect(puppet, 0)
        rig.send(puppet, 0, Rpc(subscriptions=(SubOpts(True, "news"),)))
        rig.run(0.01)
        rig.connect(puppet, 0)
        rig.connect(0, puppet)
        assert subscribers(rig, 0, "news") == [puppet]
        assert rig.publish(0, b"once").peers == 1
        rig.run(0.01)
        assert len(rig.rpcs(puppet)) == 1


class TestAuthorship:
    """Signatures, and messages without authors."""

    def exchange(self, **changes: Any) -> Message:
        """One peer publishes to another; return what went over the wire."""
        rig = Rig()
        rig.add_floodsub(2, **changes)
        puppet = rig.add_puppet((FLOODSUB,))
        rig.connect(0, 1)
        rig.connect(0, puppet)
        rig.subscribe([1])
        rig.send(puppet, 0, Rpc(subscriptions=(SubOpts(True, "news"),)))
        rig.run(0.01)
        rig.publish(0, b"this is a message")
        rig.run(0.01)
        assert rig.data(1) == [b"this is a message"]
        (rpc,) = [rpc for rpc in rig.rpcs(puppet) if rpc.publish]
        return rpc.publish[0]

    def test_with_no_signing(self) -> None:
        """Without signing there is no author, number or signature. go: TestWithNoSigning."""
        message = self.exchange(sign_policy=SignPolicy.STRICT_NO_SIGN)
        assert (message.author, message.seqno, message.signature, message.key) == (b"",) * 4

    def test_with_signing(self) -> None:
        """With signing there are all three. go: TestWithSigning."""
        message = self.exchange(sign_policy=SignPolicy.STRICT_SIGN)
        assert message.author == bytes(4)
        assert len(message.seqno) == 8
        assert message.signature

    def test_improperly_signed_message_rejected(self) -> None:
        """A message signed by another key is refused. go: TestImproperlySignedMessageRejected.

        So is one whose data was changed, or that has no signature.
        """
        rig = Rig()
        rig.add_floodsub()
        adversary = rig.add_puppet((FLOODSUB,))
        rig.connect(adversary, 0)
        rig.subscribe([0])
        me, another = rig.id(adversary), b"\0\0\0\7"
        mine = author(me)
        correct = mine.compose("news", b"this is a correct message")
        in_anothers_name = mine.compose("news", b"signed with the wrong key")
        in_anothers_name.author, in_anothers_name.encoded = another, b""
        changed = mine.compose("news", b"before")
        changed.data, changed.encoded = b"after", b""
        unsigned = Message("news", b"unsigned", me, b"\0" * 8)
        for message in (correct, in_anothers_name, changed, unsigned):
            rig.send(adversary, 0, Rpc(publish=(message,)))
        rig.run(0.01)
        assert rig.data(0) == [b"this is a correct message"]
        assert [rejected.reason for rejected in rig.trace(RejectMessage, 0)] == [
            reasons.INVALID_SIGNATURE,
            reasons.INVALID_SIGNATURE,
            reasons.MISSING_SIGNATURE,
        ]

    def test_pubsub_with_assorted_options(self) -> None:
        """Content ids, no authors and short queues go together.

        go: TestPubsubWithAssortedOptions.
        """
        rig = Rig(faults=LinkFaults(queue_limit=10))
        config = PubSubConfig(sign_policy=SignPolicy.STRICT_NO_SIGN)
        peers = rig.add(
            2,
            protocols=(FLOODSUB,),
            build=lambda peer, rng: FloodSub(
                SimulatedIdentity(peer), rng, config, Hooks(message_id=content_hash)
            ),
        )
        rig.subscribe(peers)
        rig.connect(0, 1)
        for peer in peers:
            publish_and_check(rig, [peer], peers, count=1, settle=0.0)


def test_configurable_max_message_size() -> None:
    """A limit of 4 MiB lets 2 MiB through, 1 MiB does not. go: TestConfigurableMaxMessageSize."""
    rig = Rig()
    limits = PubsubLimits(rpc_bytes=1 << 22)
    rig.network.round_trip = lambda rpc: decode_rpc(encode_rpc(rpc), limits)
    peers = rig.add_floodsub(10, max_rpc_size=1 << 22)
    rig.connect_sparsely(peers)
    rig.subscribe(peers)
    rig.run(1)
    data = rig.randomness.randbytes(1 << 21)
    rig.publish(0, data)
    rig.run(0.1)
    assert all(rig.data(peer) == [data] for peer in peers)

    (small,) = rig.add_floodsub()
    with pytest.raises(LimitError, match="max_rpc_size"):
        rig.publish(small, data)


def test_floodsub_sends_no_copy_back() -> None:
    """A message goes neither to the peer that it came from nor to its author."""
    rig = Rig()
    rig.add_floodsub()
    puppets = [rig.add_puppet((FLOODSUB,)) for _ in range(3)]
    rig.subscribe([0])
    for puppet in puppets:
        rig.connect(puppet, 0)
        rig.send(puppet, 0, Rpc(subscriptions=(SubOpts(True, "news"),)))
    rig.run(0.01)
    sender, writer, _ = puppets
    message = author(rig.id(writer)).compose("news", b"once around")
    rig.send(sender, 0, Rpc(publish=(message,)))
    rig.run(0.01)
    received = [sum(bool(rpc.publish) for rpc in rig.rpcs(puppet)) for puppet in puppets]
    assert received == [0, 0, 1]
    assert rig.data(0) == [b"once around"]
