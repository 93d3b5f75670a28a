"""Byte equality with the JavaScript original: descriptors, CIDs, RPCs, receiver rules, dates."""

import hashlib
import json
from typing import Any

import pytest
from pulsarcast_vectors import (
    EVENTS,
    FURTHER,
    ORIGINAL,
    PEERS,
    RPC_CREATED,
    TOPICS,
    block_cid,
    label,
    load,
)

from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dag_cbor, dates
from rumormill.protocols.pulsarcast.format.descriptors import (
    EventDescriptor,
    read_event,
    read_topic,
)
from rumormill.protocols.pulsarcast.format.readable import (
    event_from_readable,
    readable_event,
    readable_topic,
    topic_from_readable,
)
from rumormill.protocols.pulsarcast.format.rpc import (
    Operation,
    Rpc,
    RpcMessage,
    decode_rpc,
    read_messages,
)
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.wire.frames import frame

RULES: list[dict[str, Any]] = ORIGINAL["receiver_rules"]
VERDICTS: list[tuple[str, list[dict[str, Any]]]] = load("verdicts.json")["rpcs"]
DATES: list[tuple[str, str | None]] = load("dates.json")["dates"]


def check_address(item: dict[str, Any], dag: bytes, cid: bytes) -> None:
    """Block and name are the original's, in every way of writing the name."""
    assert dag.hex() == item["dag_cbor_hex"]
    assert cid.hex() == item["cid_hex"]
    assert cids.text(cid) == item["cid_base58btc"]
    assert cids.text32(cid) == item["cid_base32"]
    assert cids.parse(item["cid_base58btc"]) == cids.parse(item["cid_base32"]) == cid
    assert item.get("dht_key_hex", cid.hex()) == cid.hex()


def check_rpc(vector: dict[str, Any], message: RpcMessage) -> None:
    """The RPC has the original's bytes, reads back, and is accepted where the original does."""
    data = Rpc.encode(Rpc((message,)))
    assert data.hex() == vector["protobuf_hex"]
    assert frame(data).hex() == vector.get("framed_hex", frame(data).hex())
    [(back, fault)] = read_messages(data)
    assert (fault is None) == vector["accepted_by_js_receiver"]
    assert Rpc.encode(Rpc((back,))) == data


@pytest.mark.parametrize("item", TOPICS, ids=label)
def test_topics_have_the_bytes_of_the_original(item: dict[str, Any]) -> None:
    """A readable topic becomes the same dag-cbor, CID and RPCs, and comes back from each."""
    topic = topic_from_readable(item["readable"])
    check_address(item, topic.dag(), topic.cid)
    back = read_topic(topic.dag())
    assert back == topic
    assert readable_topic(back)["metadata"] == readable_topic(topic)["metadata"]
    for vector in item["rpc"]:
        op = Operation[vector["op"]]
        if op is Operation.NEW_TOPIC:
            check_rpc(vector, RpcMessage(op, RPC_CREATED, topic))
        else:
            check_rpc(vector, RpcMessage(op, RPC_CREATED, topic.cid))


@pytest.mark.parametrize("item", TOPICS, ids=label)
def test_topics_are_read_out_as_the_original_does(item: dict[str, Any]) -> None:
    """The readable form comes back with its keys in the same order."""
    written = readable_topic(topic_from_readable(item["readable"]))
    expected = json.loads(json.dumps(item["readable"]))
    if expected["metadata"]["requestToPublish"] == []:
        expected["metadata"]["requestToPublish"] = True  # the same block, and the clearer word
    assert written == expected
    assert list(written["subTopics"]) == list(expected["subTopics"])


@pytest.mark.parametrize("item", EVENTS, ids=label)
def test_events_have_the_bytes_of_the_original(item: dict[str, Any]) -> None:
    """A readable event becomes the same dag-cbor, CID and RPCs, and comes back from each."""
    written = {**item["readable"], "payload_hex": item["payload_hex"]}
    event = event_from_readable(written)
    check_address(item, event.dag(), event.cid)
    assert read_event(event.dag()) == event
    assert readable_event(event) == {"publisher": None, **written}
    for vector in item["rpc"]:
        message = RpcMessage(Operation[vector["op"]], RPC_CREATED, SignedEvent(event))
        check_rpc(vector, message)
        arrived = decode_rpc(bytes.fromhex(vector["protobuf_hex"])).messages[0].event
        assert arrived is not None
        assert arrived.cid == event.cid


@pytest.mark.parametrize("item", FURTHER["large"], ids=lambda item: str(item["payload_bytes"]))
def test_large_payloads_too(item: dict[str, Any]) -> None:
    """Every width of a length, up to a megabyte."""
    payload = bytes([item["fill"]]) * item["payload_bytes"]
    created = "2021-06-30T23:59:59.007Z"
    event = EventDescriptor(block_cid("topic"), PEERS["alice"], payload, created, PEERS["bob"])
    assert cids.text(event.cid) == item["cid_base58btc"]
    message = RpcMessage(Operation.PUBLISH_EVENT, RPC_CREATED, SignedEvent(event))
    data = Rpc.encode(Rpc((message,)))
    assert hashlib.sha256(data).hexdigest() == item["protobuf_sha256"]
    arrived = decode_rpc(data).messages[0].event
    assert arrived is not None
    assert arrived.cid == event.cid


@pytest.mark.parametrize("item", TOPICS + EVENTS, ids=label)
def test_the_general_codec_agrees_with_the_written_out_one(item: dict[str, Any]) -> None:
    """Every block is canonical: reading and writing it as a plain value changes nothing."""
    block = bytes.fromhex(item["dag_cbor_hex"])
    assert dag_cbor.encode(dag_cbor.decode(block)) == block


@pytest.mark.parametrize("rule", RULES, ids=label)
def test_receiver_rules(rule: dict[str, Any]) -> None:
    """A message is accepted exactly where the original accepts it."""
    rpc = decode_rpc(bytes.fromhex(rule["protobuf_hex"]))
    assert len(rpc.messages) + len(rpc.refused) == 1
    assert bool(rpc.messages) == rule["accepted_by_js_receiver"], rpc.refused


@pytest.mark.parametrize("number", range(len(VERDICTS)))
def test_arbitrary_messages_are_judged_alike(number: int) -> None:
    """Any mixture of mistakes gets the original's verdict, and an event gets its CID there."""
    data, verdicts = VERDICTS[number]
    judged = read_messages(bytes.fromhex(data))
    assert [fault is None for _, fault in judged] == [each["accepted"] for each in verdicts]
    for (message, fault), verdict in zip(judged, verdicts, strict=True):
        if fault is None and message.event is not None:
            assert message.event.cid.hex() == verdict["cid"]


@pytest.mark.parametrize(("written", "expected"), DATES)
def test_dates_are_rewritten_as_the_original_does(written: str, expected: str | None) -> None:
    """Accepted where the original accepts, and written back as there, surprises included."""
    assert dates.normal(written) == expected


def test_a_date_without_milliseconds_changes_the_cid_at_the_receiver() -> None:
    """The event is hashed, and forwarded, with the date rewritten."""
    label_ = "publish: event.metadata.created without milliseconds"
    [rule] = [rule for rule in RULES if rule["label"] == label_]
    [message] = decode_rpc(bytes.fromhex(rule["protobuf_hex"])).messages
    assert message.event is not None
    assert message.event.event.created == "2019-10-04T09:00:00.000Z"
    assert cids.text(message.event.cid) == EVENTS[0]["cid_base58btc"]
    forwarded = Rpc.encode(Rpc((RpcMessage(message.op, RPC_CREATED, message.event),)))
    assert forwarded.hex() == EVENTS[0]["rpc"][0]["protobuf_hex"]
