"""The documentation's programs run, and do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("docs/python-api.md",)
"""Documents whose Python blocks are whole programs."""

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Every Python block, under a name that says where it stands."""
    found = []
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 2
            # Empty lines in front make the line numbers of a traceback those of the document.
            found.append((f"{document}:{line}", "\n" * (line - 1) + match.group(1)))
    return found


@pytest.mark.parametrize(("place", "program"), blocks(), ids=[place for place, _ in blocks()])
def test_a_documented_program_runs(place: str, program: str, tmp_path: Path) -> None:
    """It ends without an error and without a complaint, in an empty directory."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), place


def test_every_document_has_programs() -> None:
    """A document that lost its blocks would otherwise pass."""
    for document in DOCUMENTS:
        assert any(place.startswith(document) for place, _ in blocks())


class Chat:
    """A running `examples/chat.py`."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "chat.py"), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT / "src")},
        )
        self.ticket = self.hears().removeprefix("ticket: ")

    def says(self, line: str) -> None:
        """Type a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hears(self) -> str:
        """The next line on the screen."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def leaves(self) -> int:
        """End the input and wait."""
        self.process.communicate(timeout=60)
        return self.process.returncode


def test_two_terminals_chat(tmp_path: Path) -> None:
    """Both hear each other, and who comes back to a home sees the last lines of the room."""
    ann = Chat("--name", "ann", "--home", str(tmp_path / "ann"))
    bob = Chat("--name", "bob", "--join", ann.ticket)
    try:
        bob.says("hello")
        assert ann.hears() == "bob: hello"
        ann.says("welcome")
        assert bob.hears() == "ann: welcome"
    finally:
        assert [bob.leaves(), ann.leaves()] == [0, 0]
    again = Chat("--name", "ann", "--home", str(tmp_path / "ann"))
    try:
        assert again.hears() == "bob: hello"
    finally:
        assert again.leaves() == 0
