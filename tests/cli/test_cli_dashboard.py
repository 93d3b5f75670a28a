"""`rumormill dashboard`, `top`, and `sim --dashboard`: what is printed, served and refused."""

import contextlib
import http.client
import json
import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processes import PATIENCE, RUMORMILL, Terminal, environment, rumormill


class Browser:
    """Asks a page as a browser does, without asyncio."""

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"http://([\d.]+):(\d+)(/\?token=.+)", url)
        assert found is not None, url
        self._host, self._port = found[1], int(found[2])
        self._cookie = ""
        reply = self.ask(found[3])
        assert reply.status == 303
        self._cookie = (reply.getheader("Set-Cookie") or "").partition(";")[0]

    def ask(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE)
        connection.request("GET", path, headers={"Cookie": self._cookie})
        return connection.getresponse()

    def sections(self, query: str) -> Iterator[dict[str, Any]]:
        """What the stream says."""
        reply = self.ask(f"/stream?{query}")
        assert reply.status == 200
        while line := reply.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


@pytest.fixture
def node(home: Path) -> Iterator[Path]:
    """The home of a running node that has published something."""
    with Terminal("node", "--home", home, "--topic", "news") as running:
        running.prints()
        assert rumormill("pub", "news", "hello", "--home", home).returncode == 0
        yield home
        running.stop()


def test_a_running_node_has_a_page_until_ctrl_c(node: Path) -> None:
    """It is printed where; with Ctrl-C it is gone, and the node goes on."""
    with Terminal("dashboard", "--json", "--home", node) as shown:
        browser = Browser(json.loads(shown.prints()[0])["dashboard"])
        found = next(browser.sections("views=topic&topic=news"))
        assert (found["source"]["kind"], found["totals"]["published"]) == ("node", 1)
        assert [row["text"] for row in found["tail"]["rows"]] == ["hello"]
        assert not found["source"]["allow_publish"]
        assert b"</html>" in browser.ask("/").read()
        shown.process.send_signal(signal.SIGINT)
        assert shown.process.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        browser.ask("/")
    assert rumormill("pub", "news", "again", "--home", node).returncode == 0


def test_who_lets_others_in_without_tls_is_told_so(node: Path) -> None:
    """On the loopback nobody is told anything."""
    for host, told in (("127.0.0.1", False), ("0.0.0.0", True)):
        with Terminal("dashboard", "--listen", f"{host}:0", "--home", node) as shown:
            shown.prints()
            shown.stop()
        assert any("without TLS" in line for line in shown.errors) == told


def test_a_dashboard_elsewhere_is_shown_by_its_address(node: Path, tmp_path: Path) -> None:
    """Beside a home, under the name of the file that has it; the token is on no page."""
    here = ("--listen", "127.0.0.1:0", "--home", node)
    with Terminal("dashboard", *here) as far:
        address = far.prints()[0].strip()
        token = address.partition("token=")[2]
        (tmp_path / "east.url").write_text(f"{address}\n")
        with Terminal("dashboard", node, tmp_path / "east.url", *here) as shown:
            browser = Browser(shown.prints()[0].strip())
            found = next(browser.sections("views=topic&topic=news"))
            assert found["source"]["title"] == f"{node.name}, east"
            assert [row["text"] for row in found["tail"]["rows"]] == ["hello"]
            assert token not in json.dumps(found)
            shown.stop()
        page = tmp_path / "one.html"
        assert rumormill("dashboard", address, "--export", page).returncode == 0
        assert token not in page.read_text()
        far.stop()
    gone = rumormill("dashboard", tmp_path / "east.url")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "does not answer" in gone.stderr
    assert token not in gone.stderr


def test_top_tells_once_what_the_page_shows(node: Path) -> None:
    told = json.loads(rumormill("top", "--once", "--json", "--home", node).stdout)
    assert (told["protocol"], told["totals"]["published"]) == ("gossipsub", 1)
    assert [row["name"] for row in told["topics"]] == ["news"]
    screen = rumormill("top", "--once", "--sort", "name", "--home", node).stdout
    assert "news" in screen
    assert "deliveries/s" in screen
    assert "\x1b" not in screen


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (160, "topic a second delivered copies peers mesh next size"),
        (80, "topic a second delivered copies peers mesh next size"),
        (60, "topic a second delivered peers size"),
    ],
)
def test_top_fits_into_a_terminal(node: Path, columns: int, wanted: str) -> None:
    """Of a long name as much as there is room for; every figure and every heading is whole."""
    name = "weather/europe/germany/brandenburg/berlin"
    assert rumormill("pub", name, "x" * 5000, "--home", node).returncode == 0
    ours, theirs = pty.openpty()
    command = (*RUMORMILL, "top", "--once", "--home", str(node))
    narrow = environment() | {"COLUMNS": str(columns)}
    with subprocess.Popen(command, stdout=theirs, env=narrow) as top:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # when nobody has the other end any more
            while piece := os.read(ours, 65536):
                seen += piece
    os.close(ours)
    assert top.returncode == 0
    lines = re.sub(r"\x1b\[[0-9;]*m", "", seen.decode()).splitlines()
    (heads,) = [" ".join(line.split()) for line in lines if line.startswith("topic")]
    assert heads == wanted
    (row,) = [line for line in lines if line.startswith("weather/europe")]
    figures = len(wanted.split()) - 3  # but for the name, the size, and "a second", which is one
    assert re.fullmatch(rf"weather/europe\S*( +\S+){{{figures}}} +5\.\d kB *", row)
    assert all(len(line) <= columns for line in lines)


def test_top_ends_with_q(node: Path) -> None:
    """And the terminal is as it was."""
    ours, theirs = pty.openpty()
    command = (*RUMORMILL, "top", "--interval", "0.2", "--home", str(node))
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment()) as top:
        seen = b""
        while b"news" not in seen:
            seen += os.read(ours, 65536)
        os.write(ours, b"q")
        while b"\x1b[?1049l" not in seen:  # the screen from before
            seen += os.read(ours, 65536)
        assert top.wait() == 0
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_a_trace_is_shown_and_written_as_a_still_picture(tmp_path: Path) -> None:
    trace, page = tmp_path / "run.ndjson", tmp_path / "run.html"
    small = ("--peers", "8", "--messages", "5")
    assert rumormill("sim", *small, "--trace", trace).returncode == 0
    with Terminal("dashboard", trace, "--listen", "127.0.0.1:0") as shown:
        browser = Browser(shown.prints()[0].strip())
        found = next(browser.sections("views=overlay"))
        assert (found["source"]["kind"], found["totals"]["published"]) == ("trace", 5)
        shown.stop()
    assert rumormill("dashboard", trace, "--export", page).returncode == 0
    text = page.read_text()
    assert "<html" in text
    assert found["recent"]["rows"][0]["id"] in text
    assert not re.search(r'(src|href)="(?!#|data:)', text), "it needs no other file"


def test_a_simulation_is_watched_while_it_runs() -> None:
    """It prints the same figures, and leaves the page until Ctrl-C."""
    small = ("sim", "--peers", "8", "--messages", "5", "--seed", "3", "--json")
    plain = json.loads(rumormill(*small).stdout)
    with Terminal(*small, "--dashboard", "127.0.0.1:0") as run:
        told = json.loads(run.prints()[0])
        assert told["trace_hash"] == plain["trace_hash"]
        browser = Browser(run.says("http://").strip())
        for found in browser.sections("views=overview"):
            if found.get("totals", {}).get("published") == 5:
                break
        run.says("the page stays until Ctrl-C")
        assert run.stop(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["dashboard", "nobody"], 1, "start one with `rumormill node --home"),
        (["dashboard", "run.ndjson"], 1, "there is no trace"),
        (["dashboard", "run.ndjson", "."], 2, "homes or traces, not both"),
        (["dashboard", "http://localhost:4030/"], 1, "with its token"),
        (["dashboard", "nothing.url"], 1, "cannot read nothing.url"),
        (["dashboard", "--listen", "nowhere"], 2, "is not HOST:PORT"),
        (["dashboard", "--cert", "x"], 2, "TLS needs both"),
        (["dashboard", "--export", "no/such/page.html"], 2, "cannot be written"),
        (["dashboard", "--lissten", "x"], 2, "did you mean --listen"),
        (["top"], 1, "start one with `rumormill node --home"),
        (["top", "--interval", "0"], 2, "--interval"),
        (["top", "--sort", "colour"], 2, "there is no sort"),
        (["sim", "--dashboard", "nowhere", "--peers", "4"], 2, "is not HOST:PORT"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_sentence(
    arguments: list[str], code: int, said: str, home: Path
) -> None:
    place = [] if arguments[0] == "sim" else ["--home", str(home)]
    done = rumormill(*arguments, *place, cwd=home.parent)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
