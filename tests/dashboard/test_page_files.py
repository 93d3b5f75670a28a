"""The files of the page: their weight, their origin, what they may not say, and how they are read.

A browser is not needed for any of it; `test_dashboard_browser` looks at the page itself.
"""

import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rumormill.dashboard.static_files import INDEX, ServedFiles, joined, page_files, still_page

ROOT = Path(__file__).resolve().parents[2]
FILES = {name: text.encode() for name, text in page_files().items()}
OURS = {name: text for name, text in page_files().items() if not name.startswith("vendor/")}
SCRIPTS = sorted(name for name in OURS if name.endswith(".js"))
MOST = 150_000
MOST_PACKED = 50_000
LEAST_CONTRAST = 4.5
FORBIDDEN = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "srcdoc",
    "eval(", "Function(", "javascript:", "localStorage", "cssText", "setAttribute(\"style",
)  # fmt: skip
"""Ways to make markup or code of text, and to keep something behind the reader's back."""


def test_the_page_is_light() -> None:
    """All files together, and packed as they are served."""
    assert sum(map(len, FILES.values())) <= MOST
    served = ServedFiles()
    assert sum(len(served.body(name, packed=True)[0]) for name in served) <= MOST_PACKED
    assert sum(len(served.body(name, packed=False)[0]) for name in served) <= MOST


def test_every_vendored_file_is_named_with_its_hash() -> None:
    """And nothing is named that is not there."""
    notice = (ROOT / "NOTICE").read_text()
    named = dict(re.findall(r"^- ([\w.-]+\.js) [\d.]+\n  ([0-9a-f]{64})$", notice, re.MULTILINE))
    there = {
        name.removeprefix("vendor/"): hashlib.sha256(body).hexdigest()
        for name, body in FILES.items()
        if name.startswith("vendor/")
    }
    assert named == there


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_make_no_markup_and_ask_nobody_else(name: str) -> None:
    """What comes from outside is text, and the only server is the one that the page came from."""
    text = OURS[name]
    assert [word for word in FORBIDDEN if word in text] == []
    assert "://" not in text
    assert len(text.splitlines()) <= 500


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.scripts.append(data)


def parsed(text: str) -> _Tags:
    """The tags of a page."""
    tags = _Tags()
    tags.feed(text)
    return tags


def test_the_index_names_only_what_is_there_and_has_nothing_inline() -> None:
    """Its policy, `default-src 'self'`, would refuse anything else."""
    index = parsed(OURS[INDEX])
    named = [
        value
        for tag, attributes in index.tags
        for key, value in attributes.items()
        if (key == "src" or (key == "href" and tag == "link")) and value
    ]
    assert {each.removeprefix("static/") for each in named} <= FILES.keys()
    assert not any(key.startswith("on") or key == "style" for _, a in index.tags for key in a)
    assert "".join(index.scripts).strip() == ""


def colours(block: str) -> dict[str, str]:
    """The variables of a block of styles."""
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_can_be_read_in_light_and_dark() -> None:
    """Every colour of text on every ground; lines and bars stand out too."""
    light, dark = OURS["style.css"].split("@media (prefers-color-scheme: dark)")[:2]
    for theme in (colours(light.split("}")[0]), colours(dark.split("}")[0])):
        low = {
            (text, ground): ratio
            for text in ("ink", "soft", "accent", "good", "bad", "warn")
            for ground in ("ground", "card", "faint")
            if (ratio := contrast(theme[text], theme[ground])) < LEAST_CONTRAST
        }
        assert low == {}
        assert contrast(theme["on-accent"], theme["accent"]) >= LEAST_CONTRAST
        assert min(contrast(theme[f"c{n}"], theme["card"]) for n in range(1, 7)) >= 3


def test_modules_can_be_joined() -> None:
    """Each once, behind those that it imports from, with no import or export left."""
    text = joined({name: OURS[name] for name in SCRIPTS})
    order = re.findall(r'^modules\["([\w-]+\.js)"\] = ', text, re.MULTILINE)
    assert sorted(order) == SCRIPTS
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    for found in re.finditer(r'= modules\["([\w-]+\.js)"\];', text):
        user = re.findall(r'^modules\["([\w-]+\.js)"\] = ', text[: found.start()], re.MULTILINE)
        assert order.index(found[1]) < order.index(user[-1])


HOSTILE = "</script><script>alert(1)</script><!--<script>"


def test_a_still_is_one_file_and_its_data_stay_data() -> None:
    """Hostile text cannot end its block; the policy allows the page's own scripts by their hash."""
    snapshot = {"source": {"title": HOSTILE}, "topics": {"rows": [{"name": HOSTILE}]}}
    page = still_page(snapshot)
    assert "</script><script>alert" not in page
    assert not re.search(r'(src|href)="static/', page)
    block = re.search(r'<script type="application/json" id="snapshot">(.*?)</script>', page)
    assert block is not None
    assert json.loads(block[1]) == snapshot
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]
    run = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", page, re.DOTALL)
    assert len(run) == 1 + sum(name.startswith("vendor/") for name in FILES)
    hashes = re.findall(r"'sha256-[^']+'", policy[1].partition("script-src")[2].partition(";")[0])
    assert len(hashes) == len(run)
