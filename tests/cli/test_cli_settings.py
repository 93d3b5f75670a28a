"""Settings: one precedence, every origin shown; and the doctor."""

import json
import os
import socket
import stat
from pathlib import Path

import pytest

from processes import SOURCES, Terminal, examined, rumormill
from rumormill.cli.grammar import CommandError
from rumormill.cli.numbers import moment, seconds, whole
from rumormill.cli.printing import compile_format
from rumormill.cli.session import announced, find_tickets
from rumormill.cli.settings import SETTINGS
from rumormill.core.event import Event
from rumormill.log.model import StoreConfig
from rumormill.members.config import MembersConfig
from rumormill.node.config import NodeConfig
from rumormill.protocols.registry import protocol
from rumormill.sync.config import SyncConfig
from rumormill.wire.keys import PrivateKey


def shown(*arguments: str, **extra: str) -> dict[str, dict[str, object]]:
    """What `rumormill config` shows."""
    done = rumormill("config", "--json", *arguments, **extra)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    """Each value comes from the first place that has it, and says so."""
    home = str(tmp_path)
    config = tmp_path / "config.toml"
    assert shown("--home", home)["protocol"] == {"value": "gossipsub", "origin": "default"}
    config.write_text('protocol = "floodsub"\n')
    in_file = {"value": "floodsub", "origin": str(config)}
    assert shown("--home", home)["protocol"] == in_file
    assert shown(RUMORMILL_HOME=home)["protocol"] == in_file
    variables = {"RUMORMILL_HOME": home, "RUMORMILL_PROTOCOL": "gossipsub"}
    assert shown(**variables)["protocol"]["origin"] == "RUMORMILL_PROTOCOL"
    typed = shown("--protocol", "floodsub", **variables)["protocol"]
    assert typed == {"value": "floodsub", "origin": "--protocol"}


def test_config_shows_what_is_in_tables_too_as_it_is_used_with_its_origin(tmp_path: Path) -> None:
    """Defaults of the protocol and of every table, what a preset and what somebody changed."""
    (tmp_path / "config.toml").write_text("[sync]\ninterval = 7\n")
    found = shown(
        *("--home", str(tmp_path), "--preset", "ethereum", "--set", "D=9"),
        RUMORMILL_SET="node.max_connections=50 store.readers=2",
    )
    tables = {
        "node": NodeConfig(),
        "store": StoreConfig(),
        "sync": SyncConfig(),
        "members": MembersConfig(),
        "parameters": protocol("gossipsub").configure("default", {}),
    }
    for table, config in tables.items():
        for field in config.__struct_fields__:
            is_told = any(key.startswith(f"{table}.{field}") for key in found)
            assert is_told or field == "durability" or not getattr(config, field), (table, field)
    assert found["parameters.D"] == {"value": 9, "origin": "--set"}
    assert found["parameters.heartbeat_interval"] == {"value": 0.7, "origin": "preset ethereum"}
    assert found["parameters.D_hi"] == {"value": 12, "origin": "default"}
    assert found["parameters.score.decay_interval"] == {"value": 1.0, "origin": "default"}
    assert found["node.max_connections"] == {"value": 50, "origin": "RUMORMILL_SET"}
    assert found["store.readers"] == {"value": 2, "origin": "RUMORMILL_SET"}
    assert found["sync.interval"] == {"value": 7.0, "origin": str(tmp_path / "config.toml")}
    assert found["members.enabled"] == {"value": True, "origin": "default"}


def test_every_setting_can_be_in_the_file_and_in_the_environment(tmp_path: Path) -> None:
    """One name in three forms: `log_level`, `RUMORMILL_LOG_LEVEL`, `--log-level`."""
    samples = {
        "listen": ["/ip4/127.0.0.1/tcp/4001", "/ip4/127.0.0.1/tcp/4002"],
        "announce": ["/dns4/mill.example.org/tcp/4001"],
        "join": [],
        "mdns": "off",
        "relays": ["auto"],
        "be_relay": "on",
        "map_port": "on",
        "supervisors": [],
        "topics": ["a", "b"],
        "network": "swarm.key",
        "topic_keys": ["a=a.key", "b=b.key"],
        "policies": ["a.policy"],
        "protocol": "floodsub",
        "preset": "default",
        "durability": "os",
        "retain": ["30d", "news=1gb"],
        "trace": "node.ndjson",
        "metrics": "127.0.0.1:9464",
        "flight": "127.0.0.1:4020",
        "flight_cert": "cert.pem",
        "flight_key": "key.pem",
        "log_level": "debug",
        "log_format": "json",
    }
    assert {each.key for each in SETTINGS} == {"home", *samples}
    path = tmp_path / "any.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in samples.items()))
    found = shown("--config", str(path))
    assert {key: found[key]["value"] for key in samples} == samples
    variables = {
        f"RUMORMILL_{key.upper()}": " ".join(value) if isinstance(value, list) else value
        for key, value in samples.items()
    }
    found = shown(RUMORMILL_HOME=str(tmp_path), **variables)
    assert {key: found[key]["value"] for key in samples} == samples


def test_the_documentation_has_every_setting_and_verb() -> None:
    text = (SOURCES.parent / "docs" / "command-line.md").read_text()
    for each in SETTINGS:
        assert f"`{each.variable}` | `{each.flag}` |" in text
    verbs = "node supervisor serve-store pub sub history topics peers doctor config bench"
    for verb in verbs.split():
        assert f"`{verb}" in text


def test_parameters_come_from_tables_and_from_set(tmp_path: Path) -> None:
    """Protocol, node and log are reached by the same dotted names everywhere."""
    (tmp_path / "config.toml").write_text(
        "[parameters]\nD = 8\nheartbeat_interval = 0.7\n[node]\nmax_connections = 9\n"
    )
    found = shown("--home", str(tmp_path), "--set", "D=7", "--set", "store.readers=2")
    assert found["parameters.D"] == {"value": 7, "origin": "--set"}
    assert found["parameters.heartbeat_interval"]["value"] == 0.7
    assert found["node.max_connections"]["value"] == 9
    assert found["store.readers"]["origin"] == "--set"


WRONG_FILES = {
    "no such key": 'protcol = "gossipsub"',
    "a wrong kind": "protocol = 7",
    "no list": 'join = "x"',
    "no TOML": "protocol: gossipsub",
    "no such parameter": "[parameters]\nDD = 1",
    "no such limit": "[node]\nfoo = 1",
    "another home": 'home = "/elsewhere"',
}


@pytest.mark.parametrize("text", WRONG_FILES.values(), ids=WRONG_FILES.keys())
def test_a_wrong_file_is_refused_with_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(text)
    done = rumormill("config", "--home", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr


def test_numbers_and_times_are_read_as_people_write_them() -> None:
    assert whole("--count", "12") == 12
    assert seconds("--wait", "1.5") == 1.5
    assert seconds("--wait", "2m") == 120
    assert moment("--since", "1h", 10_000.0) == 6400.0
    assert moment("--since", "1970-01-01T00:01:00+00:00", 0.0) == 60.0
    for text in ("", "nan", "inf", "-1", "0", "1w"):
        with pytest.raises(CommandError, match="--wait"):
            seconds("--wait", text)


def test_a_format_prints_every_field() -> None:
    author = PrivateKey(bytes(32)).peer_id
    event = Event("t", b"\xffdata", bytes(author), b"\x01\x02", offset=7, received=1_700_000_000.25)
    printer = compile_format(r"%t|%o|%a|%s|%S|%T|%i|%%|\t\0\n")
    expected = f"t|7|{author}|".encode() + b"\xffdata|5|2023-11-14T22:13:20.250Z|0102|%|\t\0\n"
    assert printer(event) == expected


def test_only_the_living_are_found_at_the_meeting_place(tmp_path: Path) -> None:
    """A ticket whose owner has gone, or died, is not offered; its file is removed."""
    home = tmp_path / "home"
    assert find_tickets(home) == []
    with announced(home, ["/one"]):
        (file,) = (home / "meet").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert find_tickets(home) == ["/one"]
    (home / "meet" / "dead").write_text("/two")
    assert find_tickets(home) == []
    assert list((home / "meet").iterdir()) == []


def test_the_doctor_finds_a_new_home_healthy_and_makes_nothing(tmp_path: Path) -> None:
    code, checks = examined("--home", str(tmp_path / "new"))
    assert code == 0, checks
    assert {"python", "packages", "home", "key", "disk", "listen", "clock", "log"} <= {*checks}
    assert {check["state"] for check in checks.values()} <= {"ok", "warning"}
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_looks_at_a_home_in_use(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A running node is no fault: its log is read beside it, its ports are its own."""
    home = str(tmp_path_factory.mktemp("h") / "home")
    with Terminal("node", "--home", home) as node:
        node.prints()
        assert rumormill("pub", "t", "x", "--home", home).returncode == 0
        code, checks = examined("--home", home)
        assert code == 0, checks
        assert checks["node"]["text"] == f"runs in {home}"
        assert checks["log"]["text"].startswith("1 events")


def test_the_doctor_names_every_fault_and_what_to_do(tmp_path: Path) -> None:
    """An open key, a taken port, a home that others write in."""
    key = tmp_path / "identity.key"
    key.write_bytes(PrivateKey(bytes(32)).encode())
    key.chmod(0o644)
    tmp_path.chmod(0o777)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code, checks = examined(
            "--home", str(tmp_path), "--listen", f"/ip4/127.0.0.1/tcp/{port}",
            "--metrics", f"127.0.0.1:{port}",
        )  # fmt: skip
    assert code == 1
    faults = {name: check["state"] for name, check in checks.items() if check["state"] != "ok"}
    faults.pop("disk", None)
    assert faults == {
        "home": "warning", "key": "failure", "listen": "failure", "metrics": "failure",
    }  # fmt: skip
    assert f"chmod 600 {key}" in checks["key"]["advice"]
    assert all(checks[name]["advice"] for name in faults)
    code, checks = examined("--home", os.devnull)
    assert (code, checks["home"]["state"]) == (1, "failure")
