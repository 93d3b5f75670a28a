"""A node's trace in a file, also when it is killed; and nodes that end with their stdin."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from processes import PATIENCE, RUMORMILL, Program, Terminal, environment, rumormill
from rumormill.core import trace
from rumormill.trace.files import read_trace


def test_two_lives_of_a_node_are_one_trace(home: Path, tmp_path: Path) -> None:
    """The first is killed with SIGKILL; what it had done is there, and the second goes on."""
    path = tmp_path / "node.ndjson"
    arguments = ("node", "--home", home, "--trace", str(path), "--topic", "news")
    quick = ("--set", "node.trace_interval=0.01")
    with Terminal(*arguments, *quick) as node:
        node.prints()
        assert rumormill("pub", "news", "one", "--home", home).returncode == 0
        assert rumormill("topics", "--home", home).returncode == 0  # which shows observers all
        node.process.kill()
        node.ends()
    published = [each for _, _, each in read_trace(path) if isinstance(each, trace.PublishMessage)]
    assert [each.topic for each in published] == ["news"]
    with Terminal(*arguments) as node:
        node.prints()
        assert node.stop() == 0
    kinds = [type(each) for _, _, each in read_trace(path)]
    assert [each for each in kinds if each in (trace.NodeUp, trace.NodeDown)] == [
        trace.NodeUp, trace.NodeUp, trace.NodeDown,
    ]  # fmt: skip
    assert len({peer for _, peer, _ in read_trace(path)}) == 1


@pytest.mark.parametrize(
    ("path", "code", "sentence"),
    [("node.parquet", 2, "trace: the name must end in"), ("no/such.ndjson", 1, "cannot write")],
)
def test_a_trace_that_cannot_be(home: Path, path: str, code: int, sentence: str) -> None:
    done = rumormill("node", "--home", home, "--trace", path)
    assert done.returncode == code
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["node", "supervisor"])
def test_a_node_ends_in_order_when_its_stdin_does(home: Path, verb: str) -> None:
    """What is written there before is ignored."""
    command = [*RUMORMILL, verb, "--home", home, "--until-eof", "--json"]
    with Program(command, stdin=subprocess.PIPE) as node:
        assert json.loads(node.hears())["tickets"]
        node.told("hello")
        assert node.process.poll() is None
        assert node.close() == 0


def test_stdin_must_be_a_pipe_to_end_with_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (tmp_path / "file").open() as file:
        done = subprocess.run(
            [*RUMORMILL, "node", "--home", home, "--until-eof"],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env=environment(),
        )
    assert done.returncode == 2
    assert done.stderr == "rumormill: --until-eof: stdin is no pipe\n"
    assert not os.path.exists(home / "control.sock")
