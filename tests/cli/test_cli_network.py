"""`rumormill network` and the flags that say who may come in, as people type them."""

import json
from pathlib import Path

import pytest

from processes import Terminal, examined, rumormill

NOBODY = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "swarm.key"
    assert rumormill("network", "new", str(path)).returncode == 0
    return path


def check(*arguments: str | Path) -> dict[str, str]:
    """What the doctor says of the network."""
    return examined(*arguments)[1]["network"]


def test_a_key_is_made_private_and_once(tmp_path: Path) -> None:
    """`new` says where and which; a second one is refused and changes nothing."""
    path = tmp_path / "swarm.key"
    made = rumormill("network", "new", str(path), "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["file"] == str(path)
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_text()
    lines = content.split("\n")
    assert lines[:2] == ["/key/swarm/psk/1.0.0/", "/base16/"]
    assert len(bytes.fromhex(lines[2])) == 32
    assert lines[2] not in made.stdout
    again = rumormill("network", "new", str(path))
    assert again.returncode == 1
    assert "is not overwritten" in again.stderr
    assert path.read_text() == content
    shown = rumormill("network", "show", str(path))
    assert shown.stdout == f"{path}\nfingerprint: {json.loads(made.stdout)['fingerprint']}\n"


def test_members_publish_to_each_other_and_strangers_do_not(
    home: Path, tmp_path: Path, key: Path
) -> None:
    """The same ticket works with the key and not without it."""
    with Terminal("sub", "news", "--count", "1", "--home", home, "--network", key) as sub:
        ticket = sub.says("--join").split()[-1]
        join = ("pub", "news", "hello", "--home", str(tmp_path / "other"), "--join", ticket)
        stranger = rumormill(*join)
        assert stranger.returncode == 1
        assert "cannot reach" in stranger.stderr
        member = rumormill(*join, RUMORMILL_NETWORK=key)
        assert member.returncode == 0, member.stderr
        assert sub.prints() == ["hello"]


def test_a_denied_node_is_told_so(home: Path, tmp_path: Path) -> None:
    """By the node that was told to deny it, which does not even dial."""
    with Terminal("node", "--home", home) as node:
        (ticket,) = node.prints()
        peer = ticket.rpartition("/")[2]
        done = rumormill(
            "pub", "news", "x", "--home", str(tmp_path), "--join", ticket, "--deny-peer", peer
        )
        assert done.returncode == 1
        assert f"{peer} is not dialled: peer-denied" in done.stderr


def test_a_node_logs_which_network_it_is_in(home: Path, key: Path) -> None:
    for flags, network in (((), "open"), (("--network", key), str(key))):
        with Terminal("node", "--home", home, "--log-format", "json", *flags) as node:
            assert json.loads(node.says('"running"'))["network"] == network


def test_a_running_node_has_decided_who_may_come_in(home: Path, key: Path) -> None:
    with Terminal("node", "--home", home) as node:
        node.prints()
        for flag, value in (("--network", str(key)), ("--allow-peer", NOBODY)):
            done = rumormill("pub", "news", "x", "--home", str(home), flag, value)
            assert done.returncode == 2
            assert f"{flag}: the node that runs in {home} has decided this" in done.stderr


def test_the_doctor_says_who_may_come_in(home: Path, key: Path) -> None:
    """Everybody by default, and how to change that; a key that cannot be used is a failure."""
    place = ("--home", home)
    open_to_all = check(*place)
    assert open_to_all["state"] == "ok"
    assert open_to_all["text"].startswith("open to whoever reaches its port")
    assert "rumormill network new" in open_to_all["advice"]
    fingerprint = json.loads(rumormill("network", "show", str(key), "--json").stdout)["fingerprint"]
    private = check(*place, "--network", key, "--allow-peer", NOBODY, "--deny-peer", NOBODY)
    assert private["text"] == (
        f"private, fingerprint {fingerprint}, allowed peers: 1, denied peers: 1"
    )
    key.chmod(0o644)
    assert check(*place, "--network", key)["state"] == "failure"


def test_the_configuration_file_says_who_may_come_in(home: Path, key: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text(f'network = "{key}"\n[node]\nallow_peers = ["{NOBODY}"]\n')
    done = rumormill("config", "--home", str(home), "--json")
    found = json.loads(done.stdout)
    assert found["network"]["value"] == str(key)
    assert found["node.allow_peers"]["value"] == [NOBODY]
    (home / "config.toml").write_text('[node]\nallow_peers = ["somebody"]\n')
    refused = rumormill("config", "--home", str(home))
    assert refused.returncode == 2
    assert "allow_peers: not a peer id" in refused.stderr
