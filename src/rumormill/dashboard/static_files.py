"""The files of the page: package data, read once when a dashboard opens.

The rule: what is asked for is looked up by its name among those, and no path is ever made of it.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

INDEX: Final = "index.html"
MARKER: Final = "<!--overview-->"
"""Where the index has the overview for those without JavaScript."""

_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HTML: Final = _KINDS[".html"]


def page_files() -> dict[str, tuple[bytes, str]]:
    """Every file of the page by its name below `static`, with its content type."""
    found: dict[str, tuple[bytes, str]] = {}
    _gather(files("rumormill.dashboard").joinpath("static"), "", found)
    return found


def _gather(folder: Traversable, prefix: str, found: dict[str, tuple[bytes, str]]) -> None:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            _gather(each, f"{prefix}{each.name}/", found)
        elif kind := _KINDS.get(f".{each.name.rpartition('.')[2]}"):
            found[prefix + each.name] = (each.read_bytes(), kind)
