"""`docs/seeds.md` is true: the files and tests that it names exist, and each row says something."""

import pytest
from doc_pages import ROOT, is_a_test, paths_in, rows_of

ROWS = rows_of("docs/seeds.md", "mechanism")


def test_every_row_has_its_four_cells() -> None:
    assert len(ROWS) > 80
    assert [row[0] for row in ROWS if len(row) != 4] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_a_row_names_exists(row: list[str]) -> None:
    """Files of the source; files of tests, and in them the test. Else it says what is open, or
    where it is told."""
    _, where, shown, differs = row
    assert differs
    for name in paths_in(where):
        assert (ROOT / "src" / "rumormill" / name).is_file(), name
    for name in [*paths_in(shown), *paths_in(differs)]:
        assert is_a_test(name), name
    if not paths_in(where) or not paths_in(shown):
        assert "**Open**" in differs or "](" in differs
