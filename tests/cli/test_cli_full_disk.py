"""Verbs that write, on a disk that is full: each says so, and leaves nothing half made."""

from pathlib import Path

import msgspec
import pytest

from small_disk import run_on_small_disk

STORY = """
import contextlib, io, json, os, shutil, sys
from pathlib import Path
from rumormill.cli import main
from rumormill.core.event import Event
from rumormill.log import EventLog
from store_samples import damage

disk, verb = sys.argv[1:]
home, other, ballast = (f"{disk}/{name}" for name in ("home", "other", "ballast"))
BEFORE = {"restore": ("backup", other), "import": ("export", other), "compact": ("retention",)}
RULE = ("--retain", "10events", "--apply")

def say(verb, *words):
    said = io.StringIO()
    rule = RULE if verb == "retention" else ()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(["--home", home, verb, *words, *rule])
    return code, said.getvalue().replace(disk, "")

def fill(left):
    room = os.statvfs(disk)
    file = os.open(ballast, os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(file, 0, room.f_bavail * room.f_frsize - left)
    os.close(file)

def clear():
    for path in (home, other):
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(path)

words = {"backup": [other], "export": [other], "restore": [other, "--replace"], "import": [other]}
for pages in (0, 1, 7, 8, 9, 30, 60, 120, 150, 152, 154, 160, 200, 230, 400):
    clear()
    with EventLog(home) as log:
        events = [Event("t", os.urandom(1500), b"me", b"%d" % n, received=1.0) for n in range(300)]
        log.append(events).result()
    if verb in BEFORE:
        first = BEFORE[verb]
        assert say(*first)[0] == 0
    if verb == "import":
        shutil.rmtree(home)
    if verb == "repair":
        damage(Path(home), 290, topic="t")
    before = set(os.listdir(disk)), set(os.listdir(home)) if os.path.isdir(home) else set()
    fill(pages * 4096)
    code, said = say(verb, *words.get(verb, []))
    os.unlink(ballast)
    kept = [*(set(os.listdir(disk)) - before[0])]
    if code:
        kept += [name for name in os.listdir(home) if name.startswith("events-2")]
    print(json.dumps([code, said, kept]))
"""


@pytest.mark.parametrize(
    "verb", ["backup", "export", "restore", "import", "repair", "retention", "compact"]
)
def test_verbs_say_that_the_disk_is_full(verb: str, tmp_path: Path) -> None:
    """However little room is left, from not a byte to enough: a sentence that says what to do."""
    told = run_on_small_disk(STORY, tmp_path, "12m", verb).splitlines()
    ended = [msgspec.json.decode(line, type=tuple[int, str, list[str]]) for line in told]
    assert len(ended) == 15
    failed = [each for each in ended if each[0] == 1]
    assert ended[0] in failed
    for _, said, kept in failed:
        what = f"the {'file' if verb == 'export' else verb} /other"
        if said.startswith("rumormill: /other: topic 't' offset 0: the event proves nothing"):
            continue  # the import came as far as what these events have to prove
        assert said in {
            f"rumormill: no room left for {place}: free some space and try again\n"
            for place in ("the store /home", what)
        }
        assert kept == (["home"] if verb == "import" else [])
