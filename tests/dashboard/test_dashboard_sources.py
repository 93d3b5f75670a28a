"""Traces with a clock that can be moved, and several nodes as one picture."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run
from rumormill.core.errors import LocalError
from rumormill.core.trace import NodeDown
from rumormill.daemon import homes
from rumormill.daemon.homes import HomeSource, HomesSource
from rumormill.dashboard import node_source
from rumormill.dashboard.series import step_for
from rumormill.dashboard.source import VIEWS, Look, NotHere, Page, Sections, Source, wanted_sections
from rumormill.dashboard.trace_source import TraceSource, is_trace
from rumormill.node.node import Node
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario
from rumormill.trace.entries import TraceError
from rumormill.trace.files import open_writer, read_trace

ALL = Look(sections=wanted_sections(VIEWS))


async def shown(source: Source, look: Look = ALL) -> Sections:
    return await source.look(look)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The trace of a small simulation with a crash, and its figures."""
    path = tmp_path_factory.mktemp("traces") / "run.ndjson"
    changes = {"peers": 10, "workload.messages": 20, "topology.degree": 4, "churn.rate": 60.0}
    scenario = Scenario().changed(changes)
    return path, run_scenario(scenario, trace=path)


def test_a_trace_is_shown_whole_first(recorded: tuple[Path, dict[str, Any]]) -> None:
    """Its figures at the end are those that the run had, and its faults are marks."""
    path, figures = recorded
    found = run(lambda: shown(TraceSource([path])))
    totals = found["totals"]
    for name in ("published", "delivered", "duplicates"):
        assert totals[name] == figures[name]
    assert found["clock"]["now"] == found["clock"]["end"]
    downs = [entry for entry in read_trace(path) if isinstance(entry[2], NodeDown)]
    assert [mark["t"] for mark in found["marks"] if mark["kind"] == "kill"] == [e[0] for e in downs]
    assert downs
    assert "wall0" not in found["clock"]
    assert found["source"]["protocol"].startswith("/meshsub/")
    span = found["clock"]["end"] - found["clock"]["start"]
    points = found["series"]
    assert len(points["t"]) <= 601
    assert sum(points["deliveries"]) * step_for(span) == pytest.approx(totals["delivered"])


def test_the_clock_of_a_trace_can_be_moved(recorded: tuple[Path, dict[str, Any]]) -> None:
    """Back and forth: what is shown depends on where it is, and on nothing else."""
    path, _ = recorded

    async def story() -> None:
        source = TraceSource([path])
        whole = await shown(source)
        middle = whole["recent"]["rows"][10]["t"]
        await source.play({"at": middle})
        half = await shown(source)
        assert half["clock"]["now"] == middle
        assert half["clock"]["epoch"] > whole["clock"]["epoch"]
        assert 0 < half["totals"]["delivered"] < whole["totals"]["delivered"]
        assert half["marks"] == whole["marks"]
        await source.play({"at": whole["clock"]["end"] + 100})
        again = await shown(source)
        assert again["totals"] == whole["totals"]
        assert again["clock"]["now"] == whole["clock"]["end"]
        await source.play({"at": -5})
        assert (await shown(source))["totals"]["delivered"] == 0
        await source.play({"speed": 1e9})
        clock = await source.play({"playing": True})
        assert (clock["playing"], clock["speed"]) == (True, 1000.0)
        await asyncio.sleep(0.05)
        assert (await shown(source))["clock"]["now"] > whole["clock"]["start"]
        for wish in ({}, {"at": "x"}, {"at": True}, {"playing": 1}, {"x": 1}):
            with pytest.raises(LocalError):
                await source.play(wish)

    run(story)


def test_events_of_a_trace_have_journeys(recorded: tuple[Path, dict[str, Any]]) -> None:
    path, _ = recorded

    async def story() -> None:
        source = TraceSource([path])
        found = await shown(source, Look(sections=(*ALL.sections, "tail"), topic="topic-0"))
        rows = found["tail"]["rows"]
        assert [row["offset"] for row in rows] == [*range(len(rows))]
        journey = await source.journey(rows[0]["id"])
        assert journey["hops"][0]["kind"] == "publish"
        assert max(hop["hop"] for hop in journey["hops"]) >= 1
        times = [hop["t"] for hop in journey["hops"]]
        assert times == sorted(times)
        for wrong in ("00ff", "no hexadecimal"):
            with pytest.raises(NotHere):
                await source.journey(wrong)
        with pytest.raises(NotHere):
            await source.page(Page(topic="topic-0"))
        with pytest.raises(LocalError):
            await source.publish("topic-0", b"")

    run(story)


def test_several_traces_stand_side_by_side(recorded: tuple[Path, dict[str, Any]]) -> None:
    path, figures = recorded
    other = path.with_name("other.pb")
    run_scenario(Scenario().changed({"peers": 6, "workload.messages": 5}), trace=other)
    found = run(lambda: shown(TraceSource([path, other])))
    runs = {each["name"]: each for each in found["compare"]["runs"]}
    assert {*runs} == {"run.ndjson", "other.pb"} == {*found["source"]["runs"]}
    assert runs["run.ndjson"]["totals"]["delivered"] == figures["delivered"]
    assert runs["other.pb"]["totals"]["published"] == 5


def test_a_folder_is_everybody_s_trace_by_the_clock(
    recorded: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    path, figures = recorded
    for peer in {entry[1] for entry in read_trace(path)}:
        with open_writer(tmp_path / f"{peer.hex()}.ndjson") as writer:
            writer.observe([entry for entry in read_trace(path) if entry[1] == peer])
    assert is_trace(tmp_path)
    totals = run(lambda: shown(TraceSource([tmp_path])))["totals"]
    assert (totals["published"], totals["duplicates"]) == (
        figures["published"],
        figures["duplicates"],
    )


def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty.ndjson").write_text("")
    (tmp_path / "broken.ndjson").write_text("{")
    for name, said in (("empty", "is empty"), ("broken", "line 1"), ("missing", "cannot read")):
        with pytest.raises(TraceError, match=said):
            TraceSource([tmp_path / f"{name}.ndjson"])


async def leave_in_the_middle(source: Source, event: str) -> None:
    """Viewers who hang up while their question is being answered."""
    for _ in range(5):
        leaving = asyncio.ensure_future(source.journey(event))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


def test_several_nodes_are_one_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts add up, links are there once, and an event's journey is what all saw of it."""
    for module in (homes, node_source):  # each look reads anew
        monkeypatch.setattr(module, "_FRESH", 0.0)

    async def story() -> None:
        names = ("a", "b", "c")
        folders = {name: tmp_path / name for name in names}
        async with (
            Node(folders["a"]) as a,
            Node(folders["b"]) as b,
            a.serve(control=True),
            b.serve(control=True),
        ):
            c = Node(folders["c"])
            await c.start()
            await c.serve(control=True)
            for node in (a, b, c):
                await node.create_topic("news")
            await b.connect(a.tickets[0])
            await c.connect(a.tickets[0])
            await a.wait_until_ready("news", peers=2)
            source = HomesSource({name: HomeSource(folder) for name, folder in folders.items()})
            first = await shown(source)
            assert (first["source"]["kind"], first["well"]["ok"]) == ("homes", True)
            receipt = await a.publish("news", "hello")
            found = await shown(source)
            while found["totals"]["delivered"] < 2:  # until both have it
                found = await shown(source)
            assert found["totals"]["published"] == 1
            assert found["totals"]["delivered"] == 2
            assert [row["name"] for row in found["peers"]["rows"]] == ["a", "b", "c"]
            links = [tuple(row) for row in found["links"]["rows"]]
            assert len(links) == len({*links})
            assert {(low, high) for low, high, *_ in links} >= {(0, 1), (0, 2)}
            (topic,) = [row for row in found["topics"]["rows"] if row["name"] == "news"]
            assert (topic["subscribers"], topic["published"]) == (3, 1)
            (event,) = found["recent"]["rows"]
            assert (event["deliveries"], event["complete"]) == (3, True)
            journey = await source.journey(receipt.id.hex())
            reached = {
                hop["peer"]: hop["hop"] for hop in journey["hops"] if hop["kind"] == "deliver"
            }
            assert reached[str(a.id)] == 0
            assert {*reached} == {str(node.id) for node in (a, b, c)}
            assert all(hops >= 1 for peer, hops in reached.items() if peer != str(a.id))
            tail = await shown(source, Look(sections=wanted_sections(["tail"]), topic="news"))
            assert [row["text"] for row in tail["tail"]["rows"]] == ["hello"]
            page = await source.page(Page(topic="news"))
            assert [row["offset"] for row in page["rows"]] == [0]
            sent = await source.publish("news", b"by the page")
            assert sent["offset"] == 1
            with pytest.raises(NotHere):
                await source.journey("00")
            await leave_in_the_middle(source, receipt.id.hex())
            assert (await shown(source))["totals"]["published"] == 2
            await c.close()
            without = await shown(source)
            assert without["well"] == {"ok": False, "sentence": "c is away"}
            assert [mark["kind"] for mark in without["marks"]] == ["kill"]
            async with Node(folders["c"]) as back, back.serve(control=True):
                returned = await shown(source)
                assert [mark["kind"] for mark in returned["marks"]] == ["kill", "start"]
            await source.close()

    run(story)


def test_a_page_of_history_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    """Nobody has the topic; or somebody may have it, and does not answer."""

    async def story() -> None:
        async with Node(tmp_path / "a") as node, node.serve(control=True):
            source = HomesSource({"a": HomeSource(tmp_path / "a")})
            with pytest.raises(NotHere, match="no node's log has anything of that topic"):
                await source.page(Page(topic="of nobody"))
            await source.close()
            both = HomesSource({name: HomeSource(tmp_path / name) for name in ("a", "away")})
            with pytest.raises(LocalError, match="no daemon runs in") as away:
                await both.page(Page(topic="of nobody"))
            assert not isinstance(away.value, NotHere)
            await both.close()

    run(story)


def test_heads_of_a_topic_are_those_of_its_log(tmp_path: Path) -> None:
    """Of Pulsarcast, whose events name the one before; several nodes agree, or do not."""

    async def story() -> None:
        async with Node(tmp_path, protocol="pulsarcast") as node, node.serve(control=True):
            topic = await node.create_topic("news")
            first = await topic.publish(b"one")
            second = await topic.publish(b"two")
            for source in (HomeSource(tmp_path), HomesSource({"a": HomeSource(tmp_path)})):
                found = await shown(source, Look(sections=wanted_sections(["protocol"])))
                assert found["heads"] == {
                    "topic": topic.name, "among": 2, "rows": [[second.id.hex(), 1]], "left_out": 0,
                }  # fmt: skip
                await source.close()
            assert first.id != second.id

    run(story)


def test_a_home_is_shown_as_its_node_would_show_itself(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            Node(tmp_path / "a", control=False) as node,
            node.serve(control=True) as doors,
        ):
            await node.create_topic("news")
            await node.publish("news", "hello")
            source = HomeSource(tmp_path / "a")
            found = await shown(source)
            assert (found["source"]["kind"], found["totals"]["published"]) == ("node", 1)
            assert {*found} >= {"sync", "reach", "protocol", "process", "peers", "links"}
            assert doors._source.attached
            with pytest.raises(NotHere):
                await source.page(Page(topic="nothing"))
            with pytest.raises(LocalError):
                await source.play({"playing": True})
            await source.close()
            empty = HomeSource(tmp_path / "nobody")
            with pytest.raises(LocalError, match="no daemon runs"):
                await shown(empty)

    run(story)
