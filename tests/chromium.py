"""A headless Chromium that a test drives by the DevTools protocol, and a server for its pages.

Every wait has an end, and an exception in the page is an error of the test; where a test asks for
it, so is everything that the browser's console calls an error.
"""

import asyncio
import base64
import functools
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

PATIENCE = 30.0
"""Seconds for one thing to happen: no measure, only an end to waiting for what cannot come."""
_LARGEST = 64 << 20
_LOOK_INTERVAL = 0.05


def find_chromium() -> str | None:
    """Return the program, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing on the console."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on the loopback; give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Page:
    """One page that is open in a browser."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket = socket
        self._session = session
        self._number = 1000
        self.exceptions: list[str] = []
        """What went wrong in the page and was caught by nobody."""
        self.console: list[str] = []
        """What the console calls an error, once `listen` was called."""

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command and return what it returns."""
        self._number += 1
        number = self._number
        await self._socket.send(
            json.dumps(
                {
                    "id": number,
                    "sessionId": self._session,
                    "method": method,
                    "params": parameters,
                }
            )
        )
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = json.loads(await self._socket.recv())
                self._hear(answer)
                if answer.get("id") == number:
                    assert "error" not in answer, answer
                    result: dict[str, Any] = answer["result"]
                    return result

    def _hear(self, said: dict[str, Any]) -> None:
        """Keep what is wrong; only a page whose log is enabled tells of more than exceptions."""
        what = said.get("params", {})
        match said.get("method"):
            case "Runtime.exceptionThrown":
                self.exceptions.append(json.dumps(what["exceptionDetails"]))
            case "Log.entryAdded" if what["entry"]["level"] == "error":
                self.console.append(json.dumps(what["entry"]))
            case "Runtime.consoleAPICalled" if what["type"] in ("error", "assert"):
                self.console.append(json.dumps(what["args"]))

    async def evaluate(self, expression: str) -> Any:
        """Evaluate an expression in the page; of a promise, what it becomes."""
        answer = await self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def text(self, selector: str) -> str:
        """What an element says to its reader; nothing if it is not there."""
        found = await self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText")
        return found or ""

    async def texts(self, selector: str) -> list[str]:
        """What all such elements say."""
        chosen = f"document.querySelectorAll({json.dumps(selector)})"
        found: list[str] = await self.evaluate(f"Array.from({chosen}, (each) => each.innerText)")
        return found

    async def fill(self, form: str, field: str, value: str) -> None:
        """Type into a field of a form and press its button."""
        await self.evaluate(
            f"document.querySelector({json.dumps(field)}).value = {json.dumps(value)};"
            f"document.querySelector({json.dumps(form + ' button')}).click()"
        )

    async def listen(self) -> None:
        """Hear what the browser itself complains of: refused scripts, styles and addresses."""
        await self.command("Log.enable")

    async def look(
        self, width: int, scheme: str, *, height: int = 900, still: bool = False
    ) -> None:
        """Give the page a width and the reader's wishes."""
        await self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if still else ""}
        features = [{"name": "prefers-color-scheme", "value": scheme}, motion]
        await self.command("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str) -> None:
        """Press a key, as its event names it."""
        text = key if len(key) == 1 else {"Enter": "\r"}.get(key, "")
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowRight": 39}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            await self.command(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=text,
                windowsVirtualKeyCode=code,
            )

    async def picture(self, path: Path) -> None:
        """Keep what is seen as a PNG."""
        answer = await self.command("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))

    async def until_true(self, expression: str) -> None:
        """Wait until an expression is true in the page."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.evaluate(expression):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_INTERVAL)
        except TimeoutError:
            problems = f"{self.exceptions} {self.console}"
            raise AssertionError(f"never true: {expression}; {problems}") from None

    async def until_there(self, selector: str) -> None:
        """Wait until there is such an element."""
        await self.until_true(f"document.querySelector({json.dumps(selector)}) !== null")

    async def until(self, selector: str, part: str) -> None:
        """Wait until an element says something."""
        said = ""
        try:
            async with asyncio.timeout(PATIENCE):
                while part not in (said := await self.text(selector)):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_INTERVAL)
        except TimeoutError:
            problem = await self.text("#problem")
            raise AssertionError(
                f"{selector} never said {part!r} but {said!r}; {problem} {self.exceptions}"
            ) from None


@asynccontextmanager
async def page(program: str, folder: Path, address: str) -> AsyncIterator[Page]:
    """Open an address in a browser of its own, whose files lie in a folder."""
    options = ["--headless=new", "--remote-debugging-port=0", "--disable-gpu", "--no-first-run"]
    options += ["--disable-dev-shm-usage", "--disable-background-networking", "--disable-quic"]
    options += ["--disable-component-update", "--disable-sync", "--hide-scrollbars"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # Chromium refuses to be root's with one
    process = await asyncio.create_subprocess_exec(
        program,
        *options,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = folder / "DevToolsActivePort"
        async with asyncio.timeout(PATIENCE):
            while not port.exists() or port.read_text().count("\n") < 1:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_INTERVAL)
        number, path = port.read_text().split("\n")[:2]
        async with connect(f"ws://127.0.0.1:{number}{path}", max_size=_LARGEST) as socket:
            opened = await _open(socket, address)
            yield opened
            assert not opened.exceptions, opened.exceptions
            await socket.send(json.dumps({"id": 3, "method": "Browser.close"}))
            await asyncio.wait_for(process.wait(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _open(socket: ClientConnection, address: str) -> Page:
    async def asked(number: int, method: str, **parameters: Any) -> dict[str, Any]:
        await socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        async with asyncio.timeout(PATIENCE):
            while (answer := json.loads(await socket.recv())).get("id") != number:
                pass
        result: dict[str, Any] = answer["result"]
        return result

    target = await asked(1, "Target.createTarget", url="about:blank")
    attached = await asked(2, "Target.attachToTarget", targetId=target["targetId"], flatten=True)
    opened = Page(socket, attached["sessionId"])
    await opened.command("Runtime.enable")
    await opened.command("Page.navigate", url=address)
    return opened
