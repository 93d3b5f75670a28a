"""The dashboard in a headless Chromium: every view of live nodes, a simulation and a trace.

Pictures of all of it are kept in `build/dashboard`. `make test-browser` runs this, and so does
`make test-interop`; it is skipped where no Chromium is installed.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from chromium import Page, find_chromium, page
from live_nodes import run
from processes import ROOT, Terminal, rumormill
from rumormill.dashboard.static_files import still_page
from rumormill.node.node import Node

BROWSER = find_chromium()
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(BROWSER is None, reason="chromium is not installed; the page runs in it"),
]

PICTURES = ROOT / "build" / "dashboard"
VIEWS = (
    "overview", "overlay", "topic", "event", "history", "reach", "lake", "protocol", "compare",
)  # fmt: skip
LOOKS = [(width, scheme) for width in (400, 1600) for scheme in ("light", "dark")]
HOSTILE = '<img src=x onerror="globalThis.owned=1"><script>globalThis.owned=2</script>'
LONGEST = 300.0
"""Seconds after which a test of dozens of pictures is called stuck."""
NETWORK = ("--peers", "24", "--messages", "60", "--rate", "4", "--topics", "2", "--seed", "7")


@asynccontextmanager
async def opened(folder: Path, address: str) -> AsyncIterator[Page]:
    """The page, whose console is listened to; an error in it fails the test."""
    assert BROWSER is not None
    async with page(BROWSER, folder / "profile", "about:blank") as shown:
        await shown.listen()
        await shown.look(1000, "light")
        await shown.command("Page.navigate", url=address)
        yield shown
        assert shown.console == []
        assert await shown.evaluate("globalThis.owned") is None


async def go(shown: Page, view: str, query: str = "") -> None:
    """Show a view, and wait until the stream has filled it."""
    await shown.evaluate(f"location.hash = {json.dumps(f'#/{view}{query}')}")
    await shown.until_there(f"#nav a[data-view={view}][aria-current=page]")
    await shown.until("#state", "live")
    await shown.until_true("document.querySelector('main').innerText.length > 20")


async def pictured(shown: Page, source: str) -> None:
    """Every view, narrow and wide, light and dark: nothing sticks out at the side."""
    await shown.until("#state", "live")
    await shown.until_true("performance.getEntriesByName('first picture').length > 0")
    drawn = await shown.evaluate("performance.getEntriesByName('first picture')[0].startTime")
    print(f"{source}: first picture after {drawn:.0f} ms")  # noqa: T201 (told, not judged)
    for view in VIEWS:
        await go(shown, view)
        await asyncio.sleep(1.2)  # a second batch, and the overlay's 300 ticks
        await looked_at(shown, source, view)


async def looked_at(shown: Page, source: str, view: str) -> None:
    """One view, in every look."""
    for width, scheme in LOOKS:
        await shown.look(width, scheme)
        await shown.evaluate(
            "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)))"
        )
        wide = await shown.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"{source} {view} at {width}: {wide}"
        await shown.picture(PICTURES / f"{source}-{view}-{width}-{scheme}.png")


@asynccontextmanager
async def network(home: Path) -> AsyncIterator[tuple[str, list[Node]]]:
    """Three nodes that talk in two topics, of which one has a hostile name; a page of the first."""
    nodes = [Node(home / name, listen="/ip4/127.0.0.1/tcp/0") for name in "abc"]
    async with nodes[0], nodes[1], nodes[2]:
        for node in nodes:
            await node.subscribe("weather")
            await node.subscribe(HOSTILE)
        for node in nodes[1:]:
            await node.connect(nodes[0].tickets[0])
        for node in nodes:
            await node.wait_until_ready("weather")
        async with nodes[0].serve(dashboard="127.0.0.1:0", allow_publish=True) as doors:
            assert doors.dashboard is not None
            yield doors.dashboard, nodes


@asynccontextmanager
async def talking(nodes: list[Node]) -> AsyncIterator[None]:
    """What is said: JSON, hostile text, and bytes that are none."""
    said = [b'{"station": "EDDB", "celsius": 11.5}', HOSTILE.encode(), b"\xff\x00\x01"]

    async def talk() -> None:
        for number in range(1_000_000):
            topic = HOSTILE if number % 3 == 0 else "weather"
            await nodes[number % 3].publish(topic, said[number // 3 % 3])
            await asyncio.sleep(0.1)

    talk_on = asyncio.create_task(talk())
    try:
        yield
    finally:
        talk_on.cancel()
        await asyncio.gather(talk_on, return_exceptions=True)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a recorded run with churn, beside a second one."""
    folder = tmp_path_factory.mktemp("traces")
    for name in ("gossipsub", "skipring"):
        file = folder / f"{name}.ndjson"
        done = rumormill("sim", "--protocol", name, *NETWORK, "--churn", "20", "--trace", file)
        assert done.returncode == 0, done.stderr
    with Terminal("dashboard", *sorted(folder.iterdir())) as served:
        yield served.hears()


@pytest.fixture(scope="module")
def simulation() -> Iterator[str]:
    """The page of two simulations, one after the other, that goes on when they are over."""
    compared = "pulsarcast,skipring"
    with Terminal("sim", "--compare", compared, *NETWORK, "--dashboard", "127.0.0.1:0") as served:
        served.wait_for(lambda: _address(served) is not None, "an address")
        served.wait_for(lambda: any("skipring" in line for line in served.output), "the table")
        found = _address(served)
        assert found is not None
        yield found


def _address(served: Terminal) -> str | None:
    lines = [*served.output, *served.errors]
    return next((line[line.index("http://") :] for line in lines if "/?token=" in line), None)


def told(story: Callable[[], Awaitable[None]]) -> None:
    """Run a story."""

    async def whole() -> None:
        await story()

    run(whole, patience=LONGEST)


def test_every_view_of_live_nodes(tmp_path: Path) -> None:
    """With hostile names and payloads among the ordinary ones."""

    async def story() -> None:
        async with (
            network(tmp_path) as (address, nodes),
            talking(nodes),
            opened(tmp_path, address) as shown,
        ):
            await pictured(shown, "nodes")
            await go(shown, "topic", f"?topic={quote(HOSTILE)}")
            await shown.until(".rows", HOSTILE[:40])
            assert (await shown.text("h1")).startswith(HOSTILE[:40])
            assert (
                await shown.evaluate("document.querySelectorAll('main :is(img, script)').length")
                == 0
            )

    told(story)


def test_every_view_of_a_simulation(tmp_path: Path, simulation: str) -> None:
    """The last of two protocols is shown, both are compared; an event is played to its end."""

    async def story() -> None:
        async with opened(tmp_path, simulation) as shown:
            await pictured(shown, "simulation")
            await go(shown, "compare")
            await shown.until("table", "copies per delivery")
            assert len(await shown.texts("thead th")) == 3
            await shown.look(1600, "dark")
            await go(shown, "overlay")
            await shown.until(".caption", "25 peers")  # with the ring's supervisor
            await shown.until(".legend", "ring")
            await shown.until_true(
                "document.querySelector('[aria-label=Event]').options.length > 1"
            )
            await shown.press("p")
            await shown.until(".stack .small", "peers have it after")
            await shown.until(".stack .main", "Play again")
            reached = await shown.text(".stack .small")
            assert re.match(r"(2\d) of \1 peers have it after", reached), reached
            await shown.until_true("location.hash.includes('event=')")
            await shown.picture(PICTURES / "simulation-played.png")

    told(story)


def test_every_view_of_a_trace(tmp_path: Path, trace: str) -> None:
    """Its clock can be moved, stopped and started; faults are marks on it."""

    async def story() -> None:
        async with opened(tmp_path, trace) as shown:
            await pictured(shown, "trace")
            await go(shown, "overview")
            assert len(await shown.texts(".marks i")) > 0
            end = await shown.text("#time .num")
            slide = "document.querySelector('#time input')"
            await shown.evaluate(f"{slide}.value = 20; {slide}.dispatchEvent(new Event('change'))")
            await shown.until("#time .num", "20 s of")
            await shown.evaluate("document.activeElement.blur()")
            await shown.press("ArrowRight")
            await shown.until("#time .num", "21 s of")
            await shown.press("p")
            await shown.until("#time button", "Pause")
            await shown.until("#time .num", "22 s of")
            await shown.press("p")
            await shown.until("#time button", "Play")
            assert await shown.text("#time .num") != end

    told(story)


def test_the_tail_pauses_seeks_and_filters(tmp_path: Path) -> None:
    """A pause keeps what was shown and counts what comes; the address keeps filter and place."""

    async def story() -> None:
        async with network(tmp_path) as (address, nodes), opened(tmp_path, address) as shown:
            await shown.until("#state", "live")
            for number in range(5):
                await nodes[0].publish("weather", f"first {number}".encode())
            await go(shown, "topic", "?topic=weather")
            await shown.until(".rows", "first 4")
            await shown.press("p")
            await shown.until("main", "paused, 0 new")
            for number in range(300):
                await nodes[0].publish("weather", f"later {number}".encode())
            await shown.until("main", "paused, ")
            await shown.until_true(
                "!document.querySelector('main').innerText.includes('paused, 0')"
            )
            assert "later" not in await shown.text(".rows")
            await shown.press("p")
            await shown.until(".rows", "later 299")
            rows = await shown.evaluate("document.querySelectorAll('.row').length")
            assert rows < 40  # of 305
            await shown.fill("main form", "[aria-label=Seek]", "2")
            await shown.until(".rows", "first 2")
            assert (await shown.texts(".row"))[0].startswith("2")
            assert "from=2" in await shown.evaluate("location.hash")
            await shown.fill("main form", "[aria-label=Seek]", "yesterday, or so")
            await shown.until("[role=alert]", "An offset is a number")
            await go(shown, "topic", "?topic=weather&filter=later+299")
            await shown.until(".rows", "later 299")
            assert len(await shown.texts(".row")) == 1
            await shown.fill("main .card:last-child", "textarea", "from the page")
            await shown.until("form.card [role=status]", "Published")
            await go(shown, "topic", "?topic=weather&filter=from+the+page")
            await shown.until(".rows", "from the page")

    told(story)


def test_keys_reach_everything(tmp_path: Path, trace: str) -> None:
    """Views by figures, help and its end, the way by Tab, rows and peers by arrows."""

    async def story() -> None:
        async with opened(tmp_path, trace) as shown:
            await shown.until("#state", "live")
            for number, view in enumerate(VIEWS, 1):
                await shown.press(str(number))
                await shown.until_true(f"location.hash.startsWith('#/{view}')")
            await shown.press("?")
            await shown.until_true("document.querySelector('dialog').open")
            await shown.press("Enter")
            await shown.until_true("!document.querySelector('dialog').open")
            await shown.press("2")
            await shown.until_true("location.hash.startsWith('#/overlay')")
            await shown.until_there(".rows .row")
            await shown.press("/")
            await shown.until_true("document.activeElement.type === 'search'")
            await shown.press("Tab")
            await shown.until_true("document.activeElement.className === 'rows'")
            await shown.press("ArrowDown")
            await shown.until_true("location.hash.includes('peer=')")
            first = await shown.evaluate("location.hash")
            await shown.press("ArrowDown")
            await shown.until_true(f"location.hash !== {json.dumps(first)}")
            await shown.evaluate("document.querySelector('.graph canvas').focus()")
            await shown.press("Escape")
            await shown.until_true("!location.hash.includes('peer=')")
            await shown.press("ArrowRight")
            await shown.until_true("location.hash.includes('peer=')")
            await shown.evaluate("document.activeElement.blur()")
            await shown.press("Tab")
            assert await shown.evaluate("document.activeElement.tagName") in (
                "A",
                "BUTTON",
                "SELECT",
            )

    told(story)


UNFRAMED = """
(() => {
  const help = document.getElementById("help");
  help.showModal();
  help.querySelector("button").click();
  const held = help.contains(document.activeElement);
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "2", bubbles: true }));
  return [help.open, held, location.hash];
})()
"""
"""The list of keys is closed and a key typed, and no frame is drawn between the two."""


def test_a_key_behind_a_closed_dialog_is_not_lost(tmp_path: Path, trace: str) -> None:
    """The focus leaves what was closed with the next frame; who types sooner is heard too."""

    async def story() -> None:
        async with opened(tmp_path, trace) as shown:
            await shown.until("#state", "live")
            closed, held, address = await shown.evaluate(UNFRAMED)
            assert not closed
            assert held  # or nothing is shown here
            assert address == "#/overlay"
            await shown.until_there(".rows .row")

    told(story)


HELD_BACK = """
const answers = globalThis.fetch;
globalThis.held = [];
globalThis.fetch = (path, ...rest) => String(path).includes("%s")
  ? new Promise((done, fail) => held.push(() => fail(new Error("too late"))))
  : answers(path, ...rest);
"""
"""What is asked at such a path fails, when the test says so."""


def test_a_page_of_the_log_that_fails_late_is_not_told(tmp_path: Path) -> None:
    """The reader has gone on to another one, and that is there."""

    async def story() -> None:
        async with network(tmp_path) as (address, nodes), opened(tmp_path, address) as shown:
            await shown.until("#state", "live")
            for number in range(3):
                await nodes[0].publish("weather", f"number {number}".encode())
            await shown.evaluate(HELD_BACK % "from=1")
            await go(shown, "topic", "?topic=weather&from=1")
            await shown.until_true("held.length === 1")
            await go(shown, "topic", "?topic=weather&from=2")
            await shown.until(".rows", "number 2")
            await shown.evaluate("held.pop()()")
            assert await shown.text("[role=alert]") == ""

    told(story)


@pytest.mark.parametrize(
    ("view", "name", "there", "said"),
    [
        ("event", "id", "reached", "[role=alert]"),
        ("overlay", "event", "Play again", ".stack .small"),
    ],
)
def test_a_journey_that_fails_late_is_not_told(
    tmp_path: Path, trace: str, view: str, name: str, there: str, said: str
) -> None:
    """The reader has gone on to another event, whose journey is shown."""

    async def story() -> None:
        async with opened(tmp_path, trace) as shown:
            await shown.until("#state", "live")
            await go(shown, "overlay")
            await shown.until_true("document.querySelector('[aria-label=Event]').length > 2")
            first, second = await shown.evaluate(
                "Array.from(document.querySelector('[aria-label=Event]')).slice(1, 3)"
                ".map((each) => each.value)"
            )
            await shown.evaluate(HELD_BACK % first)
            await go(shown, view, f"?{name}={first}")
            await shown.until_true("held.length === 1")
            await go(shown, view, f"?{name}={second}")
            await shown.until("main", there)
            await shown.evaluate("held.pop()()")
            assert "too late" not in await shown.text(said)

    told(story)


def test_a_lost_stream_is_told_and_comes_back(tmp_path: Path) -> None:
    """The page says so, keeps what it had, and takes a snapshot when the server is there again."""

    async def story() -> None:
        async with network(tmp_path) as (address, nodes), opened(tmp_path, address) as shown:
            await shown.until("#state", "live")
            await nodes[0].publish("weather", b"before")
            await go(shown, "topic", "?topic=weather")
            await shown.until(".rows", "before")
            await shown.command("Network.enable")
            nothing = {
                "offline": True,
                "latency": 0,
                "downloadThroughput": 0,
                "uploadThroughput": 0,
            }
            await shown.command("Network.emulateNetworkConditions", **nothing)
            await shown.evaluate("document.querySelector('#nav a').click()")
            await shown.until("#state", "stream lost, again in")
            await shown.command(
                "Network.emulateNetworkConditions",
                **nothing | {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1},
            )
            await shown.until("#state", "live")
            assert all("ERR_INTERNET_DISCONNECTED" in each for each in shown.console)
            shown.console.clear()

    told(story)


TABLES = {
    "protocol": {
        "name": HOSTILE,
        "rows": [[HOSTILE, 1]],
        "trees": {HOSTILE: [[f"peer-{n}", f"peer-{(n - 1) // 2}"] for n in range(1, 15)]},
    },
    "heads": {"topic": HOSTILE, "among": 64, "rows": [["ab" * 16, 2]], "left_out": 1},
    "reach": {
        "lines": [HOSTILE],
        "addresses": [HOSTILE],
        "relays": {"circuits": 2, "bytes carried for others": 2000},
        "punches": {HOSTILE: 1, "unreachable": 3},
    },
    "lake": {
        "tables": [{"name": HOSTILE, "rows": 3, "bytes": 10, "version": "a~1", "changed": 1.0}],
        "queries": [
            {
                "name": HOSTILE,
                "batch": 3,
                "running": False,
                "batch_seconds": 2.0,
                "rows_per_second": 20.0,
                "lag": {HOSTILE: 5},
                "changed": 1.0,
            }
        ],
        "rejected": {HOSTILE: 2, "wrong-id": 1},
        "not_checked": 7,
    },
}
"""Sections that are tables and words, as a lake and several nodes of Pulsarcast fill them."""
SAID = {"lake": "7 rows were not looked at", "protocol": "and 1 more", "reach": "2.00 kB"}


def test_a_still_needs_no_server(tmp_path: Path) -> None:
    """From a file: every view, and an event's way without motion; hostile data stay text."""
    peers = [{"id": f"peer-{n}", "name": f"{n}", "up": True, "delivered": n} for n in range(500)]
    links = [[n, (n + step) % 500, "mesh", ""] for n in range(500) for step in range(1, 9)]
    hops = [{"t": 1.0, "peer": "peer-0", "kind": "publish", "hop": 0}]
    hops += [
        {"t": 1 + n / 10_000, "peer": f"peer-{n}", "from": f"peer-{n // 2}", "kind": "deliver"}
        for n in range(1, 500)
    ]
    snapshot = {
        "source": {"kind": "trace", "title": HOSTILE},
        "clock": {"now": 2, "start": 0, "end": 2},
        "well": {"ok": True, "sentence": HOSTILE},
        "peers": {"rows": peers, "left_out": 0},
        "links": {"rows": links, "left_out": 0},
        "topics": {"rows": [{"name": HOSTILE, "delivered": 499}], "left_out": 0},
        "recent": {"rows": [{"id": "e", "topic": HOSTILE, "t": 1, "deliveries": 499}]},
        "journeys": [{"id": "e", "topic": HOSTILE, "author": "peer-0", "t": 1, "hops": hops}],
        **TABLES,
    }
    file = tmp_path / "still.html"
    file.write_text(still_page(snapshot))

    async def story() -> None:
        async with opened(tmp_path, file.as_uri()) as shown:
            await shown.until("#state", "a still, not live")
            for view in VIEWS:
                await shown.evaluate(f"location.hash = '#/{view}'")
                await shown.until_there(f"#nav a[data-view={view}][aria-current=page]")
            for view, said in SAID.items():
                await shown.evaluate(f"location.hash = '#/{view}'")
                await shown.until("main", said)
                assert HOSTILE[:30] in await shown.text("main")
                await looked_at(shown, "still", view)
            await shown.look(1600, "light", still=True)
            await shown.evaluate("location.hash = '#/overlay?event=e'")
            began = time.monotonic()
            await shown.until(".caption", "500 peers · 4000 links")
            await shown.until_there("canvas[aria-busy=false]")
            took = time.monotonic() - began
            print(f"500 peers, 4,000 links, laid out in {took:.1f} s")  # noqa: T201
            await shown.until(".stack .small", "500 of 500 peers have it")
            await shown.picture(PICTURES / "still-overlay.png")

    told(story)
