"""The files of the page: package data, read once when a dashboard opens.

The rule: what is asked for is looked up by its name among those, and no path is ever made of it.
The page's modules are joined to one, so that a browser asks for all of them at once and not one
behind the other; stills need that too, since browsers load no modules from files.

A still is the page with its scripts, styles and data in one file that needs no server. Its rule:
the only script that runs is the page's own. Its hash stands in the policy, and data cannot end the
block that it is in.
"""

import gzip
import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

import msgspec

INDEX: Final = "index.html"
MAIN: Final = "app.js"

_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HTML: Final = _KINDS[".html"]
_IMPORT: Final = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_SCRIPT: Final = re.compile(r'<script (?:defer|type="module") src="static/([^"]+)"></script>\n')
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="static/([^"]+)">\n')
_SERVED: Final = re.compile(r'<link rel="icon"[^>]*>\n|<noscript>.*</noscript>\n')
"""What only a server has."""


def page_files() -> dict[str, str]:
    """Every file of the page by its name below `static`."""
    found: dict[str, str] = {}
    _gather(files("rumormill.dashboard").joinpath("static"), "", found)
    return found


def _gather(folder: Traversable, prefix: str, found: dict[str, str]) -> None:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            _gather(each, f"{prefix}{each.name}/", found)
        elif _kind(each.name):
            found[prefix + each.name] = each.read_text(encoding="utf-8")


def _kind(name: str) -> str:
    return _KINDS.get(f".{name.rpartition('.')[2]}", "")


class ServedFiles:
    """What a browser is given: the page's files, with its modules as one."""

    def __init__(self) -> None:
        found = page_files()
        modules = {name for name in found if name.endswith(".js") and "/" not in name}
        served = {name: text for name, text in found.items() if name not in modules}
        self._bodies = {
            name: text.encode() for name, text in {**served, MAIN: joined(found)}.items()
        }
        self._packed: dict[str, bytes] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def body(self, name: str, *, packed: bool) -> tuple[bytes, str]:
        """A file and its content type; packed by gzip, once, for those who can unpack it."""
        if packed and name not in self._packed:
            self._packed[name] = gzip.compress(self._bodies[name], mtime=0)
        return (self._packed if packed else self._bodies)[name], _kind(name)


def joined(texts: Mapping[str, str]) -> str:
    """The modules as one, each behind those that it imports from: a function that returns what it
    exports."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        done[name] = ""
        for found in _IMPORT.finditer(texts[name]):
            add(found[2])
        del done[name]
        body = _IMPORT.sub(r'const {\1} = modules["\2"];\n', texts[name])
        exported = ", ".join(found[1] for found in _EXPORT.finditer(body))
        body = _EXPORT.sub("", body)
        done[name] = f'modules["{name}"] = (() => {{\n{body}return {{ {exported} }};\n}})();\n'

    add(MAIN)
    return "const modules = {};\n" + "".join(done.values())


def still_page(snapshot: Mapping[str, Any]) -> str:
    """The page that shows a snapshot; `journeys` in it are the events that it can play."""
    found = page_files()
    allowed: list[str] = []

    def inlined(tag: str, text: str) -> str:
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        allowed.append(f"{tag}-src 'sha256-{digest}'")
        return text

    def script(tag: re.Match[str]) -> str:
        name = tag[1]
        if name == MAIN:
            return f'<script type="module">{inlined("script", joined(found))}</script>\n'
        return f"<script>{inlined('script', found[name])}</script>\n"

    def style(tag: re.Match[str]) -> str:
        return f"<style>{inlined('style', found[tag[1]])}</style>\n"

    page = _SERVED.sub("", _STYLE.sub(style, _SCRIPT.sub(script, found[INDEX])))
    data = msgspec.json.encode(snapshot, enc_hook=str).decode().replace("<", "\\u003c")
    block = f'<script type="application/json" id="snapshot">{data}</script>\n</body>'
    head = f'<meta charset="utf-8">\n{_policy(allowed)}'
    return page.replace('<meta charset="utf-8">', head, 1).replace("</body>", block, 1)


def _policy(allowed: list[str]) -> str:
    kinds: dict[str, list[str]] = {}
    for each in allowed:
        kind, source = each.split(" ")
        kinds.setdefault(kind, []).append(source)
    listed = "; ".join(f"{kind} {' '.join(sources)}" for kind, sources in kinds.items())
    content = f"default-src 'none'; base-uri 'none'; {listed}"
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'
