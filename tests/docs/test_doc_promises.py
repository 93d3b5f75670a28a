"""`docs/promises.md` is true: each row says where it is told, and names tests that exist."""

import pytest
from doc_pages import is_a_test, paths_in, rows_of

ROWS = rows_of("docs/promises.md", "you may expect")


def test_every_row_has_its_four_cells() -> None:
    assert len(ROWS) > 40
    assert [row[0] for row in ROWS if len(row) != 4] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_a_row_names_exists(row: list[str]) -> None:
    """A section, which `test_doc_links.py` follows; one test by name, or several; limits."""
    _, told, shown, limits = row
    assert "](" in told
    assert limits
    assert paths_in(shown)
    for name in paths_in(shown):
        assert "::" in name
        assert is_a_test(name), name
