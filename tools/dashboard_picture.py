"""Make docs/pictures/dashboard.png: an event on its way through a simulated mesh.

A run is simulated, its trace written as a still, and the still opened in a headless Chromium. The
same seed gives the same picture, but for the fonts of the machine.
"""

import argparse
import asyncio
import struct
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from chromium import find_chromium, page  # noqa: E402 (the driver of the browser tests)

RUN = (
    "--protocol", "gossipsub", "--peers", "40", "--topics", "1", "--messages", "40",
    "--rate", "2", "--latency", "planetlab", "--seed", "7", "--set", "D=5",
)  # fmt: skip
SIZE = (1400, 800)
MOST = 150_000
"""Bytes of a picture in the README."""
PART = 0.2
"""Of the event's time, when the picture is taken."""


def still(folder: Path) -> Path:
    """Simulate, and write what was seen."""
    trace, made = folder / "gossipsub.ndjson", folder / "still.html"
    for arguments in (
        ["sim", *RUN, "--trace", str(trace)],
        ["dashboard", str(trace), "--export", str(made)],
    ):
        command = [sys.executable, "-m", "rumormill", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return made


async def take(program: str, folder: Path, made: Path, picture: Path, scheme: str) -> None:
    """Open the still, choose an event and stop it half way."""
    async with page(program, folder / "profile", made.as_uri()) as shown:
        await shown.look(SIZE[0], scheme, height=SIZE[1])
        await shown.evaluate("location.hash = '#/overlay?hide=connected'")
        await shown.until_there("canvas[aria-busy=false]")
        chosen = "document.querySelector('[aria-label=Event]')"
        await shown.until_true(f"{chosen}.options.length > 1")
        await shown.evaluate(
            f"{chosen}.selectedIndex = 3; {chosen}.dispatchEvent(new Event('change'))"
        )
        await shown.until(".stack .small", "peers have it")
        at = "document.querySelector('[aria-label^=Time]')"
        await shown.evaluate(
            f"{at}.value = {1000 * PART}; {at}.dispatchEvent(new Event('input'));"
            "new Promise((done) => setTimeout(done, 500))"
        )
        await shown.picture(picture)


def pixels(png: bytes) -> list[list[bytes]]:
    """The rows of a PNG of eight bits a colour, without its filters (PNG, section 9)."""
    width, _, _, kind = struct.unpack(">IIBB", png[16:26])
    size = {2: 3, 6: 4}[kind]
    place, data = 8, b""
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += length + 12
    raw, above, rows = zlib.decompress(data), bytearray(width * size), []
    for start in range(0, len(raw), width * size + 1):
        line = bytearray(raw[start + 1 : start + 1 + width * size])
        for at, value in enumerate(line):
            left, corner = (line[at - size], above[at - size]) if at >= size else (0, 0)
            line[at] = value + _predicted(raw[start], left, above[at], corner) & 255
        rows.append([bytes(line[at : at + 3]) for at in range(0, len(line), size)])
        above = line
    return rows


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:  # Paeth: whichever is nearest to left + up - corner
        guess = left + up - corner
        return min((left, up, corner), key=lambda each: abs(guess - each))
    return (0, left, up, (left + up) // 2)[kind]


def packed(png: bytes) -> bytes:
    """The same picture in its 256 most frequent colours: a third of the bytes."""
    rows = pixels(png)
    counted = Counter(colour for row in rows for colour in row)
    chosen = [colour for colour, _ in counted.most_common(256)]

    def nearest(colour: bytes) -> int:
        far = [sum((a - b) ** 2 for a, b in zip(colour, each, strict=True)) for each in chosen]
        return far.index(min(far))

    index = {colour: nearest(colour) for colour in counted}
    data = b"".join(b"\0" + bytes(index[colour] for colour in row) for row in rows)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0),
        b"PLTE": b"".join(chosen),
        b"IDAT": zlib.compress(data, 9),
        b"IEND": b"",
    }
    return png[:8] + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks.items()
    )


def main() -> int:
    """Make it, and say how large it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    usual = ROOT / "docs/pictures/dashboard.png"
    parser.add_argument("picture", nargs="?", type=Path, default=usual)
    parser.add_argument("--scheme", choices=["light", "dark"], default="dark")
    options = parser.parse_args()
    program = find_chromium()
    if program is None:
        print("chromium is not installed", file=sys.stderr)  # noqa: T201
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(take(program, folder, still(folder), options.picture, options.scheme))
    options.picture.write_bytes(packed(options.picture.read_bytes()))
    size = options.picture.stat().st_size
    print(f"{options.picture}: {size:,} bytes")  # noqa: T201
    return 0 if size <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
