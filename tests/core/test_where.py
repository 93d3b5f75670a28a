"""Filters: what they match, what they refuse and where, and that nothing breaks them."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.core.event import Event
from rumormill.core.where import MAX_DEPTH, MAX_JSON_BYTES, MAX_TEXT, Filter


def said(data: Any, topic: str = "roof") -> Event:
    """An event with this payload, as JSON unless it is bytes."""
    return Event(topic, data if isinstance(data, bytes) else json.dumps(data).encode(), b"", b"1")


READING = said(
    {
        "celsius": 31.5,
        "count": 3,
        "name": "north's roof",
        "open": True,
        "broken": None,
        "tags": ["alarm", 7],
        "place": {"floor": 2, "odd name": "x", "rows": [[1, 2], [3]]},
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "data.celsius > 30",
        "30 < data.celsius",
        "data.celsius >= 31.5 and data.celsius <= 31.5",
        "data.count == 3.0",
        "data.count != 4",
        "data.count > -1e3",
        'data.name == "north\'s roof"',
        "data.name == 'north\\'s roof'",
        "data.name startswith 'north' and data.name endswith 'roof' and data.name contains '\\''",
        'data.name > "north" and data.name < "south"',
        "data.open == true",
        "data.broken == null",
        "data.tags contains 'alarm'",
        "data.tags contains 7",
        "data.place.floor == 2",
        "data['place'][\"odd name\"] == 'x'",
        "data.place.rows[0][1] == 2",
        "data.count < data.celsius",
        "data.count in [1, 2, 3]",
        "topic in ['cellar', 'roof']",
        'topic == "roof"',
        "has data.broken and not has data.missing",
        "data.celsius > 40 or data.count == 3",
        "data.celsius > 40 and data.count == 4 or topic == 'roof'",
        "not (data.celsius > 40 or data.count == 4)",
        "not not has data",
        "  (( data.count==3 ))  ",
        "data.name != 3",
    ],
)
def test_what_matches(text: str) -> None:
    """Fields in JSON, of every kind, compared with values and with each other."""
    assert Filter(text).matches(READING)
    assert not Filter(f"not ({text})").matches(READING)
    assert str(Filter(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "data.missing == 1",
        "data.missing != 1",
        "data.missing == data.missing",
        "data.count == '3'",
        "data.count > 'a'",
        "data.name > 3",
        "data.open == 1",
        "data.open > 0",
        "data.broken == false",
        "data.tags == data.tags",
        "data.tags contains 'alar'",
        "data.tags contains true",
        "data.count contains 3",
        "data.count startswith 'x'",
        "data.place.rows[9] == 1",
        "data.place[0] == 1",
        "data.tags.name == 1",
        "data.count in ['3', 4]",
        "data.celsius > 40 and data.count == 3",
    ],
)
def test_what_is_not_there_or_of_another_kind_does_not_match(text: str) -> None:
    assert not Filter(text).matches(READING)


@pytest.mark.parametrize(
    "payload",
    [b"", b"not json", b'{"celsius": ', b"\xff\xfe", b"[" * 100_000, b" " * MAX_JSON_BYTES + b"1"],
)
def test_a_payload_that_is_no_json_or_too_long_has_no_fields(payload: bytes) -> None:
    """It is matched by what it lacks, and by what is no field of it."""
    assert not Filter("has data").matches(said(payload))
    assert not Filter("data.celsius > 30 or data != 1").matches(said(payload))
    assert Filter("not has data.celsius and topic == 'roof'").matches(said(payload))


def test_a_payload_may_be_one_value() -> None:
    assert Filter("data > 20").matches(said(b"21"))
    assert Filter("data[1] == 'b'").matches(said(["a", "b"]))


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("", "expected a field", "at its end"),
        ("data.x == ", "expected a field", "at its end"),
        ("data.x = 3", "write == to compare", "at character 8, `= 3`"),
        ("data.x ==== 3", "expected a field", "at character 10"),
        ("color == 3", "expected a field (", "at character 1, `color"),
        ("data.x == 'open", "the quote is not closed", "at character 11"),
        ("data.x == 'a\\q'", "there is no \\q in text", "at character 11"),
        ("data.x & 1", "'&' means nothing here", "at character 8"),
        ("data.x 3", "expected a comparison", "at character 8"),
        ("data.x == 1 data.y == 2", "expected `and`, `or` or the end", "at character 13"),
        ("(data.x == 1", "expected `)`", "at its end"),
        ("data. == 1", "expected a name", "at character 7"),
        ("data[-1] == 1", "a number from 0", "at character 6"),
        ("data[1 == 1", "expected `]`", "at character 8"),
        ("data.x in (1)", "expected a list", "at character 11"),
        ("data.x in [1 2]", "expected `,` or `]`", "at character 14"),
        ("data.x in [data.y]", "a list has values", "at character 12"),
        ("1 in [1]", "`in` looks for a field", "at character 1"),
        ("1 == 1", "it compares two values", "at character 1"),
        ("has 3", "`has` asks for a field", "at character 5"),
        ("topic == 3", "text is never a number", "at character 10"),
        ("topic in ['a', 3]", "text is never a number", "at character 16"),
        ("data.x < true", "`<` compares numbers, or text", "at character 10"),
        ("data.x startswith 3", "`startswith` is for text", "at character 19"),
        ("3 contains data.x", "`contains` is for text", "at character 1"),
        ("__import__('os')", "expected a field", "at character 1"),
        ("not " * (MAX_DEPTH + 1) + "has data", f"more than {MAX_DEPTH} times", "at character"),
        ("(" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} times", "at character"),
        ("data.x == 1 or " * 400, f"at most {MAX_TEXT} characters", "not 6000"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_and_where(
    text: str, what: str, where: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Filter(text)
    sentence = str(refused.value)
    assert sentence.startswith("where: ")
    assert what in sentence
    assert where in sentence


def test_a_filter_is_text() -> None:
    with pytest.raises(ConfigError, match="as text, not dict"):
        Filter({"celsius": 30})  # type: ignore[arg-type]


WORDS = ("data", ".x", "[0]", "topic", "==", "!=", "<", "in", "[", "]", ",", "(", ")", "and", "or")
MORE = ("not", "has", "contains", "1", "-2.5e3", "'a'", '"b\\n"', "true", "null", "'", "=", "&")


@given(parts=st.lists(st.sampled_from(WORDS + MORE), max_size=40), data=st.binary(max_size=40))
def test_whatever_is_written_is_read_or_refused_in_order(parts: list[str], data: bytes) -> None:
    """And what was read answers for every payload."""
    try:
        found = Filter(" ".join(parts))
    except ConfigError:
        return
    for payload in (data, b'{"x": [1, "a"]}', b"[[true]]"):
        assert found.matches(said(payload)) in (True, False)


@given(text=st.text(max_size=60))
def test_any_text_is_read_or_refused_in_order(text: str) -> None:
    with contextlib.suppress(ConfigError):
        Filter(text)
