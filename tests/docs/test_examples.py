"""The programs in `examples/` run, and do what they say."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT

from processes import Program, Terminal, environment, rumormill, run_forked

EXAMPLES = ROOT / "examples"
SOURCES = {"PYTHONPATH": str(ROOT / "src")}
MOST_LINES = 60


def run(name: str, *options: str, place: Path, stdin: str | None = None) -> str:
    """Run an example to its end, in a fork; it complains about nothing."""
    program = (EXAMPLES / name).read_text()
    ended = run_forked(["-c", program, *options], environment(), place, stdin)
    assert (ended.returncode, ended.stderr) == (0, ""), name
    return ended.stdout


def test_examples_are_short_and_listed() -> None:
    """Each can be read in a minute, and the API's page says what it shows."""
    page = (ROOT / "docs" / "python-api.md").read_text()
    programs = sorted(EXAMPLES.glob("*.py"))
    assert programs
    for program in programs:
        assert len(program.read_text().splitlines()) <= MOST_LINES, program.name
        assert f"`examples/{program.name}`" in page, program.name
    named = set(re.findall(r"`examples/(\w+\.py)`", page))
    assert named == {program.name for program in programs}


def chat(*options: str) -> Program:
    """Start `examples/chat.py`."""
    command = [sys.executable, EXAMPLES / "chat.py", *options]
    return Program(command, stdin=subprocess.PIPE, stderr=None, env=SOURCES)


def test_two_terminals_chat(tmp_path: Path) -> None:
    """Both hear each other, and who comes back to a home sees the last lines of the room."""
    with chat("--name", "ann", "--home", str(tmp_path / "ann")) as ann:
        with chat("--name", "bob", "--join", ann.hears().removeprefix("ticket: ")) as bob:
            assert bob.hears().startswith("ticket: ")
            bob.told("hello")
            assert ann.hears() == "bob: hello"
            ann.told("welcome")
            assert bob.hears() == "ann: welcome"
            assert bob.close() == 0
        assert ann.close() == 0
    with chat("--name", "ann", "--home", str(tmp_path / "ann")) as again:
        assert again.hears().startswith("ticket: ")
        assert again.hears() == "bob: hello"
        assert again.close() == 0


def test_a_fleet_of_sensors_ends_in_one_file(tmp_path: Path) -> None:
    """Every reading of every sensor is a row, once, by the sensor's own key."""
    from pyarrow import parquet

    said = run("sensor_fleet.py", "--sensors", "3", "--readings", "7", place=tmp_path)
    assert said == "21 readings of 3 sensors in readings.parquet\n"
    rows = parquet.read_table(tmp_path / "readings.parquet").to_pylist()
    assert sorted((row["sensor"], row["number"]) for row in rows) == [
        (f"sensor-{sensor}", number) for sensor in range(3) for number in range(7)
    ]
    assert len({(row["sensor"], row["author"]) for row in rows}) == 3
    assert [row["offset"] for row in rows] == list(range(21))


def test_protocols_are_compared_on_a_topology_of_ones_own(tmp_path: Path) -> None:
    """A line of eight peers: everybody delivers, and flooding costs most where links are many."""
    (tmp_path / "line.txt").write_text("".join(f"{n} {n + 1}\n" for n in range(7)))
    lines = run("compare_protocols.py", "line.txt", "--messages", "4", place=tmp_path).splitlines()
    figures = {words[0]: list(map(float, words[1:])) for words in map(str.split, lines[1:])}
    assert list(figures) == ["floodsub", "gossipsub", "pulsarcast", "skipring", "radius"]
    assert all(figure[0] == 1.0 for figure in figures.values())
    assert figures["floodsub"][3] == 1.0, "a line has one way only"


def test_an_audit_log_is_one_chain_and_refuses_strangers(tmp_path: Path) -> None:
    """Four entries in one order, none of the stranger's, and the reader's home proves it."""
    said = run("audit_log.py", place=tmp_path).splitlines()
    assert said[0].startswith("refused: ")
    assert said[1:5] == [
        "0: the books are open",
        "1: invoice 1 is paid",
        "2: invoice 2 is paid",
        "3: the books are closed",
    ]
    words = said[5].removeprefix("verify: rumormill ").split(" --home ")
    verified = command(tmp_path / words[1], *words[0].split())
    assert verified[0] == "4 events, 1 heads, one chain"


def worker(home: Path, name: str) -> Program:
    command = [sys.executable, EXAMPLES / "work_queue.py", "--home", home, "work", "--name", name]
    return Program(command, stderr=None, env=SOURCES)


def begun(*workers: Program) -> set[str]:
    """The jobs that workers have begun."""
    lines = [line for each in workers for line in each.output if " does" in line]
    return {line.split(": ")[1] for line in lines}


def test_workers_share_a_queue_and_a_killed_ones_job_is_done(tmp_path: Path) -> None:
    """Every job is done, by somebody; what the dead worker had and did not finish, twice begun."""
    home = tmp_path / "shop"
    add = ("--home", str(home), "add")
    with Terminal("node", "--home", home) as node:
        node.prints()
        said = run("work_queue.py", *add, "job 0", place=tmp_path)
        assert said == "1 jobs are safe; nobody has worked yet\n"
        with worker(home, "ann") as ann, worker(home, "bob") as bob:
            assert (ann.hears()[-8:], bob.hears()[-8:]) == ("is ready", "is ready")
            wanted = {"job 0"}
            while min(len(ann.output), len(bob.output)) < 6:  # until both have worked
                jobs = [f"job {number}" for number in range(len(wanted), len(wanted) + 40)]
                run("work_queue.py", *add, *jobs, place=tmp_path)
                wanted.update(jobs)
            ann.kill()
            bob.wait_for(lambda: begun(ann, bob) >= wanted, "the last job")
        (queue,) = command(home, "groups", "--json")
        assert json.loads(queue)["lag"] == 0
        twice = len(ann.output) + len(bob.output) - 2 - len(wanted)
        assert twice in (0, 1), "nothing but what ann had in hand was begun again"


def test_requests_are_answered(tmp_path: Path) -> None:
    assert run("request_reply.py", "2+3", "x", "10+20+30", place=tmp_path).splitlines() == [
        "2+3: answer 5",
        "x: error not numbers",
        "10+20+30: answer 60",
        "2 nodes answered the last one",
    ]


def test_cloudevents_go_in_and_come_out(tmp_path: Path) -> None:
    order = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order"}
    order |= {"datacontenttype": "application/json", "data": {"n": 2}}
    lines = [json.dumps(order), "{}", json.dumps({**order, "id": "2", "type": "bill"})]
    said = run("cloud_events.py", place=tmp_path, stdin="\n".join(lines))
    refused, *found = said.splitlines()
    assert refused.startswith("refused: ")
    events = {event["id"]: event for event in map(json.loads, found)}
    assert [events[number]["type"] for number in "12"] == ["order", "bill"]
    assert events["1"]["data"] == {"n": 2}


def test_a_web_service_publishes_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the node refuses is the caller's mistake, in its own words."""
    from fastapi.testclient import TestClient

    monkeypatch.setenv("SHOP_HOME", str(tmp_path))
    with Terminal("node", "--home", tmp_path) as node:
        node.prints()
        service = runpy.run_path(str(EXAMPLES / "web_service.py"))
        with TestClient(service["app"]) as web:
            answer = web.post("/topics/a/b", json={"n": 1})
            assert (answer.status_code, answer.json()["offset"]) == (201, 0)
            assert [each["data"] for each in web.get("/topics/a/b").json()] == [{"n": 1}]
            for refused in (web.post("/topics/*", content=b"x"), web.get("/topics/*")):
                assert refused.status_code == 422
                assert "is a pattern of names" in refused.json()["detail"]
            assert web.get("/topics/a/b", params={"last": 0}).status_code == 422
            assert web.get("/groups").json() == []


@pytest.mark.xdist_group("spark")
def test_a_spark_stream_publishes_alerts_once(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readings above the limit become alerts in the node's log; a second run adds none."""
    home = tmp_path / "plant"
    with Terminal("node", "--home", home, "--flight", "127.0.0.1:0") as node:
        assert "/p2p/" in node.hears()
        for celsius in ("20.5", "71.5", "broken", "64"):
            command(home, "pub", "celsius", celsius)
        monkeypatch.setattr(sys, "argv", ["spark_alerts.py", str(home), "--limit", "60", "--once"])
        for _ in range(2):
            runpy.run_path(str(EXAMPLES / "spark_alerts.py"), run_name="__main__")
        alerts = [json.loads(line)["data"] for line in command(home, "history", "alerts", "--json")]
        assert alerts == ["71.5 degrees at offset 1", "64.0 degrees at offset 3"]


def command(home: Path, *words: str) -> list[str]:
    """Run a command of a home; return what it printed."""
    ended = rumormill(*words, "--home", home)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()
