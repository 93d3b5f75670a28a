"""`rumormill topic-key`, `policy` and the flags that say who may read and write in topics."""

import json
import shutil
from pathlib import Path

import pytest

from processes import Terminal, examined, rumormill
from rumormill.node.policy import sign_policy
from rumormill.wire.keys import PrivateKey

NOBODY = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "orders.key"
    assert rumormill("topic-key", "new", str(path)).returncode == 0
    return path


def check(*arguments: str | Path) -> dict[str, str]:
    """What the doctor says of topics."""
    return examined(*arguments)[1]["topics"]


def test_a_key_is_made_private_and_once(tmp_path: Path) -> None:
    """`new` says where and which, and never the key; a second one changes nothing."""
    path = tmp_path / "orders.key"
    made = rumormill("topic-key", "new", str(path), "--json")
    assert made.returncode == 0, made.stderr
    shown = json.loads(made.stdout)
    assert shown["file"] == str(path)
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_text()
    assert content.splitlines()[1] not in made.stdout
    again = rumormill("topic-key", "new", str(path))
    assert again.returncode == 1
    assert "is not overwritten" in again.stderr
    assert path.read_text() == content
    assert rumormill("topic-key", "show", str(path)).stdout == f"{path}\nkeys: {shown['keys'][0]}\n"


def test_a_topic_is_read_with_its_key_only(home: Path, tmp_path: Path, key: Path) -> None:
    """Through the node, from its files, and by a subscriber; without the key it is an error."""
    flag = ("--topic-key", f"orders={key}")
    with Terminal("node", "--home", home, "--topic", "orders", *flag) as node:
        (ticket,) = node.prints()
        with Terminal(
            "sub", "orders", "--count", "1", "--home", tmp_path / "b", "--join", ticket, *flag
        ) as sub:
            sub.says("listening")
            assert rumormill("pub", "orders", "secret", "--home", str(home)).returncode == 0
            assert sub.prints() == ["secret"]
        assert rumormill("history", "orders", "--home", str(home)).stdout == "secret\n"
        decided = rumormill("pub", "orders", "x", "--home", str(home), *flag)
        assert decided.returncode == 2
        assert "--topic-key: the node that runs" in decided.stderr
        node.stop()
    stored = ("history", "orders", "--home", str(home))
    assert rumormill(*stored, *flag).stdout == "secret\n"
    withheld = rumormill(*stored)
    assert withheld.returncode == 1
    assert withheld.stdout == ""
    assert "1 events of orders cannot be read" in withheld.stderr
    with Terminal("node", "--home", home) as node:
        node.prints()
        assert "1 events of orders cannot be read" in rumormill(*stored).stderr
        assert rumormill(*stored, *flag).stdout == "secret\n"


def test_a_key_is_rotated_and_the_old_one_does_not_read_what_follows(
    home: Path, tmp_path: Path, key: Path
) -> None:
    """The node that runs uses the new key when it is told to; who has the old file is left out."""
    old = tmp_path / "old.key"
    shutil.copy(key, old)
    stored = ("history", "orders", "--home", str(home))
    with Terminal("node", "--home", home, "--topic-key", f"orders={key}") as node:
        node.prints()
        assert rumormill("pub", "orders", "before", "--home", str(home)).returncode == 0
        rotated = rumormill("topic-key", "rotate", str(key), "--json")
        assert rotated.returncode == 0, rotated.stderr
        new, *others = json.loads(rotated.stdout)["keys"]
        shown = json.loads(rumormill("topic-key", "show", str(old), "--json").stdout)["keys"]
        assert others == shown
        assert new not in shown
        assert key.stat().st_mode & 0o777 == 0o600
        reloaded = rumormill("reload", "--home", str(home), "--json")
        told = {"home": str(home), "changed": [], "after_a_restart": []}
        assert json.loads(reloaded.stdout) == told
        assert rumormill("pub", "orders", "after", "--home", str(home)).returncode == 0
        assert rumormill(*stored).stdout == "before\nafter\n"
        node.stop()
    left_out = rumormill(*stored, "--topic-key", f"orders={old}")
    assert left_out.returncode == 1
    assert "after" not in left_out.stdout
    assert "1 events of orders cannot be read" in left_out.stderr
    assert rumormill(*stored, "--topic-key", f"orders={key}").stdout == "before\nafter\n"
    nobody = rumormill("reload", "--home", str(home))
    assert nobody.returncode == 1
    assert "no node runs" in nobody.stderr
    assert "there is no topic's key file" in rumormill("topic-key", "rotate", "none.key").stderr


def test_a_policy_is_signed_shown_and_followed(home: Path, tmp_path: Path) -> None:
    """By the home's identity; a node that it does not name may not publish."""
    path = tmp_path / "orders.policy"
    new = ("policy", "new", "--topic", "orders", "--publisher", NOBODY, str(path))
    made = rumormill(*new, "--home", str(home), "--number", "3", "--json")
    assert made.returncode == 0, made.stderr
    shown = json.loads(made.stdout)
    assert (shown["topic"], shown["publishers"], shown["version"]) == ("orders", [NOBODY], 3)
    assert f"owner: {shown['owner']}\n" in rumormill("policy", "show", str(path)).stdout
    assert "is not overwritten" in rumormill(*new, "--home", str(home)).stderr
    with Terminal("node", "--home", home, "--policy", path) as node:
        (ticket,) = node.prints()
        assert ticket.endswith(shown["owner"])
        done = rumormill("pub", "orders", "x", "--home", str(home))
        assert done.returncode == 1
        assert "does not let this node publish" in done.stderr
    for wrong in (new[:4] + new[-1:], (*new[:5], "somebody", *new[-1:])):
        assert rumormill(*wrong, "--home", str(home)).returncode == 2
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")  # no signature ends so
    assert "bad-signature" in rumormill("policy", "show", str(path)).stderr


def test_nobody_thinks_that_a_node_encrypts_which_does_not(
    home: Path, tmp_path: Path, key: Path
) -> None:
    """Keys may be set for all commands; the one that publishes is the node, with its own."""
    other = tmp_path / "other.key"
    assert rumormill("topic-key", "new", str(other)).returncode == 0
    say = ("pub", "orders", "secret", "--home", str(home))
    right, wrong = (f"orders={each}" for each in (key, other))
    for started, refused in (((), right), (("--topic-key", right), wrong)):
        with Terminal("node", "--home", home, "--topic", "orders", *started) as node:
            node.prints()
            done = rumormill(*say, RUMORMILL_TOPIC_KEYS=refused)
            assert done.returncode == 2
            assert "does not encrypt 'orders' with a key of" in done.stderr
            assert "RUMORMILL_TOPIC_KEYS" in done.stderr
            node.stop()
    with Terminal("node", "--home", home, "--topic", "orders", "--topic-key", right) as node:
        node.prints()
        assert rumormill(*say, RUMORMILL_TOPIC_KEYS=right).returncode == 0
        assert rumormill("topic-key", "rotate", str(key)).returncode == 0
        assert rumormill(*say, RUMORMILL_TOPIC_KEYS=right).returncode == 0
        node.stop()


def test_a_policy_that_is_looked_at_before_it_is_trusted_forges_no_line(tmp_path: Path) -> None:
    """Whoever signed it chose the topic's name and the date, and nothing else."""
    path, mallory = tmp_path / "orders.policy", PrivateKey(b"m" * 32)
    topic, peers = f"orders\nowner: {NOBODY}\x1b[8m", (bytes(mallory.peer_id),)
    path.write_bytes(sign_policy(mallory, topic, peers, 1, 2**50))
    shown = rumormill("policy", "show", str(path))
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert f"owner: {mallory.peer_id}" in lines
    assert f"topic: orders�owner: {NOBODY}�[8m" in lines
    assert f"created: {2**50} seconds since 1970" in lines
    assert f"owner: {NOBODY}" not in lines


def test_the_doctor_says_who_may_read_and_write(home: Path, tmp_path: Path, key: Path) -> None:
    """Everybody by default; a key or policy that cannot be used is a failure."""
    place = ("--home", home)
    assert check(*place)["text"] == "whoever is connected may publish and read"
    assert "rumormill topic-key new" in check(*place)["advice"]
    policy = tmp_path / "orders.policy"
    rumormill(
        "policy", "new", "--topic", "news", "--publisher", NOBODY, str(policy), "--home", str(home)
    )
    (key_id,) = json.loads(rumormill("topic-key", "show", str(key), "--json").stdout)["keys"]
    flags = ("--topic-key", f"orders={key}", "--policy", policy)
    assert check(*place, *flags)["text"] == (
        f"orders encrypted, key {key_id}; news for 1 publishers, version 1"
    )
    key.chmod(0o644)
    assert check(*place, *flags)["state"] == "failure"


def test_the_configuration_file_names_keys_and_policies(home: Path, key: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text(f'topic_keys = ["orders={key}"]\npolicies = ["p"]\n')
    found = json.loads(rumormill("config", "--home", str(home), "--json").stdout)
    assert found["topic_keys"]["value"] == [f"orders={key}"]
    assert found["policies"]["value"] == ["p"]
    (home / "config.toml").write_text('topic_keys = ["orders"]\n')
    refused = rumormill("config", "--home", str(home))
    assert refused.returncode == 2
    assert "topic_keys: 'orders' is not KEY=VALUE, such as orders=orders.key" in refused.stderr
