"""CloudEvents: what is published for one, and what an event is as one."""

import json
from typing import Any

import pytest

from rumormill.core.api import Message
from rumormill.core.errors import LocalError
from rumormill.core.event import Event, Head
from rumormill.node.cloudevents import from_cloudevent, to_cloudevent
from rumormill.wire.envelope import MAX_CREATED
from rumormill.wire.keys import PrivateKey

AUTHOR = PrivateKey(bytes(32)).peer_id
CORE = {"specversion": "1.0", "id": "17", "source": "/shop", "type": "org.example.order"}


def handed_out(message: Message) -> Event:
    """What a subscriber gets of a message."""
    assert isinstance(message.data, bytes)
    key = message.key.encode() if isinstance(message.key, str) else message.key
    head = Head(key, dict(message.headers or {}), message.content_type or "")
    return Event("orders", message.data, bytes(AUTHOR), b"\1\2", created=5.5, head=head)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"data": {"pieces": 2}, "datacontenttype": "application/json"},
        {"data": [1, "two", None], "datacontenttype": "application/vnd.shop+json; charset=utf-8"},
        {"data": "two pieces", "datacontenttype": "text/plain"},
        {"data_base64": "/w==", "datacontenttype": "application/octet-stream"},
        {"subject": "order 17", "time": "2026-11-16T12:00:00Z", "partitionkey": "customer-5"},
        {"dataschema": "https://example.org/order", "sampledrate": "5"},
    ],
)
def test_a_cloudevent_comes_back_as_it_was(extra: dict[str, Any]) -> None:
    """Through JSON, as it is given and taken by programs."""
    given = json.loads(json.dumps(CORE | extra))
    found = to_cloudevent(handed_out(from_cloudevent(given)))
    assert found == {"data_base64": ""} | given if "data" not in extra else given
    assert json.loads(json.dumps(found)) == found


def test_attributes_are_headers_as_in_the_binding_for_kafka() -> None:
    found = from_cloudevent(CORE | {"partitionkey": "k", "data": 5, "flag": True})
    assert found.headers == {f"ce_{name}": value for name, value in CORE.items()} | {
        "ce_flag": "true"
    }
    assert (found.key, found.data, found.content_type) == ("k", b"5", None)


@pytest.mark.parametrize("created", [MAX_CREATED / 1000, -1e15, 1e300])
def test_an_author_whose_clock_no_calendar_has_breaks_nothing(created: float) -> None:
    """Anybody may say so of an event; it was received at some time."""
    event = Event("orders", b"x", bytes(AUTHOR), b"\1\2", created=created, received=5.5)
    assert to_cloudevent(event)["time"] == "1970-01-01T00:00:05.500000Z"


def test_any_event_is_a_cloudevent() -> None:
    """Id, author, topic and the author's time are its attributes; headers that can be are too."""
    head = Head(b"k", {"region": "north", "Not-One": "x"}, "application/json")
    event = Event("orders", b'{"a": 1}', bytes(AUTHOR), b"\1\2", created=5.5, head=head)
    assert to_cloudevent(event) == {
        "specversion": "1.0",
        "id": "0102",
        "source": f"/rumormill/{AUTHOR}",
        "type": "rumormill.event",
        "subject": "orders",
        "time": "1970-01-01T00:00:05.500000Z",
        "datacontenttype": "application/json",
        "partitionkey": "k",
        "region": "north",
        "data": {"a": 1},
    }
    plain = to_cloudevent(Event("orders", b"\xff", b"", b"\1", received=5.0))
    assert (plain["time"], plain["data_base64"]) == ("1970-01-01T00:00:05Z", "/w==")


def test_a_payload_that_is_not_what_it_says_stays_whole() -> None:
    event = Event("orders", b"{", b"", b"\1", head=Head(None, {}, "application/json"))
    assert to_cloudevent(event)["data_base64"] == "ew=="


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"id": None}, "has the attribute 'id'"),
        ({"source": ""}, "has the attribute 'source'"),
        ({"Upper": "x"}, "no attribute 'Upper'"),
        ({"nested": {}}, "no attribute 'nested'"),
        ({"data_base64": "%"}, "not base64"),
        ({"data_base64": 5}, "not base64"),
    ],
)
def test_what_is_no_cloudevent_is_said(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        from_cloudevent(CORE | change)
