"""Backup, restore, export, compact and repair from the command line, beside a running node."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from live_nodes import run
from processes import PATIENCE, Program, Terminal, environment, rumormill
from rumormill.cli.session import by_the_node
from rumormill.cli.settings import Resolved
from rumormill.core.event import Event
from rumormill.log import EventLog, Retention, export_parquet
from rumormill.node.node import Node
from store_samples import damage

NUMBERS = "".join(f"{number}\n" for number in range(100))


def published(home: Path, text: str = NUMBERS) -> None:
    done = rumormill("pub", "news", "-q", "--home", home, stdin=text)
    assert done.returncode == 0, done.stderr


def test_a_running_node_is_kept_up_by_verbs(home: Path, tmp_path: Path) -> None:
    """Retention, space, a backup, its way back, and an export, while it runs."""
    with Terminal("node", "--home", home, "--topic", "news", "--retain", "90d") as node:
        node.prints()
        published(home)
        at = ("--home", home, "--json")
        (line,) = map(json.loads, rumormill("retention", *at).stdout.splitlines())
        assert (line["events"], line["rule"]["max_age_seconds"]) == (100, 90 * 86400)
        applied = rumormill("retention", "news", *at, "--retain", "30events", "--apply")
        assert json.loads(applied.stdout)["deleted"] == 70
        assert "freed" in json.loads(rumormill("compact", *at).stdout)
        copy = json.loads(rumormill("backup", tmp_path / "copy", *at).stdout)
        assert (copy["backup"], copy["events"]) == (str(tmp_path / "copy"), 30)
        file = tmp_path / "news.parquet"
        exported = rumormill("export", file, "--topic", "news", *at)
        assert json.loads(exported.stdout) == {"file": str(file), "events": 30}
        assert json.loads(rumormill("repair", *at).stdout) == {"findings": []}
        published(home, "taken back\n")
        refused = rumormill("restore", tmp_path / "copy", *at)
        assert (refused.returncode, "--replace" in refused.stderr) == (1, True)
        restored = json.loads(rumormill("restore", tmp_path / "copy", "--replace", *at).stdout)
        assert (restored["events"], len(restored["empty"])) == (30, 1)
        assert "offsets 100 to 100" in restored["empty"][0]
        assert rumormill("import", file, *at).stdout == f'{{"home": "{home}", "events": 0}}\n'
        published(home, "still here\n")
        kept = rumormill("history", "news", "--format", "%o\n", *at[:2])
        assert kept.stdout.split() == [*map(str, range(70, 100)), "101"]
        assert node.stop() == 0
    restored = rumormill("restore", tmp_path / "copy", "--home", tmp_path / "new")
    assert "30 events" in restored.stdout
    history = rumormill("history", "news", "--home", tmp_path / "new").stdout
    assert history == "".join(f"{number}\n" for number in range(70, 100))
    taken = rumormill("import", file, "--home", tmp_path / "taken", "--json")
    assert json.loads(taken.stdout) == {"home": str(tmp_path / "taken"), "events": 30}
    assert "0 events are new" in rumormill("import", file, "--home", tmp_path / "taken").stdout
    assert rumormill("history", "news", "--home", tmp_path / "taken").stdout == history


def test_an_import_takes_only_what_proves_itself(home: Path, tmp_path: Path) -> None:
    """A file whose hashes are right says nothing about who wrote it; a running node asks too."""
    file = tmp_path / "events.parquet"
    with EventLog(tmp_path / "forged") as log:
        log.append(
            [Event("news", b"never said", b"somebody", b"id", proof=b"x", protocol="gossipsub")]
        )
    with EventLog(tmp_path / "forged", read_only=True) as log:
        export_parquet(log, file)
    refused = rumormill("import", file, "--home", home)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "topic 'news' offset 0: the event proves nothing" in refused.stderr
    assert rumormill("topics", "--home", home).stdout == ""
    missing = rumormill("import", tmp_path / "none.parquet", "--home", home)
    assert "there is no file" in missing.stderr
    with Terminal("node", "--home", home) as node:
        node.prints()
        refused = rumormill("import", file, "--home", home)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert "topic 'news' offset 0: the event proves nothing" in refused.stderr
        assert node.stop() == 0


def test_what_is_no_place_or_no_topic_is_said(home: Path, tmp_path: Path) -> None:
    """And nothing is made."""
    with EventLog(home):
        pass
    for words, why in (
        (("export", tmp_path / "x.parquet", "--topic", "weather"), "has no topic 'weather'"),
        (("export", home / "lock"), "exists already"),
        (("export", tmp_path / "no" / "x.parquet"), "there is no directory"),
        (("backup", home), "exists already"),
        (("restore", tmp_path / "nothing"), "no rumormill store"),
        (("restore", home), "is that home itself"),
    ):
        refused = rumormill(*words, "--home", home)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        assert why in refused.stderr
    assert [each.name for each in tmp_path.iterdir() if each != home] == []


@pytest.mark.parametrize(
    "words",
    [("compact",), ("retention", "--apply"), ("groups", "news", "--forget", "w"), ("repair",)],
)
def test_a_mistyped_home_is_not_made(words: tuple[str, ...], tmp_path: Path) -> None:
    """By verbs that change a log."""
    refused = rumormill(*words, "--home", tmp_path / "mistyped")
    assert "there is no rumormill store in" in refused.stderr
    assert [*tmp_path.iterdir()] == []


def test_history_goes_on_behind_the_gap_of_a_repair_and_says_so(home: Path) -> None:
    """From the files, through a node, from Python and for a subscriber from the start."""
    with Terminal("node", "--home", home, "--topic", "news") as node:
        node.prints()
        published(home)
        node.stop()
    assert rumormill("repair", "--home", home).stdout == "nothing is wrong\n"
    damage(home, 40)
    damaged = rumormill("history", "news", "--home", home)
    assert damaged.returncode == 4
    repaired = rumormill("repair", "--home", home, "--json")
    assert repaired.returncode == 4
    told = json.loads(repaired.stdout)
    assert (told["lost"], told["events"]) == (True, 99)
    assert "offsets 40 to 40" in told["findings"][0]
    rest = [str(number) for number in range(100) if number != 40]
    found = rumormill("history", "news", "--home", home)
    assert (found.returncode, found.stdout.split()) == (0, rest)
    assert "offsets 40 to 40 were lost, as a repair has recorded" in found.stderr
    late = rumormill("history", "news", "--home", home, "--offset", "40", "--count", "1")
    assert (late.stdout, "offsets 40 to 40" in late.stderr) == ("41\n", True)
    with Terminal("node", "--home", home) as node:
        node.prints()
        found = rumormill("history", "news", "--home", home)
        assert (found.returncode, found.stdout.split()) == (0, rest)
        assert "offsets 40 to 40 were lost" in found.stderr
        node.stop()

    async def story() -> None:
        async with Node(home) as node:
            assert [each.data.decode() for each in await node.history("news")] == rest
            events = await node.subscribe("news", since_offset=0)
            assert [(await anext(events)).data.decode() for _ in rest] == rest
            assert events.dropped == 1

    run(story)
    assert json.loads(rumormill("compact", "--old", "--home", home, "--json").stdout)["freed"] > 0
    assert not (home / "events-1.db").exists()


def test_a_node_is_repaired_while_it_runs(home: Path) -> None:
    """It names what it gives up, goes on, and history behind the gap does too."""
    with Terminal("node", "--home", home, "--topic", "news") as node:
        node.prints()
        published(home)
        damage(home, 40)
        assert rumormill("history", "news", "--home", home).returncode == 4
        repaired = rumormill("repair", "--home", home, "--json")
        told = json.loads(repaired.stdout)
        assert (repaired.returncode, told["lost"], told["events"]) == (4, True, 99)
        assert "offsets 40 to 40" in told["findings"][0]
        published(home, "100\n")
        found = rumormill("history", "news", "--home", home)
        assert found.stdout.split() == [str(number) for number in range(101) if number != 40]
        assert "offsets 40 to 40 were lost" in found.stderr
        assert json.loads(rumormill("compact", "--old", "--home", home, "--json").stdout)["freed"]
        assert node.stop() == 0


def test_python_keeps_a_running_node_up_as_well(home: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with Node(home) as node:
            await node.publish_many("news", [b"%d" % number for number in range(50)])
            node.set_retention({"news": Retention(max_events=20)})
            (line,) = await node.retention()
            assert (line.events, line.beyond, line.deleted) == (50, 30, None)
            (line,) = await node.retention("news", apply=True)
            assert (line.events, line.deleted) == (20, 30)
            (line,) = await node.retention("news", rules=Retention(max_events=5), apply=True)
            assert (line.events, line.deleted) == (5, 15)
            assert await node.compact() >= 0
            assert (await node.backup(tmp_path / "copy")).events == 5
        async with Node(tmp_path / "copy") as copy:
            assert [each.offset for each in await copy.history("news")] == [45, 46, 47, 48, 49]

    run(story)


# The signal, and who listens to what a node says of itself.


def test_sighup_reads_the_settings_again_and_never_ends_a_node(home: Path, tmp_path: Path) -> None:
    """What can be used at once is, of the rest it is said; what is wrong changes nothing."""
    home.mkdir(parents=True)
    config = home / "config.toml"
    with Terminal("node", "--home", home, "--set", "D=7") as node:
        node.prints()
        published(home)
        config.write_text('topics = ["weather"]\nretain = ["news=10events"]\nmdns = "off"\n')
        node.process.send_signal(signal.SIGHUP)
        assert "changed=topics,retain after_a_restart=mdns" in node.says("reloaded")
        node.says("topic=weather")
        applied = rumormill("retention", "news", "--home", home, "--apply", "--json")
        assert json.loads(applied.stdout)["deleted"] == 90
        config.write_text('retain = ["nonsense"]\n')
        node.process.send_signal(signal.SIGHUP)
        node.says("nothing is reloaded: retain: 'nonsense'")
        config.write_text('log_format = "json"\n[parameters]\nD = 9\n')
        reloaded = rumormill("reload", "--home", home, "--json")
        told_by_verb = json.loads(reloaded.stdout)
        assert told_by_verb["after_a_restart"] == []  # the flag --set stands above the file
        assert sorted(told_by_verb["changed"]) == ["log_format", "retain", "topics"]
        node.process.send_signal(signal.SIGHUP)
        json.loads(node.says('"message": "reloaded"'))
        assert node.stop() == 0


EARLY = """
import importlib, os, signal, sys
import rumormill.cli
def load(name):
    os.kill(os.getpid(), signal.SIGHUP)
    print("alive in", name)
    sys.exit()
importlib.import_module = load
rumormill.cli.main(["node"])
"""


def test_a_signal_that_comes_early_ends_nothing_either(home: Path) -> None:
    """Not while the program is loaded; and one that comes right after that is heard."""
    with Program([sys.executable, "-c", EARLY], env=environment()) as loading:
        assert loading.prints() == ["alive in rumormill.cli.daemon"]
        assert loading.ends() == 0
    with Terminal("node", "--home", home) as node:
        node.says("running")
        node.process.send_signal(signal.SIGHUP)
        node.process.send_signal(signal.SIGHUP)
        node.says("reloaded")
        assert node.stop() == 0


@pytest.mark.parametrize("abstract", [False, True])
def test_a_supervisor_is_told_when_the_node_is_ready_reloads_and_stops(
    home: Path, tmp_path: Path, abstract: bool
) -> None:
    """By a datagram socket, as systemd has it, and that it is alive, as often as it wants."""
    if abstract and not os.path.exists("/proc/net/unix"):
        pytest.skip("names that are in no directory are Linux's")
    name = f"rumormill-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind("\0" + name if abstract else name)
        supervisor.settimeout(PATIENCE)
        variables = {"NOTIFY_SOCKET": f"@{name}" if abstract else name, "WATCHDOG_USEC": "300000"}
        with Terminal("node", "--home", home, **variables) as node:

            def hears(line: str) -> str:
                while True:
                    said = supervisor.recv(4096).decode()
                    if line in said.split("\n"):
                        return said

            assert "\nSTATUS=peer 12D3KooW" in hears("READY=1")
            hears("WATCHDOG=1")
            node.process.send_signal(signal.SIGHUP)
            stamp = hears("RELOADING=1").partition("MONOTONIC_USEC=")[2]
            assert int(stamp) > 0
            hears("READY=1")
            node.process.terminate()
            hears("STOPPING=1")
            assert node.ends() == 0


def test_a_supervisor_that_does_not_listen_is_no_reason_to_fail(home: Path, tmp_path: Path) -> None:
    with Terminal("node", "--home", home, NOTIFY_SOCKET=str(tmp_path / "nobody")) as node:
        node.prints()
        assert node.stop() == 0


def test_what_a_command_does_alone_an_interrupt_ends_at_once(home: Path) -> None:
    """It runs in no event loop, which would let it finish first; and an import that cannot be
    makes no home."""
    resolved = Resolved({"home": str(home)}, {}, {})

    def alone() -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return "done"

    assert by_the_node(resolved, lambda client: client.compact(), alone) == "done"
    refused = rumormill("import", home / "none.parquet", "--home", home)
    assert (refused.returncode, "there is no file" in refused.stderr) == (1, True)
    assert not home.exists()


def test_a_home_on_a_disk_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    """By every verb that only reads, and copied; what would write says why it does not."""
    unshare = ["unshare", "-rm"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here without root (unshare -rm)")
    home = tmp_path / "home"
    with EventLog(home) as log:
        log.append([Event("news", b"kept", b"", b"1", received=1.0)]).result()
    run = f"{sys.executable} -m rumormill"
    verbs = (
        *("history news", "topics", "groups", "retention", f"backup {tmp_path}/copy"),
        f"export {tmp_path}/news.parquet",
    )
    script = f"mount --bind {home} {home} && mount -o remount,ro,bind {home}"
    for verb in verbs:
        script += f" && {run} {verb} --home {home}"
    done = subprocess.run(
        [*unshare, "sh", "-c", f"{script} && ! {run} retention --apply --home {home}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kept\n")
    assert f"the store {home} cannot be written: Read-only file system" in done.stderr
    with EventLog(tmp_path / "copy", read_only=True) as log:
        assert log.verify().ok
