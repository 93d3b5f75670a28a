"""Arbitrary configurations of a router and arbitrary RPCs to it, from a small world.

Peers, topics and ids come from short lists, so that what one input says meets what another left
behind; now and then they are anything.
"""

import random

import msgspec
from hypothesis import strategies as st

from protocols.conformance import TOPIC_OFF
from rumormill.core.event import Event
from rumormill.core.inputs import Verdict
from rumormill.protocols.gossipsub.config import GossipSubConfig, ProbePolicy
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.gossipsub.score_params import (
    HARDENING_SCORE,
    HARDENING_THRESHOLDS,
    PeerScoreParams,
    ScoreThresholds,
    TopicScoreParams,
)
from rumormill.protocols.pubsub.codec import signing_payload
from rumormill.protocols.pubsub.config import PubSubConfig, SignPolicy
from rumormill.protocols.pubsub.messages import (
    Control,
    IHave,
    Message,
    PeerInfo,
    Prune,
    Rpc,
    SubOpts,
)
from rumormill.protocols.pubsub.trunk_part import (
    AGE_MAX,
    Past,
    Probe,
    TrunkPart,
    key_of,
    mark_of,
    tag_of,
)
from rumormill.sim.identity import SimulatedIdentity

SELF = b"self"
PEERS = [b"per%d" % number for number in range(8)]
STRANGER = b"nobody"
TOPICS = ["news", "blocks", "späti", "quiet"]
PAYLOADS = [b"", b"accept", b"ignore", b"reject", b"defer", b"accept" * 200]
STORM = [
    *["message"] * 5,
    *["replay"] * 3,
    *["control"] * 5,
    *["peer"] * 3,
    *["announce"] * 2,
    *["graft"] * 4,
    *["time"] * 6,
    *["topic"] * 2,
    "publish",
    "verdict",
    "drop",
]
STORM = [*STORM, *STORM, *STORM, "sleep"]
"""How often what happens in a storm."""
EXTREMES = (0, 1, 59, 60, 3600, 2**31, 2**63 - 1, 9223372036854674580, 2**64 - 1)

peers = st.sampled_from(PEERS)
topics = st.sampled_from(["news", "news", *TOPICS])
any_topic = st.one_of(topics, topics, topics, st.text(max_size=8))
payloads = st.sampled_from(PAYLOADS)
seqnos = st.integers(1, 6).map(lambda number: number.to_bytes(8, "big"))
protocols = st.sampled_from([*PROTOCOLS, "/meshsub/9.9.9", ""])
addresses = st.sampled_from(["10.0.0.1", "10.0.0.1", "::1", "/ip6/2001:db8::1/tcp/1", "", "x"])
ids = st.one_of(
    st.builds(bytes.__add__, st.sampled_from([*PEERS, SELF]), seqnos), st.binary(max_size=40)
)
id_lists = st.lists(ids, max_size=12).map(tuple)


def signed(topic: str, data: bytes, author: bytes, seqno: bytes) -> Message:
    """A message as its author would send it."""
    message = Message(topic, data, author, seqno)
    message.signature = SimulatedIdentity(author).sign(signing_payload(message))
    return message


true_messages = st.builds(signed, topics, payloads, st.sampled_from([*PEERS, SELF]), seqnos)
bare_messages = st.builds(Message, any_topic, payloads)
forged_messages = st.builds(
    Message,
    any_topic,
    payloads,
    st.sampled_from([*PEERS, SELF, b"", b"a" * 65]),
    st.one_of(seqnos, st.binary(max_size=12)),
    st.one_of(st.just(b""), st.binary(min_size=64, max_size=64)),
    st.binary(max_size=4),
)
messages = st.one_of(true_messages, bare_messages, forged_messages)
prunes = st.builds(
    Prune,
    any_topic,
    st.lists(
        st.builds(
            PeerInfo, st.sampled_from([*PEERS, SELF, STRANGER]), st.sampled_from([b"", b"r"])
        ),
        max_size=6,
    ).map(tuple),
    st.one_of(st.sampled_from(EXTREMES), st.integers(0, 2**64 - 1)),
)
tags = st.builds(tag_of, topics, st.sampled_from([*PEERS, SELF])) | st.binary(
    min_size=4, max_size=4
)
names = st.builds(bytes.__add__, tags, seqnos.map(mark_of))
ages = st.sampled_from([0.0, 0.02, 5.0, AGE_MAX])


def past(topic: str, named: list[bytes], age: float) -> Past:
    """What a new link tells, all of one moment."""
    return Past(topic, tuple(named), (age,) * len(named))


trunk_parts = st.builds(
    TrunkPart,
    have=st.lists(names, max_size=6).map(tuple),
    want=st.lists(names.map(key_of), max_size=3).map(tuple),
    gossip=st.lists(names.map(key_of), max_size=3).map(tuple),
    choke=st.lists(tags, max_size=3).map(tuple),
    unchoke=st.lists(tags, max_size=3).map(tuple),
    probes=st.lists(
        st.builds(Probe, topics, st.sampled_from([*PEERS, SELF]), st.integers(0, 3)), max_size=3
    ).map(tuple),
    past=st.lists(
        st.builds(past, topics, st.lists(names, min_size=1, max_size=6), ages), max_size=2
    ).map(tuple),
)
controls = st.builds(
    Control,
    ihave=st.lists(st.builds(IHave, any_topic, id_lists), max_size=3).map(tuple),
    iwant=id_lists,
    graft=st.lists(any_topic, max_size=4).map(tuple),
    prune=st.lists(prunes, max_size=3).map(tuple),
    idontwant=id_lists,
    offers_trunk=st.booleans(),
    trunk=st.one_of(st.none(), trunk_parts),
)
rpcs = st.builds(
    Rpc,
    subscriptions=st.lists(st.builds(SubOpts, st.booleans(), any_topic), max_size=4).map(tuple),
    publish=st.lists(messages, max_size=3).map(tuple),
    control=st.one_of(st.none(), controls),
)


def storm_rpc(rng: random.Random, known: list[Message], topic: str) -> Rpc:
    """A control message about topics and messages that exist."""
    some = rng.sample(known, min(len(known), 4))
    named = tuple(message.author + message.seqno for message in some)
    made_up = tuple(rng.randbytes(9) for _ in range(rng.randrange(3)))
    part = rng.randrange(8)
    if part > 5:
        called = tuple(tag_of(each.topic, each.author) for each in some)
        marked = tuple(map(bytes.__add__, called, (mark_of(each.seqno) for each in some)))
        unknown = tuple(tag + rng.randbytes(4) for tag in called)
        probes = tuple(Probe(topic, each.author, rng.randrange(4)) for each in some)
        keys = tuple(map(key_of, marked))
        told = past(topic, [*marked, *unknown], rng.choice((0.0, 3.0)))
        said = TrunkPart(have=marked + unknown, want=keys, unchoke=called, past=(told,))
        if part == 7:
            made = tuple(map(key_of, unknown))
            said = TrunkPart(have=unknown, choke=called, probes=probes, gossip=keys + made)
        return Rpc(control=Control(offers_trunk=True, trunk=said))
    return Rpc(
        control=Control(
            ihave=(IHave(topic, named + made_up),) if part == 0 else (),
            iwant=named + made_up if part == 1 else (),
            graft=(topic, topic) if part in {2, 3} else (),
            prune=(Prune(topic, (PeerInfo(STRANGER),), rng.choice(EXTREMES)),)
            if part in {3, 4}
            else (),
            idontwant=named + made_up if part == 5 else (),
        )
    )


def validator(event: Event, _peer: bytes) -> Verdict:
    """The application's verdict, as the message itself names it."""
    for verdict in Verdict:
        if event.data.startswith(verdict.value.encode()):
            return verdict
    return Verdict.ACCEPT


# Configurations: everything that `validate` accepts, mostly small so that bounds are met.

_weights = st.sampled_from([0.0, 0.5, 3.0])
_penalties = st.sampled_from([0.0, -0.5, -100.0])
_decays = st.sampled_from([1e-9, 0.5, 0.9999999])
_topic_params = st.builds(
    TopicScoreParams,
    topic_weight=_weights,
    time_in_mesh_weight=_weights,
    time_in_mesh_quantum=st.sampled_from([1e-6, 1.0]),
    time_in_mesh_cap=st.sampled_from([1.0, 1e12]),
    first_message_deliveries_weight=_weights,
    first_message_deliveries_decay=_decays,
    mesh_message_deliveries_weight=_penalties,
    mesh_message_deliveries_decay=_decays,
    mesh_message_deliveries_threshold=st.sampled_from([1e-3, 10.0, 1e12]),
    mesh_message_deliveries_window=st.sampled_from([0.0, 100.0]),
    mesh_message_deliveries_activation=st.sampled_from([1.0, 60.0]),
    mesh_failure_penalty_weight=_penalties,
    mesh_failure_penalty_decay=_decays,
    invalid_message_deliveries_weight=_penalties,
    invalid_message_deliveries_decay=_decays,
)
_scores = st.one_of(
    st.sampled_from([PeerScoreParams(), HARDENING_SCORE]),
    st.builds(
        PeerScoreParams,
        default_topic=st.one_of(st.none(), st.just(TOPIC_OFF), _topic_params),
        topic_score_cap=st.sampled_from([0.0, 5.0]),
        ip_colocation_factor_weight=_penalties,
        ip_colocation_factor_threshold=st.sampled_from([1, 3]),
        behaviour_penalty_weight=_penalties,
        behaviour_penalty_threshold=st.sampled_from([0.0, 6.0]),
        behaviour_penalty_decay=_decays,
        retain_score=st.sampled_from([0.0, 10.0, 3600.0]),
        delivery_record_ttl=st.sampled_from([0.0, 120.0]),
        peers_max=st.sampled_from([1, 4, 4096]),
        topics_per_peer_max=st.sampled_from([1, 1024]),
        delivery_records_max=st.sampled_from([1, 3, 65536]),
    ),
)
_pubsub_changes = {
    "sign_policy": st.sampled_from(list(SignPolicy)),
    "seen_ttl": st.sampled_from([0.5, 120.0]),
    "seen_limit": st.sampled_from([1, 5, 1_000_000]),
    "max_rpc_size": st.sampled_from([2048, 1 << 20]),
    "max_topic_length": st.sampled_from([16, 1024]),
    "max_subscriptions": st.sampled_from([1, 3, 5000]),
    "max_subscriptions_per_peer": st.sampled_from([1, 3, 1024]),
    "max_pending_validations": st.sampled_from([0, 1, 8192]),
}
_gossipsub_changes = {
    "heartbeat_interval": st.sampled_from([0.25, 1.0, 60.0]),
    "heartbeat_initial_delay": st.sampled_from([0.0, 0.1]),
    "heartbeat_spread": st.sampled_from([0.0, 1.0]),
    "fanout_ttl": st.sampled_from([0.0, 60.0]),
    "prune_backoff": st.sampled_from([0.0, 0.5, 60.0]),
    "unsubscribe_backoff": st.sampled_from([0.0, 10.0]),
    "max_backoff": st.sampled_from([0.0, 3600.0]),
    "max_backoffs": st.sampled_from([1, 3, 100_000]),
    "flood_publish": st.booleans(),
    "gossip_factor": st.sampled_from([0.0, 0.25, 1.0]),
    "max_ihave_length": st.sampled_from([0, 1, 5, 5000]),
    "max_ihave_messages": st.sampled_from([0, 1, 10]),
    "gossip_retransmission": st.sampled_from([0, 1, 3]),
    "iwant_followup_time": st.sampled_from([0.0, 3.0]),
    "max_promises": st.sampled_from([1, 2, 10_000]),
    "graft_flood_threshold": st.sampled_from([0.0, 10.0]),
    "do_px": st.booleans(),
    "prune_peers": st.sampled_from([0, 1, 16]),
    "opportunistic_graft_ticks": st.sampled_from([1, 60]),
    "opportunistic_graft_peers": st.sampled_from([0, 2]),
    "direct_peers": st.lists(peers.map(bytes.hex), max_size=2, unique=True).map(tuple),
    "direct_connect_ticks": st.sampled_from([1, 300]),
    "idontwant_threshold": st.sampled_from([0, 1024]),
    "idontwant_ttl": st.sampled_from([0, 1, 3]),
    "max_idontwant_messages": st.sampled_from([0, 2, 1000]),
    "max_idontwant_length": st.sampled_from([0, 1, 10]),
    "trunk": st.booleans(),
    "trunk_memory": st.sampled_from([0.5, 60.0]),
    "trunk_sources": st.sampled_from([1, 3, 4096]),
    "probes": st.sampled_from(list(ProbePolicy)),
    "scoring": st.booleans(),
    "score": _scores,
    "thresholds": st.sampled_from([ScoreThresholds(), HARDENING_THRESHOLDS]),
}


@st.composite
def gossipsub_configs(draw: st.DrawFn) -> GossipSubConfig:
    """A valid configuration: the defaults, with any number of values replaced."""
    degree = draw(st.sampled_from([6, 4, 3, 2, 1, 0]))
    low = draw(st.integers(0, degree))
    history = draw(st.integers(0, 4))
    high = draw(st.integers(degree, 8))
    degrees = {
        "D": degree,
        "D_lo": low,
        "D_hi": high,
        "D_score": draw(st.integers(0, high)),
        "D_out": draw(st.integers(0, max(0, min(low - 1, degree // 2)))),
        "D_lazy": draw(st.integers(0, 6)),
        "history_length": history,
        "history_gossip": draw(st.integers(0, history)),
    }
    changes = draw(st.fixed_dictionaries({}, optional={**_pubsub_changes, **_gossipsub_changes}))
    config = msgspec.structs.replace(GossipSubConfig(), **degrees, **changes)
    config.validate()
    return config


pubsub_configs = st.fixed_dictionaries({}, optional=_pubsub_changes).map(
    lambda changes: PubSubConfig(**changes)
)
