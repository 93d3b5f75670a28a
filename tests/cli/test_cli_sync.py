"""`rumormill sync`, and what commands say of histories that are fetched."""

import json
from pathlib import Path

from processes import Terminal, rumormill


def test_a_daemon_that_was_away_has_everything_again(tmp_path: Path) -> None:
    """It takes up its topic, compares, and a command says how many it has got."""
    alice, bob = ("--home", tmp_path / "alice"), ("--home", tmp_path / "bob")
    with Terminal("node", *alice, "--topic", "news") as first:
        ticket = first.prints()[0]
        with Terminal("node", *bob, "--join", ticket, "--topic", "news") as second:
            second.prints()
            assert rumormill("pub", "news", "one", *alice, "--wait", "20").returncode == 0
            second.kill()
        for word in ("two", "three"):
            assert rumormill("pub", "news", word, *alice).returncode == 0
        with Terminal("node", *bob, "--join", ticket) as second:
            second.prints()
            found = {"asked": 0}
            while not found["asked"]:  # until it has connected
                found = json.loads(rumormill("sync", "news", *bob, "--json").stdout)
            assert (found["asked"], found["answered"]) == (1, 1)
            shown = rumormill("history", "news", *bob, "--complete")
            assert sorted(shown.stdout.split()) == ["one", "three", "two"]
            assert "1 node has given all; nothing is missing" in shown.stderr
            assert "news: has all that another node had" in shown.stderr
            found = json.loads(rumormill("doctor", *bob, "--json").stdout)
            (told,) = [each for each in found["checks"] if each["name"] == "histories"]
            assert told["text"] == "nothing is known to be missing; 1 of 1 topics compared"


def test_without_a_node_there_is_nobody_to_compare(home: Path) -> None:
    """One sentence says what to do."""
    refused = rumormill("sync", "--home", home)
    assert refused.returncode == 1
    assert "start `rumormill node`" in refused.stderr
