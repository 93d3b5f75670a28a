"""The command: a small demonstration with everything in it, its end by Ctrl-C, what it refuses."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import live_nodes
from processes import PATIENCE, SOURCES, Terminal, environment, rumormill
from rumormill.cli import show
from rumormill.cli.demo import Screen
from rumormill.daemon.homes import HomesSource
from rumormill.dashboard.source import Look, wanted_sections

PROTOCOLS = ["floodsub", "gossipsub", "pulsarcast", "skipring", "radius"]
NODES, EVENTS = 4, 30


def run_demo(*arguments: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run a demonstration to its end, with its temporary files in a directory of the test."""
    return rumormill("demo", *arguments, TMPDIR=str(scratch))


def processes_with(folder: Path) -> list[str]:
    """The command lines of all living processes that mention a folder.

    Everything that a demonstration starts names its home, or Spark's directories.
    """
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split(None, 1) for line in listed.splitlines()]
    found = [line for line in lines if len(line) == 2 and str(folder) in line[1]]
    return [line[1] for line in found if "Z" not in line[0]]


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory for temporary files, with a short path because sockets lie in it."""
    return tmp_path_factory.mktemp("t")


@pytest.mark.xdist_group("spark-apart")
def test_a_small_demonstration_shows_it_all(tmp_path: Path, scratch: Path) -> None:
    """Every protocol runs, nodes are killed and come back, no acknowledged event is lost, Spark
    has every event with its signature, the report is there, and nothing is left behind."""
    page = tmp_path / "report.html"
    sizes = ("--nodes", str(NODES), "--events", str(EVENTS))
    done = run_demo(*sizes, "--json", "--output", str(page), scratch=scratch)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [run["protocol"] for run in told["runs"]] == PROTOCOLS
    for run in told["runs"]:
        name = run["protocol"]
        assert run["error"] is None, (name, done.stderr)
        assert (run["killed"], run["returned"]) == (1, 1), name
        found = run["audit"]
        assert found["lost"] == 0, name
        assert found["acknowledged"] + run["unacknowledged"] == EVENTS, name
        assert found["owed"] == found["acknowledged"] * (NODES + 1), name
        assert found["kept"] + found["missed_while_down"] + found["missing"] == found["owed"]
        spark = run["spark"]
        assert spark["rows"] == spark["valid"] == spark["events"] >= found["acknowledged"], name
        figures = run["figures"]
        assert 0.5 < figures["delivery_ratio"] <= 1.0, name
        assert figures["messages_per_delivery"] >= 1.0 or name == "pulsarcast"
        assert 0.0 < figures["latency_p50"] <= figures["latency_p99"], name
        assert figures["data_bytes"] > 0, name
    text = page.read_text()
    assert told["report"] == str(page)
    assert re.search(r'class="headline">(None of|Nothing that was acknowledged)', text)
    assert 'class="span"' in text, "when a node was killed"
    topics = text.partition(">Busiest topics</h2>")[2].partition("<h2 ")[0]
    assert not re.search(r"<td>[A-Za-z0-9]{40,}</td>", topics), "names, and no hashes"
    assert f"<dd>{shlex.join(['rumormill', 'demo', *sizes])}" in text
    assert all(name in text for name in [*PROTOCOLS, "pulsarcast:open", "radius:few"])
    assert told["kept"] is None
    assert list(scratch.iterdir()) == []
    assert processes_with(scratch) == []


def test_without_spark_it_runs_and_says_what_to_install(tmp_path: Path, scratch: Path) -> None:
    """The figures come from the traces then; `--keep` leaves those, homes and logs; no report."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, package=None:"
        " None if name == 'pyspark' else found(name, package)\n"
    )
    page = tmp_path / "report.html"
    done = rumormill(
        "demo", "--protocol", "floodsub", "--nodes", "3", "--events", "15", "--keep",
        "--output", str(page),
        TMPDIR=str(scratch), PYTHONPATH=os.pathsep.join([str(tmp_path), str(SOURCES)]),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 'pip install "rumormill[spark]"' in done.stderr
    assert "nothing that was acknowledged is lost" in done.stdout
    assert "delivery ratio" in done.stdout
    assert "complete in the end" in done.stdout
    assert re.search(r"dashboard: http://127\.0\.0\.1:\d+/\?token=\S+$", done.stderr, re.MULTILINE)
    assert "kill -9 n" in done.stderr
    assert "is back" in done.stderr
    assert not page.exists()
    kept = Path(done.stdout.rsplit(": ", 1)[1].strip())
    assert kept.parent == scratch
    assert sorted(each.name for each in (kept / "floodsub").glob("*.ndjson")) == [
        "deaths.ndjson", "n0.ndjson", "n1.ndjson", "n2.ndjson", "observer.ndjson",
    ]  # fmt: skip
    assert processes_with(scratch) == []


def test_kills_and_returns_are_marks_on_the_page() -> None:
    """Of the run that is shown; that the next one began forgets them."""

    async def story() -> None:
        with show.progress_bar(1) as bars:
            screen = Screen(bars)
            screen.source = source = HomesSource({}, notes_absence=False)
            screen.begin("gossipsub", {})
            screen.mark("kill", "n1", "kill -9 n1")
            screen.mark("start", "n1", "n1 is back")
            found = await source.look(Look(sections=wanted_sections(["overview"])))
            assert found["source"]["title"] == "gossipsub"
            told = [(mark["kind"], mark["peer"], mark["text"]) for mark in found["marks"]]
            assert told == [("kill", "n1", "kill -9 n1"), ("start", "n1", "n1 is back")]
            screen.begin("floodsub", {})
            found = await source.look(Look(sections=wanted_sections(["overview"])))
            assert (found["source"]["title"], found["marks"]) == ("floodsub", [])
            await source.close()

    live_nodes.run(story)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_leaves_no_process_and_no_file(scratch: Path, number: signal.Signals) -> None:
    """In the middle of publishing, when a node is about to come back; a second one changes
    nothing."""
    arguments = ("--protocol", "gossipsub", "--nodes", "3", "--events", "200", "--no-spark")
    with Terminal("demo", *arguments, TMPDIR=str(scratch)) as demo:
        demo.says("kill -9")
        assert len(processes_with(scratch)) >= 2
        demo.process.send_signal(number)
        demo.process.send_signal(number)
        assert demo.ends() == 130
        assert demo.errors[-1] == "rumormill: interrupted"
    assert processes_with(scratch) == []
    assert list(scratch.iterdir()) == []


def test_nodes_end_with_a_demonstration_that_is_killed(scratch: Path) -> None:
    """It cannot kill them then: they see that nobody holds their stdin any more."""
    arguments = ("--protocol", "floodsub", "--nodes", "3", "--events", "5000", "--no-spark")
    with Terminal("demo", *arguments, TMPDIR=str(scratch)) as demo:
        demo.says("publishing")
        assert len(processes_with(scratch)) >= 3
        demo.process.kill()
        demo.ends()
    deadline = time.monotonic() + PATIENCE
    while processes_with(scratch):
        assert time.monotonic() < deadline, "nodes are left behind"


@pytest.mark.xdist_group("spark-apart")
def test_a_signal_ends_spark_too(scratch: Path) -> None:
    """The stream runs then, and a node is dead."""
    arguments = ("--protocol", "gossipsub", "--nodes", "3", "--events", "200")
    with Terminal("demo", *arguments, TMPDIR=str(scratch)) as demo:
        demo.says("kill -9")
        demo.process.send_signal(signal.SIGINT)
        assert demo.ends() == 130
    assert processes_with(scratch) == []
    assert list(scratch.iterdir()) == []


def test_a_failed_run_is_told_with_its_logs_and_the_others_run(scratch: Path) -> None:
    """A node that cannot start fails its run alone; the logs stay."""
    script = (
        "import sys\nfrom rumormill.cli import main\nfrom rumormill.demo import network\n"
        "begin = network.Daemon.__init__\n"
        "def broken(self, name, folder, arguments, verb='node'):\n"
        "    extra = ['--no-such-flag'] if folder.name == 'gossipsub' else []\n"
        "    begin(self, name, folder, [*arguments, *extra], verb)\n"
        "network.Daemon.__init__ = broken\nsys.exit(main(sys.argv[1:]))\n"
    )
    arguments = ["--protocol", "gossipsub", "--protocol", "floodsub", "--nodes", "3"]
    done = subprocess.run(
        [sys.executable, "-c", script, "demo", *arguments, "--events", "3", "--no-spark", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(TMPDIR=str(scratch)),
    )
    assert done.returncode == 1
    told = json.loads(done.stdout)
    failed, fine = told["runs"]
    log = Path(failed["error"].partition("does not start: see ")[2])
    assert log.parent == Path(failed["logs"])
    assert "no-such-flag" in log.read_text()
    assert fine["error"] is None
    assert fine["audit"]["acknowledged"] == 3
    assert told["kept"] == str(Path(failed["logs"]).parent)
    assert processes_with(scratch) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--protocol", "gosipsub"], "--protocol: there is no protocol 'gosipsub'"),
        (["--protocol", "gossipsub,"], "--protocol: there is no protocol ''"),
        (["--nodes", "2"], "--nodes: must be from 3 to"),
        (["--nodes", "many"], "--nodes: 'many' is not a whole number"),
        (["--events", "0"], "--events: 0 is not at least 1"),
        (["--seed", "-1"], "--seed: -1 is not at least 0"),
        (["--output", "no/such/place.html"], "--output: no/such/place.html cannot be written"),
    ],
)
def test_what_is_refused_starts_nothing(scratch: Path, arguments: list[str], sentence: str) -> None:
    done = run_demo(*arguments, scratch=scratch)
    assert done.returncode == 2
    assert done.stderr.startswith(f"rumormill: {sentence}")
    assert done.stderr.count("\n") == 1
    assert list(scratch.iterdir()) == []


def test_the_makefile_runs_it() -> None:
    """`make demo` is the command without arguments."""
    root = Path(__file__).resolve().parents[2]
    recipe = (root / "Makefile").read_text().partition("\ndemo:")[2].split("\n\n")[0]
    assert recipe.split("\n")[1].strip() == "@$(VENV)/bin/rumormill demo"
