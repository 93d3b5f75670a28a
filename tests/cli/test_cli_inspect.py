"""`rumormill inspect`: descriptors, RPCs and CIDs in all their forms."""

import json
from pathlib import Path
from typing import Any

import pytest

from processes import rumormill
from rumormill.cli import main

VECTORS = Path(__file__).resolve().parents[1] / "protocols" / "pulsarcast" / "vectors"
ITEMS: dict[str, list[dict[str, Any]]] = {"topic": [], "event": []}
for _name in ("original.json", "further.json"):
    _loaded = json.loads((VECTORS / _name).read_text())
    ITEMS["topic"] += _loaded["topics"]
    ITEMS["event"] += _loaded["events"]
ALL = [(kind, item) for kind, items in ITEMS.items() for item in items]
RULES = json.loads((VECTORS / "original.json").read_text())["receiver_rules"]


def label(value: object) -> str | None:
    """How a test names a vector."""
    return value["label"] if isinstance(value, dict) else None


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Run the verb in this process; return the object that it prints."""
    assert main(["inspect", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the verb in this process; return the sentence with which it fails."""
    assert main(["inspect", *arguments]) in (1, 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    sentence = printed.err
    assert sentence.startswith("rumormill: ")
    assert sentence.count("\n") == 1
    return sentence


@pytest.mark.parametrize(("kind", "item"), ALL, ids=label)
def test_readable_json_gives_name_and_block(
    kind: str, item: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The readable object of a vector, an event with `payload_hex` added, as a file."""
    readable = dict(item["readable"])
    if kind == "event":
        readable["payload_hex"] = item["payload_hex"]
    path = tmp_path / "given.json"
    path.write_text(json.dumps(readable))
    found = inspect(capsys, kind, str(path))
    assert found["cid"] == item["cid_base58btc"]
    assert found["cid_base32"] == item["cid_base32"]
    assert found["cid_hex"] == item["cid_hex"]
    assert found["dag_cbor_hex"] == item["dag_cbor_hex"]
    path.write_text(json.dumps(item, ensure_ascii=False))
    assert inspect(capsys, kind, str(path)) == found
    path.write_text(json.dumps(found["readable"]))
    assert inspect(capsys, kind, str(path)) == found
    path.write_text(json.dumps({"dag_cbor_hex": item["dag_cbor_hex"]}))
    assert inspect(capsys, kind, str(path))["cid"] == found["cid"]


@pytest.mark.parametrize(("kind", "item"), ALL, ids=label)
def test_blocks_and_protobuf_give_the_same(
    kind: str, item: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From dag-cbor in hexadecimal or raw, and for an event from protobuf and from its RPC."""
    found = inspect(capsys, kind, item["dag_cbor_hex"])
    assert found["cid"] == item["cid_base58btc"]
    path = tmp_path / "block"
    path.write_bytes(bytes.fromhex(item["dag_cbor_hex"]))
    assert inspect(capsys, kind, str(path)) == found
    if kind == "event":
        assert inspect(capsys, kind, found["protobuf_hex"]) == found
        assert inspect(capsys, kind, item["rpc"][0]["protobuf_hex"]) == found


@pytest.mark.parametrize(("kind", "item"), ALL, ids=label)
def test_rpcs_are_shown_and_made_again(
    kind: str, item: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes, framed or not, become JSON; the JSON becomes the same bytes."""
    for rpc in item["rpc"]:
        found = inspect(capsys, "rpc", rpc["protobuf_hex"])
        [message] = found["readable"]["messages"]
        assert message["op"] == rpc["op"]
        assert ("refused" not in message) == rpc["accepted_by_js_receiver"]
        if "framed_hex" in rpc:
            assert inspect(capsys, "rpc", rpc["framed_hex"]) == found
        (tmp_path / "vector.json").write_text(json.dumps(rpc))
        assert inspect(capsys, "rpc", str(tmp_path / "vector.json")) == found
        if kind == "event":
            assert message["event"]["cid"] == item["cid_base58btc"]
        path = tmp_path / "rpc.json"
        path.write_text(json.dumps(found["readable"]))
        assert inspect(capsys, "rpc", str(path))["protobuf_hex"] == rpc["protobuf_hex"]


@pytest.mark.parametrize("rule", RULES, ids=label)
def test_a_refused_message_says_why(
    rule: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """What a receiver would drop in silence is shown with the reason."""
    [message] = inspect(capsys, "rpc", rule["protobuf_hex"])["readable"]["messages"]
    assert ("refused" not in message) == rule["accepted_by_js_receiver"]


def test_our_additions_are_shown_and_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers and signatures have readable forms too."""
    topic, event = ITEMS["topic"][0], ITEMS["event"][1]
    cid, peer = topic["cid_base58btc"], topic["readable"]["author"]
    signed = {
        **event["readable"],
        "payload_hex": event["payload_hex"],
        "publisherSignature": "ab" * 64,
        "authorKey": "cd",
    }
    readable = {
        "messages": [
            {
                "op": "LEAVE_TOPIC",
                "created": "2019-10-05T10:00:00.500Z",
                "protocolVersion": "/pulsarcast/1.0.0",
                "topicId": cid,
                "elsewhere": [{"peer": peer, "addresses": ["0102"]}],
            },
            {
                "op": "UPDATE",
                "created": "2019-10-05T10:00:00.500Z",
                "protocolVersion": "/pulsarcast/1.0.0",
                "peerTree": {"topic": cid, "parents": [peer], "children": []},
            },
        ],
        "additions": [
            {
                "kind": "join-reply",
                "topic": cid,
                "status": "REDIRECTED",
                "peers": [{"peer": peer, "addresses": []}],
                "reason": "full",
            },
            {
                "kind": "request-reply",
                "topic": cid,
                "request": cid,
                "status": "ACCEPTED",
                "event": cid,
            },
            {"kind": "fetch", "topic": cid, "wanted": [cid], "ancestors": 9, "known": cid},
            {
                "kind": "events",
                "topic": cid,
                "events": [signed],
                "missing": [cid],
                "start": 1,
                "end": 2,
            },
            {
                "kind": "terms",
                "topic": cid,
                "silent": True,
                "start": 1,
                "end": 2,
                "count": 3,
                "checksum": 2**63,
            },
            {"kind": "have", "topic": cid, "start": 1, "end": 2, "tails": ["0102030405060708"]},
            {"kind": "block", "topic": cid, "data": "a0"},
        ],
    }
    path = tmp_path / "rpc.json"
    path.write_text(json.dumps(readable))
    found = inspect(capsys, "rpc", str(path))
    assert found["readable"] == readable
    assert inspect(capsys, "rpc", found["protobuf_hex"]) == found


def test_a_cid_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    """base58btc, base32 and hexadecimal are recognised and say the same."""
    item = ITEMS["event"][0]
    found = inspect(capsys, "cid", item["cid_base58btc"])
    assert found["cid"] == item["cid_base58btc"]
    assert found["cid_base32"] == item["cid_base32"]
    assert found["dht_key_hex"] == item["dht_key_hex"]
    assert inspect(capsys, "cid", item["cid_base32"]) == found
    assert inspect(capsys, "cid", item["cid_hex"]) == found


@pytest.mark.parametrize(
    ("kind", "content", "words"),
    [
        ("topic", "", "empty"),
        ("topic", "{", "not JSON"),
        ("topic", "[1]", "must be an object"),
        ("topic", "{}", "is missing"),
        ("topic", '{"nam": 1}', "there is no key 'nam'"),
        ("topic", "hello", "neither JSON nor hexadecimal"),
        ("topic", "a0", "a topic is a map of 5 entries"),
        ("event", "{}", "not an event descriptor: payload_hex: is missing"),
        ("event", '{"payload_hex": "0"}', "payload_hex: not hexadecimal"),
        ("event", "a6", "truncated"),
        ("event", "0a00", "event-without-topic"),
        ("rpc", "0aff", "bad-varint"),
        ("rpc", '{"op": "DANCE"}', "op: must be one of PING"),
        ("rpc", '{"additions": [{"kind": "x"}]}', "kind: must be one of join-reply"),
        ("rpc", '{"additions": [{"kind": "have"}]}', "have: Missing required argument"),
        ("cid", "QmPjHsJZCMtc3TokhybqWQ2ewbj42Dr28J94VakM7kPrYY", "starts with z"),
        ("cid", "00", "not a CIDv1"),
        ("cid", "{}", "a CID is a text"),
    ],
)
def test_mistakes_are_one_sentence(
    kind: str, content: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is not what it should be says what is wrong with it."""
    path = tmp_path / "given"
    path.write_text(content)
    assert words in refusal(capsys, kind, str(path))


@pytest.mark.parametrize(
    ("kind", "key", "wrong", "words"),
    [
        ("topic", "name", 1, "name: must be a text"),
        ("topic", "author", "Qm", "author: not a peer id"),
        ("topic", "parent", "zdpu", "parent: "),
        ("topic", "subTopics", {"a": "b"}, "subTopics.a: "),
        ("topic", "metadata", {"created": "soon"}, "metadata.created: not a date"),
        (
            "topic",
            "metadata",
            {"created": "2019-10-01", "allowedPublishers": True},
            "metadata.allowedPublishers: must be a list",
        ),
        (
            "topic",
            "metadata",
            {"created": "2019-10-01", "eventLinking": "LAST"},
            "metadata.eventLinking: must be LAST_SEEN or CUSTOM",
        ),
        ("event", "payloadSize", 6, "payloadSize is 6, but payload_hex has 5 bytes"),
        ("event", "isPublished", False, "isPublished is true where there is a publisher"),
        ("event", "topicCID", None, "topicCID: is missing"),
    ],
)
def test_a_wrong_value_names_its_key(
    kind: str,
    key: str,
    wrong: object,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The sentence says where to look."""
    item = ITEMS[kind][0]
    readable = {**item["readable"], key: wrong}
    if kind == "event":
        readable["payload_hex"] = item["payload_hex"]
    path = tmp_path / "given.json"
    path.write_text(json.dumps(readable))
    assert words in refusal(capsys, kind, str(path))


def test_the_command_itself(tmp_path: Path) -> None:
    """From stdin, for people, and with the exit codes of the house."""
    item = ITEMS["event"][0]
    done = rumormill("inspect", "event", "-", stdin=item["dag_cbor_hex"])
    assert done.returncode == 0
    assert f"cid:           {item['cid_base58btc']}" in done.stdout
    assert '"payload_hex": "68656c6c6f"' in done.stdout
    missing = rumormill("inspect", "topic", str(tmp_path / "no.json"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "there is no file" in missing.stderr
    assert rumormill("inspect", "topic", "-", stdin="{}").returncode == 1
    assert rumormill("inspect", "nothing", "-").returncode == 2
