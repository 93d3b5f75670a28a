"""The options of `format("rumormill")`: names, meanings, and sentences for what is wrong with them.

The names and rules are Kafka's where Kafka has them. Spark hands every value over as text and every
name in lower case. The rule: what is not understood is refused, with the nearest name.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from rumormill.core.config import nearest
from rumormill.core.errors import ConfigError
from rumormill.log.arrow import ON_DEMAND
from rumormill.spark.access import Access, HomeAccess, NodeAccess, node_of_home

EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
"""What stands for the ends of a topic in offsets, as in Kafka's."""

TOKEN_VARIABLE: Final = "RUMORMILL_TOKEN"

MAX_RECORDS_PER_PARTITION: Final = 131_072
"""Our choice: eight of the store's segments, a task of about a second, so that cores share a large
topic evenly."""

_PLACE: Final = ("home", "node", "path", "token", "tokenFile", "tls", "tlsRoots")
READ_OPTIONS: Final = (
    *_PLACE,
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "fetchHistory",
    "includeHeaders",
    "includeMetadata",
    "includeProof",
)
WRITE_OPTIONS: Final = (*_PLACE, "topic", "writeId")
_SPARKS_OWN: Final = ("checkpointLocation", "queryName")
"""What Spark itself puts among the options."""

_KAFKAS: Final = {
    "assign": "a topic has one partition here, so name topics with subscribe",
    "groupidprefix": "a read has no group here; leave it out",
    "kafka.bootstrap.servers": "name a node with node, or its directory with home",
    "kafka.group.id": "a read has no group here; leave it out",
}
"""What users of Kafka's connector look for, and what is there in its place."""

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_OPTION: Final = "option."
_ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


class Bound(msgspec.Struct, frozen=True):
    """Where reading begins or ends: everywhere the same, or by topic; offsets or milliseconds."""

    everywhere: int | None = None
    by_topic: dict[str, int | dict[str, int]] = {}
    is_time: bool = False

    def of(self, topic: str, place: int = 0) -> int | None:
        """The value for a topic at a place, if there is one."""
        found = self.by_topic.get(topic, self.everywhere)
        return found.get(str(place)) if isinstance(found, dict) else found


class ReadOptions(msgspec.Struct, frozen=True):
    """What is to be read, from where to where, and how."""

    places: tuple[Access, ...]
    """Where the events are; several hold replicas of the same topics."""
    topics: tuple[str, ...]
    pattern: str | None
    start: Bound
    end: Bound
    fail_on_data_loss: bool
    latest_if_no_later: bool
    """What a starting time behind the last event means: nothing to read, or an error."""
    max_offsets: int | None
    min_offsets: int | None
    """What a batch waits for, but no longer than `max_delay` seconds behind the one before."""
    max_delay: float
    min_partitions: int
    max_records: int
    fetch: int | None = None
    """How many events other nodes are asked for before anything is read; 0 for all."""

    def wants(self, topic: str) -> bool:
        """Whether a topic is subscribed to."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


class WriteOptions(msgspec.Struct, frozen=True):
    """Where to publish, and under which name rows are published once only."""

    node: NodeAccess
    topic: str | None
    write_id: str | None


def canonical(options: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """The options by their proper names; an unknown one is refused."""
    names = {name.lower(): name for name in (*known, *_SPARKS_OWN)}
    found: dict[str, str] = {}
    for key, value in options.items():
        name = names.get(key.lower())
        if name is None:
            close = _KAFKAS.get(key.lower()) or nearest(key.lower(), sorted(names))
            for lower, proper in names.items():
                close = re.sub(rf"\b{lower}\b", proper, close)
            raise ConfigError(f"{key}: there is no such option of rumormill; {close}")
        found[name] = value
    return found


def options_of_table(options: Mapping[str, str]) -> dict[str, str]:
    """What stands in the OPTIONS of a table that is being created, among its other properties."""
    if "provider" not in options:
        return {}
    marked = [(key.lower(), value) for key, value in options.items()]
    return {key[len(_OPTION) :]: value for key, value in marked if key.startswith(_OPTION)}


def places_of(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's options that say where its events are."""
    names = [name.lower() for name in _PLACE]
    return {key: value for key, value in options.items() if key.lower() in names}


def columns_wanted(options: Mapping[str, str]) -> dict[str, bool]:
    """Whether the columns that are not always there are asked for."""
    given = canonical(options, READ_OPTIONS)
    asked = {"payload": "includeProof"}  # which it is read with: a proof is over it
    return {
        name: _flag(given, asked.get(name, f"include{name.title()}"), False) for name in ON_DEMAND
    }


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Read and check the options of a source."""
    given = canonical(options, READ_OPTIONS)
    chosen = [name for name in ("subscribe", "subscribePattern") if name in given]
    if len(chosen) != 1:
        problem = "both are set" if chosen else "neither is set"
        raise ConfigError(f"subscribe, subscribePattern: exactly one is needed, {problem}")
    topics = tuple(_listed(given.get("subscribe", "")))
    pattern = given.get("subscribePattern")
    if pattern is None and not topics:
        raise ConfigError("subscribe: name at least one topic")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"subscribePattern: {pattern!r} is no pattern: {error}") from None
    if streaming:
        for name in _ENDING:
            if name in given:
                raise ConfigError(f"{name}: a stream has no end; it is for batch reads")
    strategy = given.get("startingOffsetsByTimestampStrategy", "error")
    if strategy not in ("error", "latest"):
        raise ConfigError("startingOffsetsByTimestampStrategy: choose error or latest")
    most = _number(given, "maxOffsetsPerTrigger") if streaming else None
    least = _number(given, "minOffsetsPerTrigger") if streaming else None
    if most is not None and least is not None and least > most:
        raise ConfigError("minOffsetsPerTrigger: is above maxOffsetsPerTrigger")
    places = _places(given)
    return ReadOptions(
        places,
        topics,
        pattern,
        _bound(given, "starting", topics, pattern, len(places), streaming=streaming),
        _bound(given, "ending", topics, pattern, len(places), streaming=streaming),
        _flag(given, "failOnDataLoss", True),
        strategy == "latest",
        most,
        least,
        _seconds(given.get("maxTriggerDelay", "15m")),
        _number(given, "minPartitions") or 1,
        _number(given, "maxRecordsPerPartition") or MAX_RECORDS_PER_PARTITION,
        _fetch(given, topics),
    )


def _fetch(given: Mapping[str, str], topics: tuple[str, ...]) -> int | None:
    """How much is fetched before: all, or a number of events."""
    if "fetchHistory" not in given:
        return None
    if not topics:
        raise ConfigError("fetchHistory: goes with subscribe, which names the topics")
    if given["fetchHistory"].strip().lower() == "all":
        return 0
    return _number(given, "fetchHistory", what="all or a number of events")


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Read and check the options of a sink."""
    given = canonical(options, WRITE_OPTIONS)
    access, *others = _places(given)
    if others:
        raise ConfigError("home, node: name one to publish through; its log knows what it has")
    node = access if isinstance(access, NodeAccess) else node_of_home(access.home)
    if "topic" in given and not given["topic"]:
        raise ConfigError("topic: a topic's name is not empty")
    return WriteOptions(node, given.get("topic"), given.get("writeId"))


def _places(given: Mapping[str, str]) -> tuple[HomeAccess | NodeAccess, ...]:
    places = [name for name in ("home", "node", "path") if name in given]
    if len(places) != 1:
        raise ConfigError(
            "home, node: say where the events are, by one of them: home is a directory, node is"
            " HOST:PORT of a node that runs with --flight"
        )
    for name in ("token", "tokenFile", "tls", "tlsRoots"):
        if name in given and "node" not in given:
            raise ConfigError(f"{name}: goes with node, not with {places[0]}")
    named = _listed(given[places[0]])
    if not named:
        raise ConfigError(f"{places[0]}: name at least one place")
    if "node" not in given:
        homes = [Path(each.removeprefix("file:")).expanduser().absolute() for each in named]
        return tuple([HomeAccess(str(home)) for home in homes])
    roots = _text_of(given["tlsRoots"], "tlsRoots") if "tlsRoots" in given else ""
    tls = _flag(given, "tls", bool(roots))
    if roots and not tls:
        raise ConfigError("tlsRoots: needs tls")
    tokens = _tokens(given)
    if len(tokens) not in (1, len(named)):
        raise ConfigError(
            f"token, tokenFile: give one for all nodes, or {len(named)} in their order"
        )
    tokens *= len(named) // len(tokens)
    return tuple(
        [
            NodeAccess(_endpoint(node), token, tls, roots)
            for node, token in zip(named, tokens, strict=True)
        ]
    )


def _listed(text: str) -> list[str]:
    """What stands between commas."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def _endpoint(text: str) -> str:
    host, _, port = text.removeprefix("grpc://").rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"node: {text!r} is not HOST:PORT, such as 127.0.0.1:4020")
    return f"{host}:{port}"


def _tokens(given: Mapping[str, str]) -> list[str]:
    if "token" in given and "tokenFile" in given:
        raise ConfigError("token, tokenFile: set one of them")
    if "tokenFile" in given:
        return [_text_of(each, "tokenFile").strip() for each in _listed(given["tokenFile"])]
    token = given.get("token") or os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise ConfigError(
            "token: a node wants one; it is in the file flight.token of the node's home"
            f" (options token and tokenFile, or the variable {TOKEN_VARIABLE})"
        )
    return [each.strip() for each in token.split(",")]


def _text_of(path: str, option: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option}: cannot read {path}: {error}") from None


def _bound(
    given: Mapping[str, str], side: str, topics: tuple[str, ...], pattern: str | None,
    places: int, *, streaming: bool,
) -> Bound:  # fmt: skip
    """Where to begin or end: a time wins over times by topic, and those over offsets."""
    time = _number(given, f"{side}Timestamp", 0, "a number of milliseconds since 1970")
    if time is not None:
        return Bound(time, is_time=True)
    if f"{side}OffsetsByTimestamp" in given:
        option = f"{side}OffsetsByTimestamp"
        return _by_topic(given, option, topics, pattern, places, is_time=True)
    option = f"{side}Offsets"
    starts = side == "starting"
    text = given.get(option, "earliest" if starts and not streaming else "latest").strip()
    word = text.lower()
    if word in _WORDS:
        bound = Bound(_WORDS[word])
    else:
        bound = _by_topic(given, option, topics, pattern, places)
    named = {bound.everywhere}
    for value in bound.by_topic.values():
        named |= {*value.values()} if isinstance(value, dict) else {value}
    if starts and not streaming and LATEST in named:
        latest = "latest" if word == "latest" else "-1 (latest)"
        raise ConfigError(f"{option}: {latest} is for streams; a batch would be empty")
    if not starts and EARLIEST in named:
        earliest = "earliest" if word == "earliest" else "-2 (earliest)"
        raise ConfigError(f"{option}: {earliest} would end before the first event")
    return bound


def _by_topic(
    given: Mapping[str, str],
    option: str,
    topics: tuple[str, ...],
    pattern: str | None,
    places: int,
    *,
    is_time: bool = False,
) -> Bound:
    """Read a JSON object of numbers by topic, such as {"news": 42, "chat": -2}; where there are
    several places, by topic and place."""
    example = '{"news": 1730000000000}' if is_time else '{"news": 42, "chat": -2}'
    words = "" if is_time else "earliest, latest or "
    try:
        found = json.loads(given[option])
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"{option}: {given[option]!r} is not {words}JSON such as {example}")
    least = 0 if is_time else EARLIEST
    for topic, value in found.items():
        by_place = value if isinstance(value, dict) else {"0": value}
        if any(type(each) is not int or each < least for each in by_place.values()):
            raise ConfigError(f"{option}: {value!r} of topic {topic!r}: write it as {example}")
        everywhere = type(value) is int and (value < 0 or is_time)
        if not everywhere and sorted(by_place) != sorted(map(str, range(places))):
            numbers = {str(number): number for number in range(places)}
            raise ConfigError(
                f"{option}: topic {topic!r} has offsets of its own in each place: write them as"
                f" {json.dumps({topic: numbers})}"
            )
    # Offsets name exactly the topics that are subscribed to.
    for topic in found:
        if topic not in topics if pattern is None else not re.fullmatch(pattern, topic):
            raise ConfigError(f"{option}: topic {topic!r} is not subscribed to")
    for topic in topics:
        if topic not in found:
            raise ConfigError(f"{option}: topic {topic!r} is missing: name all of subscribe")
    return Bound(by_topic=found, is_time=is_time)


def _number(
    given: Mapping[str, str], option: str, least: int = 1, what: str = "a number above 0"
) -> int | None:
    if option not in given:
        return None
    text = given[option]
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ConfigError(f"{option}: {text!r} is not {what}")
    return int(text)


def _seconds(text: str) -> float:
    """A time such as 90s, 15m or 500ms, as Spark writes them."""
    found = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h|d)", text.strip().lower())
    if found is None:
        raise ConfigError(f"maxTriggerDelay: {text!r} is not a time such as 30s, 15m or 2h")
    return int(found[1]) * _UNITS[found[2]]


def _flag(given: Mapping[str, str], option: str, default: bool) -> bool:
    text = given.get(option, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{option}: {given[option]!r} is neither true nor false")
    return text == "true"
