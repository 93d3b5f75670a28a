"""The conformance tables say the truth: the tests exist, bear go's names, and are as many."""

import ast
import functools
import re
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "docs" / "conformance").glob("*.md"))
ROW = re.compile(r"^\| `((?:Test|Fuzz)\w+)` \| (.+) \|$")
FILE = re.compile(r"`(\S+_test\.go)`")
COUNT = re.compile(r"^\| `(\S+_test\.go)` \| (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) % \|$")
NOT_APPLICABLE = "not applicable: "


class Row(msgspec.Struct):
    """A test of go's, and what a table says of it."""

    table: str
    section: str
    go: str
    ours: str

    @property
    def applies(self) -> bool:
        return not self.ours.startswith(NOT_APPLICABLE)

    @property
    def names(self) -> list[str]:
        return re.findall(r"`(test_\w+)`", self.ours)


def rows() -> list[Row]:
    found = []
    for path in TABLES:
        section = ""
        for line in path.read_text().splitlines():
            if match := ROW.match(line):
                found.append(Row(path.name, section, match[1], match[2]))
            elif not line.startswith("|") and (file := FILE.search(line)):
                section = file[1]
    return found


@functools.cache
def our_tests() -> dict[str, str]:
    """The docstrings of all tests, by name."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name] = ast.get_docstring(node) or ""
    return found


ROWS = rows()


def plain(name: str) -> str:
    return name.replace("_", "").lower().removeprefix("test")


def test_there_are_tables() -> None:
    """What follows is about something."""
    assert len(ROWS) > 100
    assert len({row.go for row in ROWS}) == len(ROWS), "no test of go's stands in two tables"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.go)
def test_every_row_names_tests_that_exist(row: Row) -> None:
    """A row names tests of ours, the first after go's, or says why there is none."""
    if not row.applies:
        assert row.names == []
        assert len(row.ours) > len(NOT_APPLICABLE)
        return
    assert row.names
    assert [name for name in row.names if name not in our_tests()] == []
    assert plain(row.names[0]).startswith(plain(row.go))


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.table == "gossipsub.md" and row.applies], ids=lambda r: r.go
)
def test_router_tests_say_whose_claim_they_check(row: Row) -> None:
    """The docstring of each router test names go's test; those of the splitter are named alike."""
    (name,) = row.names
    says = our_tests()[name]
    assert name.startswith(("test_fragment_rpc", "test_fuzz_rpc")) or f"go: {row.go}." in says


def test_the_count_is_right() -> None:
    """The numbers of the summary are those of the tables, and no table is left out."""
    summary = (ROOT / "docs" / "conformance" / "gossipsub.md").read_text().splitlines()
    counted = {}
    applying_in_all = made_in_all = 0
    for match in filter(None, map(COUNT.match, summary)):
        file, table, tests, applicable, ours, share = match.groups()
        listed = [row for row in ROWS if row.section == file and row.table == table]
        applying = [row for row in listed if row.applies]
        made = [row for row in applying if row.names]
        assert (int(tests), int(applicable), int(ours)) == (len(listed), len(applying), len(made))
        assert int(share) == 100 * len(made) // len(applying)
        assert int(share) >= 90
        counted[file] = len(listed)
        applying_in_all += len(applying)
        made_in_all += len(made)
    assert sum(counted.values()) == len(ROWS)
    together = (
        f"Together {len(ROWS)} tests, of which {applying_in_all} apply; {made_in_all} of these"
    )
    assert any(line.startswith(together) for line in summary)
