"""`--where` and patterns on the command line."""

import json
from pathlib import Path

import pytest

from processes import Terminal, rumormill


def test_filters_and_patterns_through_a_daemon(tmp_path: Path) -> None:
    """The daemon asks the filter; `history` does so with and without one, and counts matches."""
    place = ("--home", tmp_path / "home")
    with Terminal("node", *place) as node:
        node.prints()
        readings = '{"celsius": 12}\n{"celsius": 35}\nno json\n{"celsius": 31}\n'
        for topic in ("house/roof", "house/cellar/stairs"):
            assert rumormill("pub", topic, *place, stdin=readings).returncode == 0
        hot = ("--where", "data.celsius > 30", "--format", "%t %s\\n")
        found = rumormill("sub", "house/#", *place, *hot, "--all", "--count", "4", "--wait", "60")
        assert sorted(found.stdout.splitlines()) == [
            'house/cellar/stairs {"celsius": 31}',
            'house/cellar/stairs {"celsius": 35}',
            'house/roof {"celsius": 31}',
            'house/roof {"celsius": 35}',
        ]
        with Terminal("sub", "house/*", *place, *hot) as sub:
            sub.says("listening to house/*")
            assert rumormill("pub", "house/attic", *place, stdin=readings).returncode == 0
            assert sub.prints(2) == ['house/attic {"celsius": 35}', 'house/attic {"celsius": 31}']
        refused = rumormill("sub", "house/*", *place, "--offset", "3")
        assert "stands for many topics" in refused.stderr
        found = rumormill("history", "house/roof", *place, *hot, "--count", "1")
        assert found.stdout.splitlines() == ['house/roof {"celsius": 35}']
        assert node.stop() == 0
    found = rumormill("history", "house/roof", *place, *hot)
    assert found.stdout.splitlines() == ['house/roof {"celsius": 35}', 'house/roof {"celsius": 31}']


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["sub", "news", "--where", "data.x = 3"], "where: write == to compare; at character 8"),
        (["history", "news", "--where", "x"], "where: expected a field (data, headers, topic"),
        (["history", "news", "--where", "has data", "--graph"], "neither with --graph"),
        (["sub", "news*"], "stands for a whole level"),
        (["pub", "news/*", "x"], "is a pattern of names and not a topic"),
        (["history", "news/#"], "is a pattern of names and not a topic"),
        (["node", "--topic", "news/*"], "is a pattern of names and not a topic"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_started(
    home: Path, words: list[str], sentence: str
) -> None:
    refused = rumormill(*words, "--home", home)
    assert sentence in refused.stderr
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1


def test_keys_and_headers_on_the_command_line(tmp_path: Path) -> None:
    """What `pub` says of its messages is printed, filtered by and in the JSON of `history`."""
    place = ("--home", tmp_path / "home")
    about = ("--key", "order-17", "-H", "region=north", "-H", "x=a=b", "--content-type", "text/x")
    with Terminal("node", *place) as node:
        node.prints()
        assert rumormill("pub", "orders", "two", *about, *place).returncode == 0
        assert rumormill("pub", "orders", "plain", *place).returncode == 0
        shown = rumormill("history", "orders", *place, "--format", "%k|%h|%c|%s\\n").stdout
        assert shown == "order-17|region=north,x=a=b|text/x|two\n|||plain\n"
        assert node.stop() == 0
    mine = ("--where", "key == 'order-17' and headers.region == 'north'", "--json")
    (line,) = rumormill("history", "orders", *place, *mine).stdout.splitlines()
    found = json.loads(line)
    assert (found["key"], found["data"], found["content_type"]) == ("order-17", "two", "text/x")
    assert found["headers"] == {"region": "north", "x": "a=b"}
    assert found["created"] <= found["received"] + 60
    refused = rumormill("pub", "orders", "two", "-H", "region", *place)
    assert "--header: 'region' is not KEY=VALUE" in refused.stderr
    assert refused.returncode == 2
