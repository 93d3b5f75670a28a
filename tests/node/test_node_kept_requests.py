"""A request to publish whose asker is killed with -9 is asked again, on real nodes."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pulsarcast_nodes import SET

from processes import PATIENCE, Terminal, rumormill
from rumormill.log.event_log import EventLog
from rumormill.log.notes import note_keys
from rumormill.protocols.pulsarcast.tree.kept_requests import NOTES


def said(topic: str, home: object) -> list[str]:
    """What a node's log has of a topic."""
    done = rumormill("history", topic, "--json", "--home", str(home))
    return [json.loads(each)["data"] for each in done.stdout.splitlines()]


def kept_requests(home: Path) -> list[str]:
    """The requests that a node's log remembers."""
    with EventLog(home, read_only=True) as log:
        return note_keys(log, NOTES)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_a_request_is_asked_again_across_kill_9(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The author is killed, then the one who asks it to publish; both come back, and the event is
    there, once."""
    homes = tmp_path_factory.mktemp("h")
    author, asker = homes / "a", homes / "b"
    node = ("node", "--protocol", "pulsarcast", *SET)
    with Terminal(*node, "--home", author) as a:
        ticket = a.prints()[0]
        topic = rumormill("topics", "create", "news", "--home", author).stdout.strip()
        joins = (*node, "--home", asker, "--topic", topic, "--join", ticket)
        with Terminal(*joins) as b:
            b.prints()
            done = rumormill("pub", topic, "first", "--home", asker)
            assert done.returncode == 0, done.stderr
            a.kill()
            with Terminal("pub", topic, "asked", "--home", asker) as pub:
                until(lambda: kept_requests(asker), "the request is on its way")
                b.kill()  # and nobody could grant it
                pub.ends()
    with Terminal(*node, "--home", author, "--topic", topic) as a:
        ticket = a.prints()[0]
        assert said(topic, author) == ["first"]
        joins = (*node, "--home", asker, "--topic", topic, "--join", ticket)
        with Terminal(*joins) as b:
            b.prints()
            until(lambda: len(said(topic, author)) > 1, "it is asked again")
            until(lambda: not kept_requests(asker), "it is granted, and not asked again")
            assert said(topic, author) == ["first", "asked"], "and once only"
