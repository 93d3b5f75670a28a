"""The report in a real browser: three widths, light and dark, measured and seen.

A script that measures is added to a copy of the page: the page itself has none. The browser has a
folder of its own, asks nobody for anything, and is skipped where there is none.
"""

import base64
import json
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest
from test_mill_report import faulty, lake_of

from rumormill.spark.line_plot import LEAST_WIDTH
from rumormill.spark.page import page
from rumormill.spark.report import collect

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip

MEASURE = """<script>
const boxes = [...document.querySelectorAll("figure")].map(figure => {
  const own = figure.getBoundingClientRect(), plot = figure.firstChild.getBoundingClientRect();
  const texts = [...figure.querySelectorAll("text")];
  const frame = figure.firstChild;
  return {
    name: texts[0].textContent, width: plot.width, unused: own.height - plot.height,
    type: Math.min(...texts.map(
      text => parseFloat(getComputedStyle(text).fontSize) * plot.width / 640)),
    outside: texts.filter(text => { const box = text.getBoundingClientRect();
      return box.left < plot.left - 1 || box.right > plot.right + 1
        || box.top < plot.top - 1 || box.bottom > plot.bottom + 1; }).map(t => t.textContent),
  };
});
const found = {boxes, inner: window.innerWidth, wide: document.documentElement.scrollWidth,
  ground: getComputedStyle(document.body).backgroundColor};
document.body.innerHTML = "<pre id=found>" + btoa(unescape(encodeURIComponent(
  JSON.stringify(found)))) + "</pre>";
</script></body>"""


def browse(folder: Path, file: Path, width: int, *more: str) -> bytes:
    """Open a page in a window of its own; return what the browser printed."""
    profile = folder / f"profile-{len(list(folder.iterdir()))}"
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},1400"]
    done = subprocess.run(
        [*command, *more, file.as_uri()], capture_output=True, timeout=240, check=True
    )
    return done.stdout


def first_pixel(png: bytes) -> tuple[int, ...]:
    """The colour in the upper left corner."""
    size = struct.unpack(">II", png[16:24])
    assert size[1] == 1400
    chunks, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            chunks += png[place + 8 : place + 8 + length]
        place += length + 12
    return tuple(zlib.decompress(chunks)[1:4])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything that a page can have."""
    folder = tmp_path_factory.mktemp("report")
    whole = collect(lake_of(folder / "a"))
    stormy = faulty(folder / "b")
    for name in ("runs", "configurations", "best", "topics", "scenarios", "dag_health"):
        whole[name] += stormy[name]
    for run in whole["runs"]:
        run |= {"entitled": 100, "missing": 0, "published": 10}
    made = {"date": "2026-01-01", "command": "rumormill sweep grid.toml", "versions": "rumormill 1"}
    file = folder / "report.html"
    file.write_text(page(whole, "A report with everything", made))
    return file


@pytest.mark.parametrize("width", [500, 900, 1400])
def test_the_page_is_readable_at_every_width(report: Path, tmp_path: Path, width: int) -> None:
    """Type of twelve pixels, nothing cut off, no empty room in a box, no page that runs over."""
    copy = tmp_path / "measured.html"
    copy.write_text(report.read_text().replace("</body>", MEASURE))
    text = browse(tmp_path, copy, width, "--dump-dom").decode()
    coded = re.search(r"<pre id=.found.>([A-Za-z0-9+/=]+)</pre>", text)
    assert coded is not None, text[:500]
    found: dict[str, Any] = json.loads(base64.b64decode(coded[1]))
    assert found["inner"] == width
    assert found["wide"] <= width, "tables and plots roll within their boxes"
    assert len(found["boxes"]) >= 12
    for box in found["boxes"]:
        assert box["width"] >= LEAST_WIDTH, box
        assert box["type"] >= 12, box
        assert box["outside"] == [], box
        assert box["unused"] <= 4, box


@pytest.mark.parametrize(("scheme", "darkest"), [("0", 60), ("1", 255)])
def test_the_page_is_light_or_dark_as_its_reader_likes(
    report: Path, tmp_path: Path, scheme: str, darkest: int
) -> None:
    """Seen in a picture of it."""
    picture = tmp_path / "page.png"
    browse(
        tmp_path, report, 900, f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={picture}",
    )  # fmt: skip
    colour = first_pixel(picture.read_bytes())
    assert max(colour) <= darkest
    assert (min(colour) >= 240) == (scheme == "1")
