"""`sub --name` and `groups` on the command line."""

import json
from pathlib import Path

from processes import Terminal, rumormill


def groups(home: Path, *words: str) -> list[dict[str, object]]:
    done = rumormill("groups", *words, "--home", home, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def group(next_offset: int, pending: int, lag: int, consumers: int) -> dict[str, object]:
    where = {"topic": "work", "name": "w", "next_offset": next_offset}
    told = {"pending": pending, "lag": lag, "consumers": consumers, "dropped": 0, "late": 0}
    return where | told


def test_a_name_goes_on_across_commands_and_a_killed_daemon(tmp_path: Path) -> None:
    """What was printed does not come again, everything else does; and it is seen without a node."""
    home = tmp_path / "home"
    named = ("sub", "work", "--home", home, "--name", "w", "--quiet", "--wait", "60")
    with Terminal("node", "--home", home, "--topic", "work") as node:
        node.prints()
        while not groups(home):  # it begins with the present, once it was quick enough to begin
            assert rumormill(*named, "--wait", "0.1").returncode == 0
        assert rumormill("pub", "work", "--home", home, stdin="0\n1\n2\n3\n4\n").returncode == 0
        assert rumormill(*named, "--count", "2").stdout == "0\n1\n"
        while (found := groups(home)) != [group(2, 0, 3, 0)]:  # until it is seen to have gone
            assert found == [group(2, 0, 3, 1)]
        node.kill()
    assert groups(home) == groups(home, "work") == [group(2, 0, 3, 0)]
    assert groups(home, "other") == []
    refused = rumormill(*named)
    assert (refused.returncode, "need the log of a node" in refused.stderr) == (2, True)
    with Terminal("node", "--home", home) as node:
        node.prints()
        assert rumormill(*named, "--count", "1").stdout == "2\n"
        with Terminal("sub", "work", "--home", home, "--name", "w") as one:
            one.prints(2)
            refused = rumormill("groups", "work", "--forget", "w", "--home", home)
            assert "'w' to 'work' is open" in refused.stderr
            while groups(home) != [group(5, 0, 0, 1)]:  # until the last is acknowledged
                assert one.process.poll() is None, one.errors
            shown = rumormill("groups", "--home", home).stdout.splitlines()
            assert [line.split() for line in shown] == [
                ["TOPIC", "NAME", "NEXT", "PENDING", "LAG", "CONSUMERS", "DROPPED", "LATE"],
                ["work", "w", "5", "0", "0", "1", "0", "0"],
            ]
        assert node.stop() == 0
    assert rumormill("groups", "--forget", "w", "--home", home).returncode == 2
    assert rumormill("groups", "work", "--forget", "w", "--home", home).returncode == 0
    again = rumormill("groups", "work", "--forget", "w", "--home", home)
    assert "there is no subscription 'w' to 'work'" in again.stderr
    assert rumormill("groups", "--home", home).stdout == "no named subscriptions\n"
