"""The documentation as data: its pages, their code blocks, and what is said above a block.

A comment directly above a block says how it is run. Nobody sees it on the page:

    <!-- not run: REASON -->             it needs what a test does not have, or minutes
    <!-- runs on -->                     it goes on in a terminal of its own until the page ends
    <!-- fails -->                       its exit code is not 0
    <!-- prints -->                      not a program: what the block before it printed
    <!-- then the terminal prints -->    not a program: what the last block that runs on says now
    <!-- file: NAME -->                  not a program: a file that later blocks find

and anywhere on a page, `<!-- its Python blocks are one program -->`, and `<!-- set-up: ... -->`
with a Python program that the reader does not see: it makes what a block takes for granted. In
what is printed, `…` stands for anything. Signatures, which are no programs, are `pyi`.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = frozenset({"python", "pyi", "sh", "toml", "json", ""})
NOT_RUN = "not run:"
RUNS_ON = "runs on"
FAILS = "fails"
PRINTS = "prints"
TERMINAL_PRINTS = "then the terminal prints"
FILE = "file:"
MARKS = (NOT_RUN, RUNS_ON, FAILS, PRINTS, TERMINAL_PRINTS, FILE)
_ONE_PROGRAM = "<!-- its Python blocks are one program -->"

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL
)
_SET_UP = re.compile(r"^<!-- set-up:\n(?P<text>.*?)^-->$", re.MULTILINE | re.DOTALL)
_MARKS_ABOVE = re.compile(r"(?:<!--(?:(?!-->).)*-->\s*)+\Z", re.DOTALL)
_MARK = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)


class Block(NamedTuple):
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str
    marks: tuple[str, ...]

    @property
    def place(self) -> str:
        """Where it stands, as an editor takes it."""
        return f"{self.page}:{self.line}"

    def mark(self, name: str) -> str | None:
        """What stands behind a mark; None where there is no such mark."""
        for mark in self.marks:
            if mark.startswith(name):
                return mark.removeprefix(name).strip()
        return None

    @property
    def is_program(self) -> bool:
        """Whether it has to be run."""
        data = self.mark(NOT_RUN) is not None or self.mark(FILE) is not None
        return self.language in {"python", "sh"} and not data

    @property
    def uses_spark(self) -> bool:
        """Whether it shares the one session that tests have."""
        return self.language == "python" and self.is_program and "spark" in self.text


def rows_of(page: str, first: str) -> list[list[str]]:
    """The cells of all tables of a page that begin with this column."""
    lines = (ROOT / page).read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    return [row for row in found if row[0] != first]


def paths_in(cell: str) -> list[str]:
    """What stands in a cell as code and is a path."""
    return [name for name in re.findall(r"`([^`]+)`", cell) if ".py" in name]


def is_a_test(name: str) -> bool:
    """Whether there is a file of tests, and in it the test, by `folder/file.py::test`."""
    path, _, test = name.partition("::")
    text = (ROOT / "tests" / path).read_text()
    return not test or bool(re.search(rf"def {test}\(", text))


def pages() -> list[str]:
    """Every page of the documentation, the front page first, as paths in the repository."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    text = (ROOT / page).read_text()
    found = []
    end = 0  # of the block before: what belongs to this one stands between them
    for match in _FENCE.finditer(text):
        above = _MARKS_ABOVE.search(text, end, match.start())
        end = match.end()
        said = _MARK.findall(_SET_UP.sub("", above[0]).replace(_ONE_PROGRAM, "")) if above else []
        marks = tuple(" ".join(each.split()) for each in said)
        indent = len(match["indent"])
        content = "".join(line[indent:] for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(page, line, match["language"].strip(), content, marks))
    for match in _SET_UP.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(page, line, "python", match["text"], ()))
    return sorted(found, key=lambda block: block.line)


def is_one_program(page: str) -> bool:
    """Whether the page's Python blocks continue each other."""
    return _ONE_PROGRAM in (ROOT / page).read_text()


def commands(block: Block) -> list[str]:
    """The commands of a shell block: lines, joined where they end in a backslash."""
    joined = re.sub(r"\\\n\s*", " ", block.text)
    lines = (line.strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
