"""The options of the data source: Kafka's names and rules, and a sentence for every mistake."""

import json
from pathlib import Path

import pytest

from rumormill.core.errors import ConfigError, LocalError
from rumormill.spark.access import HomeAccess, NodeAccess
from rumormill.spark.options import (
    EARLIEST,
    LATEST,
    READ_OPTIONS,
    Bound,
    columns_wanted,
    read_options,
    write_options,
)

HERE = {"home": "/h", "subscribe": "news"}


def batch(**options: str) -> object:
    return read_options(HERE | options, streaming=False)


def stream(**options: str) -> object:
    return read_options(HERE | options, streaming=True)


def test_the_defaults_are_kafkas() -> None:
    """A batch reads everything, a stream begins at the end, lost data is an error."""
    assert batch().start == Bound(EARLIEST)
    assert batch().end == Bound(LATEST)
    assert stream().start == Bound(LATEST)
    assert batch().fail_on_data_loss
    assert stream().max_offsets is None
    assert not any(columns_wanted(HERE).values())


def test_names_are_found_whatever_their_case() -> None:
    """Spark hands them over in lower case."""
    options = {"home": "/h", "subscribe": "a, b,a", "startingoffsets": "EARLIEST"}
    read = read_options(options, streaming=True)
    assert read.topics == ("a", "b")
    assert read.start == Bound(EARLIEST)


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("subscrib", "did you mean subscribe?"),
        ("startingOffset", "did you mean startingOffsets?"),
        ("maxOffsetPerTrigger", "did you mean maxOffsetsPerTrigger?"),
        ("failondataloss2", "did you mean failOnDataLoss?"),
        ("kafka.bootstrap.servers", "name a node with node"),
    ],
)
def test_unknown_option_names_the_nearest(option: str, near: str) -> None:
    """By its proper spelling."""
    with pytest.raises(ConfigError) as caught:
        batch(**{option: "x"})
    assert str(caught.value).startswith(f"{option}: there is no such option")
    assert near in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"subscribe": "a", "subscribePattern": "a.*"}])
def test_exactly_one_way_to_name_topics(options: dict[str, str]) -> None:
    """None and two are refused."""
    with pytest.raises(ConfigError, match="exactly one is needed"):
        read_options({"home": "/h", **options}, streaming=False)


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("assign", "subscribe"),
        ("kafka.bootstrap.servers", "node"),
    ],
)
def test_what_only_kafka_has_is_told_with_what_is_there_instead(option: str, instead: str) -> None:
    """A query that moves over is told what to change."""
    with pytest.raises(ConfigError, match=rf"{option}: there is no such .*; .*{instead}"):
        read_options({"home": "h", "subscribe": "news", option: "1"}, streaming=True)


def test_a_pattern_matches_whole_names() -> None:
    """As Java's `matches` does for Kafka's."""
    read = read_options({"home": "/h", "subscribePattern": "new.*"}, streaming=False)
    assert [read.wants(name) for name in ("news", "new", "renew", "ne")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_offsets_are_readable_json() -> None:
    """A number for each topic; -2 and -1 are its ends."""
    start = json.dumps({"a": 3, "b": -2, "c": -1})
    read = read_options(
        {"home": "/h", "subscribe": "a,b,c", "startingOffsets": start}, streaming=True
    )
    assert read.start == Bound(by_topic={"a": 3, "b": EARLIEST, "c": LATEST})
    ends = batch(endingOffsets='{"news": 10}')
    assert ends.end == Bound(by_topic={"news": 10})


def test_a_time_wins_over_times_by_topic_and_those_over_offsets() -> None:
    """Kafka's precedence."""
    both = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"news": 5}'}
    assert batch(**both).start == Bound(by_topic={"news": 5}, is_time=True)
    assert batch(**both, startingTimestamp="7").start == Bound(7, is_time=True)
    both = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"news": 5}'}
    assert batch(**both).end == Bound(by_topic={"news": 5}, is_time=True)
    assert batch(**both, endingTimestamp="7").end == Bound(7, is_time=True)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffsets": "latest"}, "a batch would be empty"),
        ({"startingOffsets": '{"news": -1}'}, "a batch would be empty"),
        ({"startingOffsets": "first"}, "not earliest, latest or JSON such as"),
        ({"startingOffsets": "[1]"}, "not earliest, latest or JSON such as"),
        ({"startingOffsets": '{"news": "1"}'}, "'1' of topic 'news'"),
        ({"startingOffsets": '{"news": -3}'}, "-3 of topic 'news'"),
        ({"startingOffsets": '{"news": 1, "chat": 1}'}, "'chat' is not subscribed to"),
        ({"startingOffsets": '{"chat": 1}'}, "'chat' is not subscribed to"),
        ({"endingOffsets": "earliest"}, "before the first event"),
        ({"endingOffsets": '{"news": -2}'}, "before the first event"),
        ({"startingTimestamp": "yesterday"}, "milliseconds"),
        ({"startingOffsetsByTimestamp": '{"news": -1}'}, "-1 of topic 'news'"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"minPartitions": "0"}, "above 0"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"node": "127.0.0.1:1"}, "by one of them"),
        ({"token": "t"}, "goes with node"),
    ],
)
def test_wrong_values_of_a_batch(options: dict[str, str], complaint: str) -> None:
    """Every sentence begins with the option."""
    with pytest.raises(ConfigError) as caught:
        batch(**options)
    assert complaint in str(caught.value)
    assert any(str(caught.value).startswith(name) for name in READ_OPTIONS)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    """Ends are for batches."""
    with pytest.raises(ConfigError, match="a stream has no end"):
        stream(**{option: "latest"})


def test_a_node_wants_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the option, a file, or the environment."""
    monkeypatch.delenv("RUMORMILL_TOKEN", raising=False)
    there = {"node": "127.0.0.1:4020", "subscribe": "news"}
    with pytest.raises(ConfigError, match=r"token: a node wants one.*flight\.token"):
        read_options(there, streaming=False)
    file = tmp_path / "token"
    file.write_text("from the file\n")
    for given, token in (({"token": "t"}, "t"), ({"tokenFile": str(file)}, "from the file")):
        access = read_options(there | given, streaming=False).places[0]
        assert access == NodeAccess("127.0.0.1:4020", token)
    monkeypatch.setenv("RUMORMILL_TOKEN", "from outside")
    assert read_options(there, streaming=False).places[0].token == "from outside"
    with pytest.raises(ConfigError, match="set one of them"):
        read_options(there | {"token": "t", "tokenFile": str(file)}, streaming=False)
    with pytest.raises(ConfigError, match="tokenFile: cannot read"):
        read_options(there | {"tokenFile": str(tmp_path / "no")}, streaming=False)


@pytest.mark.parametrize("node", ["localhost", ":4020", "host:", "host:0", "host:70000", "host:x"])
def test_a_node_is_host_and_port(node: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        read_options({"node": node, "subscribe": "a", "token": "t"}, streaming=False)


def test_tls_of_a_node(tmp_path: Path) -> None:
    """Roots switch it on."""
    roots = tmp_path / "roots.pem"
    roots.write_text("PEM")
    there = {"node": "h:1", "subscribe": "a", "token": "t"}
    access = read_options(there | {"tlsRoots": str(roots)}, streaming=False).places[0]
    assert (access.tls, access.roots) == (True, "PEM")
    assert read_options(there | {"tls": "true"}, streaming=False).places[0].tls
    with pytest.raises(ConfigError, match="needs tls"):
        read_options(there | {"tls": "false", "tlsRoots": str(roots)}, streaming=False)


def test_a_path_is_a_home() -> None:
    """`load("chat-home")` says the same as the option."""
    read = read_options({"path": "/h", "subscribe": "a"}, streaming=False)
    assert read.places[0] == HomeAccess("/h")


def test_writing_needs_a_node(tmp_path: Path) -> None:
    """A home without one is told so."""
    given = {"node": "h:1", "token": "t", "topic": "news", "checkpointLocation": "/c"}
    written = write_options(given)
    assert (written.topic, written.write_id) == ("news", None)
    with pytest.raises(LocalError, match="no node with a Flight door runs in"):
        write_options({"home": str(tmp_path)})
    with pytest.raises(ConfigError, match="there is no such option"):
        write_options({**given, "subscribe": "a"})
