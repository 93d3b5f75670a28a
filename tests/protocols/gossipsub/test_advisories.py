"""What felled other implementations: published advisories that touch pub/sub, each as a test.

Many of them were accepted at first and did harm later, so every test lets the router run on for a
hundred heartbeats, and then asks whether it still delivers. Memory is checked by counting the
entries of all tables (`router_tables`) and the bytes in them.
"""

import random
from typing import Any

import msgspec
import pytest

from protocols.pubsub_rig import Rig
from protocols.router_tables import entries, held_bytes, mentions, table_sizes
from rumormill.core.effects import Append, Connect, Send, SendAll
from rumormill.core.errors import ConfigError, DecodeError, LocalError
from rumormill.core.inputs import (
    Input,
    PeerConnected,
    PeerDisconnected,
    Publish,
    Received,
    SendDropped,
    Start,
    Stored,
    Subscribe,
    TimerFired,
    Validated,
    Verdict,
)
from rumormill.core.trace import Penalise, RejectMessage
from rumormill.protocols.gossipsub import reasons
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig
from rumormill.protocols.gossipsub.peers import GOSSIPSUB_1_2
from rumormill.protocols.gossipsub.router import _HEARTBEAT, GossipSub
from rumormill.protocols.gossipsub.score_params import HARDENING_THRESHOLDS
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc, signing_payload
from rumormill.protocols.pubsub.config import MAX_NAMES
from rumormill.protocols.pubsub.messages import (
    Control,
    IHave,
    Message,
    PeerInfo,
    Prune,
    Rpc,
    SubOpts,
)
from rumormill.protocols.pubsub.reasons import (
    INVALID_SIGNATURE,
    MISSING_SIGNATURE,
    TOO_MANY_SUBSCRIPTIONS,
)
from rumormill.protocols.registry import Hooks
from rumormill.sim.identity import SimulatedIdentity
from rumormill.wire.frames import FrameReader

TOPIC = "news"
SELF, EVIL, GOOD = b"self", b"evil", b"good"


class Victim:
    """A router that subscribes to a topic, an attacker, and a good peer in its mesh."""

    def __init__(self, config: GossipSubConfig | None = None, **hooks: Any) -> None:
        self.now = 0.0
        self.router = GossipSub(
            SimulatedIdentity(SELF), random.Random(1), config or GossipSubConfig(), Hooks(**hooks)
        )
        self.give(Start())
        self.give(Subscribe(TOPIC))
        self.meet(GOOD, outbound=True)
        self.meet(EVIL)

    def give(self, event: Input) -> list[Any]:
        """What the router does about an input, its log being quick and safe."""
        effects: list[Any] = []
        self.router.handle(event, self.now, effects)
        for append in [each for each in effects if isinstance(each, Append)]:
            if append.barrier is not None:
                self.router.handle(Stored((append.barrier,)), self.now, effects)
        return [single for effect in effects for single in singly(effect)]

    def meet(self, peer: bytes, *, outbound: bool = False) -> None:
        self.give(PeerConnected(peer, GOSSIPSUB_1_2, outbound, "10.0.0.1"))
        self.receive(peer, Rpc((SubOpts(True, TOPIC),), control=Control(graft=(TOPIC,))))

    def receive(self, peer: bytes, rpc: Rpc) -> list[Any]:
        return self.give(Received(peer, rpc))

    def attack(self, **control: Any) -> list[Any]:
        return self.receive(EVIL, Rpc(control=Control(**control)))

    def beat(self, times: int = 1) -> list[Any]:
        effects = []
        for _ in range(times):
            self.now += 1.0
            effects += self.give(TimerFired(_HEARTBEAT))
        return effects

    def score(self, peer: bytes) -> float:
        return self.router.trust.score(peer, self.now)

    def still_works(self) -> None:
        """A hundred heartbeats later, what a good peer sends is delivered, and ours goes out."""
        self.beat(100)
        message = signed(GOOD, b"are you there?", 2**40)
        effects = self.receive(GOOD, Rpc(publish=(message,)))
        assert [e.event.data for e in effects if isinstance(e, Append)] == [b"are you there?"]
        effects = self.give(Publish(TOPIC, b"here I am"))
        assert GOOD in [e.peer for e in effects if isinstance(e, Send)]


def singly(effect: Any) -> list[Any]:
    """An effect, or the sends that it stands for."""
    if isinstance(effect, SendAll):
        return [Send(peer, effect.message) for peer in effect.peers]
    return [effect]


def signed(author: bytes, data: bytes, seqno: int = 1, topic: str = TOPIC) -> Message:
    """A message as its author sends it."""
    message = Message(topic, data, author, seqno.to_bytes(8, "big"))
    message.signature = SimulatedIdentity(author).sign(signing_payload(message))
    return message


def refusals(effects: list[Any]) -> list[str]:
    return [effect.reason for effect in effects if type(effect).__name__ == "Refuse"]


# CVE-2026-33040, GHSA-gc42-3jg7-rxr2; CVE-2026-34219, GHSA-xqmp-fxgv-xvq5.


@pytest.mark.parametrize(
    "backoff", [2**64 - 1, 9223372036854674580, 2**63 - 1, 2**63, 2**62, 2**53, 2**32, 1, 0]
)
@pytest.mark.parametrize("linked", [True, False])
def test_an_extreme_backoff_is_clamped(backoff: int, linked: bool) -> None:
    """A PRUNE may name any number of seconds: an hour is the most that it gets."""
    victim = Victim()
    if not linked:
        victim.receive(EVIL, Rpc(control=Control(prune=(Prune(TOPIC, (), 1),))))
    rpc = decode_rpc(encode_rpc(Rpc(control=Control(prune=(Prune(TOPIC, (), backoff),)))))
    assert rpc.control is not None
    assert rpc.control.prune[0].backoff == backoff, "the wire carries the number"
    victim.receive(EVIL, rpc)
    assert EVIL not in victim.router.mesh.links[TOPIC]
    assert victim.router.mesh.backoff.expires(TOPIC, EVIL) <= 3600.0
    victim.still_works()
    victim.now = 3700.0
    victim.beat()
    assert len(victim.router.mesh.backoff) == 0
    assert EVIL in victim.router.mesh.links[TOPIC], "the link may be made again"


# GHSA-g3g5-x568-qvqx.


def test_grafts_for_ever_new_topics_leave_nothing_behind() -> None:
    """A topic that is not ours is not remembered, however often it is asked for."""
    victim = Victim()
    before = table_sizes(victim.router)
    for batch in range(50):
        effects = victim.attack(graft=tuple(f"topic {batch} {n}" for n in range(1000)))
        assert set(refusals(effects)) == {reasons.GRAFT_UNKNOWN_TOPIC}
        assert not any(isinstance(effect, Send) for effect in effects)
    assert table_sizes(victim.router) == before
    victim.still_works()


def test_prunes_for_ever_new_topics_leave_nothing_behind() -> None:
    """Nor is one whose link, which never was, a peer ends."""
    victim = Victim()
    before = table_sizes(victim.router)
    for batch in range(50):
        prunes = tuple(Prune(f"topic {batch} {n}", (), 2**64 - 1) for n in range(1000))
        victim.attack(prune=prunes)
    victim.beat()
    assert table_sizes(victim.router) == before
    victim.still_works()


# CVE-2026-46679, GHSA-4f8r-922h-2vgv.

SUBSCRIPTION_FLOOD = 349_525


def test_a_subscription_flood_is_refused_by_the_decoder() -> None:
    """An RPC of 349,525 subscriptions is refused: too long, and if it were not, too many."""
    rpc = Rpc(subscriptions=tuple(SubOpts(True, f"{n:06d}") for n in range(SUBSCRIPTION_FLOOD)))
    encoded = encode_rpc(rpc)
    assert len(encoded) > 4_000_000
    with pytest.raises(DecodeError, match="rpc-too-long"):
        decode_rpc(encoded)
    with pytest.raises(DecodeError, match="too-many-subscriptions"):
        decode_rpc(encoded[: (1 << 20) // 14 * 12])


def test_a_subscription_flood_that_reaches_the_router_is_cut() -> None:
    """Past the decoder, a peer still has no more topics than the limit, and none when gone."""
    victim = Victim()
    before, bytes_before = entries(victim.router), held_bytes(victim.router)
    names = (f"topic {n}" for n in range(SUBSCRIPTION_FLOOD))
    flood = Rpc(subscriptions=tuple(SubOpts(True, name) for name in names))
    [refusal] = victim.receive(EVIL, flood)
    assert refusal.reason == TOO_MANY_SUBSCRIPTIONS
    assert refusal.count == SUBSCRIPTION_FLOOD - 1023, "one topic was known before"
    # A topic stands in the peer's table, in the table of topics, and in that topic's own.
    assert entries(victim.router) <= before + 3 * 1024
    victim.receive(EVIL, flood)
    assert entries(victim.router) <= before + 3 * 1024
    victim.give(PeerDisconnected(EVIL))
    assert entries(victim.router) <= before
    assert held_bytes(victim.router) <= bytes_before
    victim.still_works()


def test_long_names_are_remembered_up_to_a_sum() -> None:
    """A thousand topics of a kibibyte each would be as many megabytes as there are sybils; who
    leaves some may name others."""
    victim = Victim()
    (own,) = victim.router.peers[EVIL].topics
    fit = (MAX_NAMES - len(own)) // 1024
    names = [f"{n}".ljust(1024) for n in range(1024)]
    flood = Rpc(subscriptions=tuple(SubOpts(True, name) for name in names))
    [refusal] = victim.receive(EVIL, flood)
    assert (refusal.reason, refusal.count) == (TOO_MANY_SUBSCRIPTIONS, 1024 - fit)
    assert victim.router.peers[EVIL].topics == (own, *names[:fit])
    assert victim.receive(EVIL, Rpc(subscriptions=(SubOpts(False, names[0]),))) == []
    assert victim.receive(EVIL, Rpc(subscriptions=(SubOpts(True, names[fit]),))) == []
    assert victim.router.peers[EVIL].topics == (own, *names[1 : fit + 1])


def test_nothing_empty_is_kept_of_peers_that_came_and_went() -> None:
    """A thousand peers come, use every table, and go: as if they had never been there."""
    config = msgspec.structs.replace(GossipSubConfig(), prune_backoff=1.0, unsubscribe_backoff=1.0)
    victim = Victim(config)
    victim.beat()
    before = table_sizes(victim.router)
    for number in range(1000):
        peer = b"sybil %d" % number
        victim.meet(peer)
        ids = (b"id %d" % number,)
        topics = tuple(SubOpts(True, f"{number} {n}") for n in range(3))
        control = Control((IHave(TOPIC, ids),), ids, (TOPIC,), (Prune(TOPIC, (), 1),), ids)
        victim.receive(peer, Rpc(topics, control=control))
        victim.give(PeerDisconnected(peer))
        if number % 100 == 0:
            gone = mentions(victim.router, peer)
            assert [path for path in gone if ".backoff." not in path] == []
    victim.beat(100)
    assert table_sizes(victim.router) == before
    victim.still_works()


def test_bad_names_are_remembered_for_a_bounded_number_of_peers() -> None:
    """Peers that misbehave and leave are remembered, but only so many of them."""
    victim = Victim()
    for number in range(6000):
        peer = b"sybil %d" % number
        victim.meet(peer)
        victim.receive(peer, Rpc(publish=(Message(TOPIC, b"", peer, b"1"),)))
        victim.give(PeerDisconnected(peer))
    sizes = table_sizes(victim.router)
    remembered = sizes["GossipSub._score._retained"]
    assert 4000 < remembered <= 4096
    victim.still_works()


# Allocation before the check (GHSA-xqvc-92cf-94j4 and its like).


def test_a_length_prefix_without_end_is_refused_before_anything_is_read() -> None:
    """A frame that announces exabytes costs nothing."""
    decoder = FrameReader(1 << 20)
    with pytest.raises(DecodeError):
        decoder.feed(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + b"x")


# RUSTSEC-2019-0004, CVE-2019-15545: any signature was accepted.


def test_a_signature_with_any_bit_flipped_is_rejected() -> None:
    """Each of the 512 bits counts, and each rejection is charged to the sender."""
    victim = Victim()
    message = signed(GOOD, b"true")
    for place in range(len(message.signature) * 8):
        forged = bytearray(message.signature)
        forged[place // 8] ^= 1 << place % 8
        copy = msgspec.structs.replace(message, signature=bytes(forged))
        effects = victim.receive(b"messenger", Rpc(publish=(copy,)))
        assert refusals(effects) == ["not connected"]
        victim.meet(b"messenger")
        effects = victim.receive(b"messenger", Rpc(publish=(copy,)))
        [rejection] = [e for e in effects if isinstance(e, RejectMessage)]
        assert rejection.reason == INVALID_SIGNATURE
        assert victim.score(b"messenger") < 0
        victim.give(PeerDisconnected(b"messenger"))
        victim.now += 3601.0  # until its bad name is forgotten
    assert message.id == b""
    effects = victim.receive(GOOD, Rpc(publish=(message,)))
    assert any(isinstance(effect, Append) for effect in effects), "the forgeries blocked nothing"
    victim.still_works()


@pytest.mark.parametrize("length", [0, 1, 63, 65, 128])
def test_a_signature_of_another_length_is_rejected(length: int) -> None:
    """Cut, doubled or missing."""
    victim = Victim()
    message = signed(GOOD, b"true")
    message.signature = (message.signature * 2)[:length]
    [rejection] = [
        e for e in victim.receive(EVIL, Rpc(publish=(message,))) if isinstance(e, RejectMessage)
    ]
    assert rejection.reason == (INVALID_SIGNATURE if length else MISSING_SIGNATURE)
    victim.still_works()


# RUSTSEC-2022-0009, GHSA-wc36-xgcc-jwpr: another key than that of the author.


@pytest.mark.parametrize("key", [b"", EVIL, b"\x08\x01\x12\x20" + bytes(32)])
def test_an_author_is_bound_to_its_key(key: bytes) -> None:
    """A message in another's name is rejected, whoever signed it and whatever key comes along."""
    victim = Victim()
    message = Message(TOPIC, b"from the good one", GOOD, (1).to_bytes(8, "big"))
    message.signature = SimulatedIdentity(EVIL).sign(signing_payload(message))
    message.key = key
    effects = victim.receive(EVIL, Rpc(publish=(message,)))
    assert [e.reason for e in effects if isinstance(e, RejectMessage)] == [INVALID_SIGNATURE]
    victim.still_works()


def test_every_field_of_a_message_is_signed() -> None:
    """Topic, data, author and sequence number cannot be exchanged under a true signature."""
    victim = Victim()
    victim.give(Subscribe("other"))
    for change in (
        {"topic": "other"},
        {"data": b"other"},
        {"author": EVIL},
        {"seqno": (2).to_bytes(8, "big")},
    ):
        forged = msgspec.structs.replace(signed(GOOD, b"true"), **change)
        effects = victim.receive(EVIL, Rpc(publish=(decoded(forged),)))
        assert [e.reason for e in effects if isinstance(e, RejectMessage)] == [INVALID_SIGNATURE]
        victim = Victim()
        victim.give(Subscribe("other"))
    victim.still_works()


def decoded(message: Message) -> Message:
    """The message as it comes off the wire."""
    return decode_rpc(encode_rpc(Rpc(publish=(message,)))).publish[0]


# rust PRs 6183 and 6095, lotus #8806: degenerate parameters.

DEGENERATE: dict[str, dict[str, Any]] = {
    "bootstrapper": {"D": 0, "D_lo": 0, "D_hi": 0, "D_out": 0, "D_score": 0, "D_lazy": 0},
    "one": {"D": 1, "D_lo": 1, "D_hi": 1, "D_out": 0, "D_score": 1, "D_lazy": 1},
    "no low": {"D": 1, "D_lo": 0, "D_hi": 2, "D_out": 0, "D_score": 0},
    "equal": {"D": 6, "D_lo": 6, "D_hi": 6, "D_out": 3, "D_score": 6},
    "all by score": {"D": 2, "D_lo": 2, "D_hi": 12, "D_out": 1, "D_score": 12},
    "no cache": {"history_length": 0, "history_gossip": 0},
    "no gossip": {"history_gossip": 0, "D_lazy": 0, "gossip_factor": 0.0},
    "nothing asked": {"max_ihave_length": 0, "max_ihave_messages": 0, "gossip_retransmission": 0},
    "no backoff": {"prune_backoff": 0.0, "unsubscribe_backoff": 0.0, "max_backoff": 0.0},
    "one of all": {"max_backoffs": 1, "max_promises": 1, "seen_limit": 1, "fanout_ttl": 0.0},
    "no idontwant": {"idontwant_ttl": 0, "idontwant_threshold": 0, "max_idontwant_length": 0},
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_parameters(name: str) -> None:
    """With zeros and ones where others have a choice, nothing raises and everything arrives."""
    rig = Rig()
    peers = rig.add(15, flood_publish=True, **DEGENERATE[name])
    rig.subscribe(peers)
    rig.connect_all(peers)
    for number in range(5):
        rig.run(10.0)
        rig.publish(number, b"flooded %d" % number)
    rig.run(50.0)
    for peer in peers:
        assert sorted(rig.data(peer)) == [b"flooded %d" % number for number in range(5)]
        links, config = rig.mesh(peer), rig.router(peer)._config
        assert len(links) <= max(config.D_hi, config.D) + config.D_out + 2


def test_impossible_parameters_are_refused() -> None:
    """What contradicts itself is an error at the start, not at a heartbeat."""
    for changes in (
        {"D_lo": 7},
        {"D_hi": 5},
        {"D_out": 4},
        {"D": -1, "D_lo": -1},
        {"history_gossip": 6},
        {"heartbeat_interval": 0.0},
        {"heartbeat_interval": float("inf")},
        {"prune_backoff": float("inf")},
        {"prune_backoff": float("nan")},
        {"seen_ttl": 0.0},
        {"seen_ttl": float("inf")},
    ):
        with pytest.raises(ConfigError):
            msgspec.structs.replace(GossipSubConfig(), **changes).validate()


def test_pruning_more_links_than_there_are_left() -> None:
    """Links that end while a heartbeat's excess is chosen do no harm (shuffle after prune)."""
    config = msgspec.structs.replace(
        GossipSubConfig(), D=2, D_lo=1, D_hi=3, D_score=3, D_out=0, prune_backoff=0.0
    )
    victim = Victim(config)
    for number in range(20):
        victim.meet(b"peer %d" % number, outbound=True)
    assert len(victim.router.mesh.links[TOPIC]) > 20, "dialled peers may always graft"
    spam = tuple(Message(TOPIC, b"", b"x", b"%d" % n) for n in range(9))
    for number in range(18):
        victim.receive(b"peer %d" % number, Rpc(publish=spam))
    victim.beat()
    links = list(victim.router.mesh.links[TOPIC])
    assert len(links) == 2
    assert not [peer for peer in links if victim.score(peer) < 0]
    victim.still_works()


# Spam classes that have no advisory of their own.


def test_a_forged_copy_does_not_make_us_refuse_the_true_message() -> None:
    """IDONTWANT is sent for true messages only: a forger cannot have the next one held back."""
    victim = Victim()
    true = signed(GOOD, b"large" * 1000)
    forged = msgspec.structs.replace(true, signature=bytes(64))
    effects = victim.receive(EVIL, Rpc(publish=(decoded(forged),)))
    assert not any(isinstance(effect, Send) for effect in effects)
    victim.meet(b"third")
    effects = victim.receive(EVIL, Rpc(publish=(decoded(true),)))
    told = [e.peer for e in effects if isinstance(e, Send) and e.message.control]
    assert b"third" in told, "for the true one it is"
    victim.still_works()


def test_who_brings_back_what_we_said_before_a_restart_did_nothing_wrong() -> None:
    """A router that was started again knows nothing of its earlier life. Its peers still announce
    what it said then, and give it when asked; whoever forges such a message is charged for it."""
    victim = Victim()
    before = [signed(SELF, b"said before", number) for number in range(1, 21)]
    ids = tuple(each.author + each.seqno for each in before)
    victim.receive(GOOD, Rpc(control=Control(ihave=(IHave(TOPIC, ids),))))
    effects = victim.receive(GOOD, Rpc(publish=tuple(before)))
    assert not any(isinstance(effect, (Append, RejectMessage, Send)) for effect in effects)
    assert not any(isinstance(effect, Penalise) for effect in victim.beat(10)), "a kept promise"
    assert victim.score(GOOD) >= 0
    forged = [msgspec.structs.replace(signed(SELF, b"", 99 + n), data=b"never") for n in range(9)]
    victim.receive(EVIL, Rpc(publish=tuple(forged)))
    assert victim.score(EVIL) < 0
    victim.still_works()


def test_a_slow_validator_breaks_no_promise() -> None:
    """Who sent what it advertised has kept its promise, however long the verdict takes."""
    victim = Victim(validator=lambda _event, _peer: Verdict.DEFER)
    message = signed(b"far", b"slow to judge")
    message_id = message.author + message.seqno
    victim.receive(GOOD, Rpc(control=Control(ihave=(IHave(TOPIC, (message_id,)),))))
    assert victim.router.gossip.promises.count == 1
    victim.receive(GOOD, Rpc(publish=(message,)))
    effects = victim.beat(10)
    assert not any(isinstance(effect, Penalise) for effect in effects)
    effects = victim.give(Validated(message_id, Verdict.ACCEPT))
    assert any(isinstance(effect, Append) for effect in effects)


def test_long_sequence_numbers_fill_no_memory() -> None:
    """The id of a message is kept for minutes: its author must not choose how long it is."""
    victim = Victim()
    before = held_bytes(victim.router)
    for number in range(4):
        message = Message(TOPIC, b"", EVIL, bytes(100_000) + b"%d" % number)
        message.signature = SimulatedIdentity(EVIL).sign(signing_payload(message))
        victim.receive(EVIL, Rpc(publish=(decoded(message),)))
    assert held_bytes(victim.router) < before + 1000
    victim.still_works()


def test_peer_exchange_dials_only_so_many() -> None:
    """PRUNEs beyond the one that ended our link offer nothing: no dial storm on command."""
    victim = Victim(msgspec.structs.replace(GossipSubConfig(), thresholds=HARDENING_THRESHOLDS))
    offers = tuple(PeerInfo(b"dial me %d" % number) for number in range(64))
    effects = victim.attack(prune=tuple(Prune(TOPIC, offers, 60) for _ in range(1000)))
    dials = [effect for effect in effects if isinstance(effect, Connect)]
    assert len(dials) == 16
    victim.still_works()


def test_what_many_topics_make_us_send_is_accepted() -> None:
    """Peers that share as many topics as a peer may have understand each other's RPCs."""
    victim = Victim(PRESETS["default"])
    topics = [f"topic {n}" for n in range(1023)]
    for topic in topics:
        victim.give(Subscribe(topic))
    victim.give(PeerConnected(b"late", GOSSIPSUB_1_2, False, ""))
    victim.receive(b"late", Rpc(tuple(SubOpts(True, t) for t in [TOPIC, *topics])))
    sends = [e for e in victim.beat() if isinstance(e, Send) and e.peer == b"late"]
    controls = [decode_rpc(encode_rpc(send.message)).control for send in sends]
    grafts = [topic for control in controls if control for topic in control.graft]
    assert sorted(grafts) == sorted([TOPIC, *topics])


def test_a_long_message_and_waiting_control_leave_in_rpcs_that_fit() -> None:
    """A GRAFT or PRUNE that waits for the next RPC does not make a long message too long."""
    victim = Victim(msgspec.structs.replace(GossipSubConfig(), max_rpc_size=2048))
    lost = Rpc(control=Control(prune=(Prune("x" * 1000, (), 60),)))
    victim.give(SendDropped(GOOD, lost, "queue full"))
    sends = [e for e in victim.give(Publish(TOPIC, bytes(1900))) if isinstance(e, Send)]
    to_good = [send.message for send in sends if send.peer == GOOD]
    assert sum(len(rpc.publish) for rpc in to_good) == 1
    assert any(rpc.control and rpc.control.prune for rpc in to_good)
    assert max(rpc.meta.size for rpc in to_good) <= 2048


def test_a_topic_that_is_no_text_is_a_local_error() -> None:
    """Lone surrogates cannot be sent: the application is told, and nothing changes."""
    victim = Victim()
    before = table_sizes(victim.router)
    for request in (Subscribe("\ud800"), Publish("\ud800", b"")):
        with pytest.raises(LocalError):
            victim.give(request)
    assert table_sizes(victim.router) == before
