"""A still: the page with its scripts, styles and data in one file that needs no server.

The rule: the only script that runs is the page's own. Its hash stands in the policy, and data
cannot end the block that it is in.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rumormill.dashboard.static_files import INDEX, MAIN, joined, page_files

_SCRIPT: Final = re.compile(r'<script (?:defer|type="module") src="static/([^"]+)"></script>\n')
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="static/([^"]+)">\n')
_SERVED: Final = re.compile(r'<link rel="icon"[^>]*>\n|<noscript>.*</noscript>\n')
"""What only a server has."""


def still_page(snapshot: Mapping[str, Any]) -> str:
    """The page that shows a snapshot; `journeys` in it are the events that it can play."""
    files = page_files()
    allowed: list[str] = []

    def inlined(tag: str, text: str) -> str:
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        allowed.append(f"{tag}-src 'sha256-{digest}'")
        return text

    def script(found: re.Match[str]) -> str:
        name = found[1]
        if name == MAIN:
            return f'<script type="module">{inlined("script", joined(files))}</script>\n'
        return f"<script>{inlined('script', files[name])}</script>\n"

    def style(found: re.Match[str]) -> str:
        return f"<style>{inlined('style', files[found[1]])}</style>\n"

    page = _SERVED.sub("", _STYLE.sub(style, _SCRIPT.sub(script, files[INDEX])))
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
