"""The pictures of the documentation are what runs of today look like."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from doc_pages import ROOT, pages

TOOL = ROOT / "tools" / "draw_pictures.py"
DRAWN = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


def test_every_picture_is_what_its_run_gives() -> None:
    """If not: make pictures. One seed gives one file, to the byte."""
    assert DRAWN
    drawn = subprocess.run([sys.executable, str(TOOL), "--check"], check=False)
    assert drawn.returncode == 0


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_picture_is_small_and_can_be_read(path: Path) -> None:
    """A title, letters of 12 px and more, a dark side, nothing loaded; and a page shows it."""
    text = path.read_text()
    assert len(text) < 30_000
    assert "prefers-color-scheme:dark" in text
    root = ElementTree.fromstring(text)
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text
    assert {int(size) for size in re.findall(r"(\d+)px", text)} == {12, 14}
    assert not re.search(r"href=|url\((?!#)|<image|<script", text)
    assert any(f"pictures/{path.name})" in (ROOT / page).read_text() for page in pages())
