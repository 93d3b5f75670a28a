"""`rumormill sync`, and what commands say of histories that are fetched."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from live_nodes import run, until
from processes import Terminal, rumormill
from rumormill.cli.history import _watch
from rumormill.daemon.control_client import ControlClient
from rumormill.node.node import Node


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


class Screen(io.StringIO):
    """What a person would see."""

    def isatty(self) -> bool:
        return True


def test_who_waits_sees_how_much_has_come_and_waits_no_longer_than_something_comes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event that comes makes it wait anew; then nothing comes, and it is over."""
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("rumormill.cli.history._LOOK_SECONDS", 0.01)

    async def story() -> None:
        async with Node(home) as node, node.serve(control=True) as doors:
            assert doors.control is not None
            await node.publish("news", b"before")
            client = await ControlClient.connect(Path(doors.control))
            try:
                watching = asyncio.ensure_future(_watch(client, "news", 3600))
                for count in range(1, 4):
                    await until(lambda: not watching.done(), "it waits")
                    await asyncio.sleep(0.1)
                    await node.publish_many("news", [b"%d" % n for n in range(1000)])
                    wanted = f"\r{1000 * count:,} events more in the log"
                    await until(lambda wanted=wanted: wanted in screen.getvalue(), "it is shown")
                watching.cancel()
                await asyncio.wait([watching])
                assert screen.getvalue().endswith("3,000 events more in the log\n")
                await _watch(client, "news", 0.2)
            finally:
                await client.close()

    run(story)
