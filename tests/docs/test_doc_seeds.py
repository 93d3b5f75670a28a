"""`docs/seeds.md` is true: the files and tests that it names exist, and each row says something."""

import re

import pytest
from doc_pages import ROOT

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "seeds.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| mechanism")
]


def named(cell: str) -> list[str]:
    """What stands in a cell as code and is a path."""
    return [name for name in re.findall(r"`([^`]+)`", cell) if ".py" in name]


def test_every_row_has_its_four_cells() -> None:
    assert len(ROWS) > 80
    assert [row[0] for row in ROWS if len(row) != 4] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_a_row_names_exists(row: list[str]) -> None:
    """Files of the source; files of tests, and in them the test. Else it says what is open, or
    where it is told."""
    _, where, shown, differs = row
    assert differs
    for name in named(where):
        assert (ROOT / "src" / "rumormill" / name).is_file(), name
    for name in [*named(shown), *named(differs)]:
        path, _, test = name.partition("::")
        text = (ROOT / "tests" / path).read_text()
        assert not test or re.search(rf"def {test}\(", text), name
    if not named(where) or not named(shown):
        assert "**Open**" in differs or "](" in differs
