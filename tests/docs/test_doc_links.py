"""The documentation builds without a warning, and every link on it leads somewhere."""

import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from doc_pages import ROOT

_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+(?:\([^()]*\))?)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_LOADED = re.compile(
    r"<(?:script|img|link|iframe)[^>]*?(?:src|href)=[\"']?(?:https?:)?//", re.IGNORECASE
)


def documents() -> list[Path]:
    """Every page that people read: the site's, and those at the top of the repository."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def prose(path: Path) -> str:
    """A page without its code, in which brackets mean something else."""
    return _FENCE.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """The names of a page's headings, as hosting sites make them from the text."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(path)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        kept = [
            each for each in text if each in "-_ " or unicodedata.category(each)[0] in "LN"
        ]  # letters and numbers
        name = "".join(kept).replace(" ", "-")
        number = 0
        while (unique := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(unique)
    return found


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_resolve(path: Path) -> None:
    """Files are there, and headings have the names by which they are called."""
    broken = []
    for target in _LINK.findall(_CODE.sub("", prose(path))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        to = (path.parent / name).resolve() if name else path
        if not to.exists() or not to.is_relative_to(ROOT):
            broken.append(target)
        elif anchor and anchor not in anchors(to):
            broken.append(f"{target}: there are {sorted(anchors(to))}")
    assert not broken


def test_the_navigation_has_every_page_once() -> None:
    """A page that is not in it would be built, and found by nobody."""
    named = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    found = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted(found)


def test_the_site_builds_without_warnings_and_loads_nothing(tmp_path: Path) -> None:
    """Strictly: links and anchors that lead nowhere are warnings, and fail the build.

    No page loads a script, a picture or a style from elsewhere: it can be read offline.
    """
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "No issues found" in built.stdout + built.stderr
    pages = sorted((tmp_path / "build" / "docs").rglob("*.html"))
    assert tmp_path / "build" / "docs" / "index.html" in pages
    assert len(pages) > 40
    loading = [page.name for page in pages if _LOADED.search(page.read_text())]
    assert not loading
    code = (tmp_path / "build" / "docs" / "python-api.html").read_text()
    assert '<span class="k">async</span>' in code, "code is highlighted"


def test_the_check_itself_finds_what_is_broken(tmp_path: Path) -> None:
    """Headings become names as on hosting sites: code, punctuation and repetition included."""
    page = tmp_path / "page.md"
    page.write_text("# `[links]`: how, why\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n")
    assert anchors(page) == {"links-how-why", "twice", "twice-1"}
    assert _LOADED.search('<script src="https://elsewhere/x.js">')
    assert not _LOADED.search('<a href="https://elsewhere">')
