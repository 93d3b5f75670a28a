"""Settings of node verbs: flag over environment over configuration file over default.

`SETTINGS` is the one list of them. Each value keeps its origin, and `rumormill config` shows both.
The file is `--config`, else `RUMORMILL_CONFIG`, else `config.toml` in the home where it exists.
"""

import argparse
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.numbers import pairs, retention_rules
from rumormill.core.config import Config, nearest, override
from rumormill.core.errors import ConfigError, LocalError
from rumormill.core.patterns import Pattern, check_plain
from rumormill.daemon.endpoint import DEFAULT_HOME, flight_endpoint, metrics_endpoint
from rumormill.log.model import Durability, Retention, StoreConfig
from rumormill.members.config import MembersConfig
from rumormill.node.config import (
    NodeConfig,
    chosen_reach,
    listen_endpoint,
    parsed_ticket,
    tcp_address,
)
from rumormill.protocols.registry import protocol
from rumormill.sync.config import SyncConfig
from rumormill.trace.entries import Observer
from rumormill.trace.writers import LINE_SUFFIXES

if TYPE_CHECKING:
    from rumormill.node.node import Node

CONFIG_NAME: Final = "config.toml"
_WIDEST_VALUE: Final = 48
"""Columns for values: a longer one moves its own origin aside, and no other."""


_Config = TypeVar("_Config", bound=Config)


class Setting(msgspec.Struct, frozen=True):
    """One setting: its key in the file, its flag, its default; lists may be repeated."""

    key: str
    flag: str
    default: Any
    many: bool = False

    @property
    def variable(self) -> str:
        """The environment variable; lists are separated by spaces in it."""
        return f"RUMORMILL_{self.key.upper()}"


SETTINGS: Final = (
    Setting("home", "--home", DEFAULT_HOME),
    Setting("listen", "--listen", ["/ip4/127.0.0.1/tcp/0"], many=True),
    Setting("announce", "--announce", [], many=True),
    Setting("join", "--join", [], many=True),
    Setting("mdns", "--mdns", "on"),
    Setting("relays", "--relay", [], many=True),
    Setting("be_relay", "--be-relay", "off"),
    Setting("map_port", "--map-port", "off"),
    Setting("supervisors", "--supervisor", [], many=True),
    Setting("topics", "--topic", [], many=True),
    Setting("network", "--network", ""),
    Setting("topic_keys", "--topic-key", [], many=True),
    Setting("policies", "--policy", [], many=True),
    Setting("protocol", "--protocol", "gossipsub"),
    Setting("preset", "--preset", "default"),
    Setting("durability", "--durability", "fsync"),
    Setting("retain", "--retain", [], many=True),
    Setting("trace", "--trace", ""),
    Setting("metrics", "--metrics", ""),
    Setting("flight", "--flight", ""),
    Setting("flight_cert", "--flight-cert", ""),
    Setting("flight_key", "--flight-key", ""),
    Setting("log_level", "--log-level", ""),
    Setting("log_format", "--log-format", "text"),
)
_FLAGS_OF_TABLES: Final = {
    "--direct": "parameters.direct_peers",
    "--allow-peer": "node.allow_peers",
    "--deny-peer": "node.deny_peers",
}
TABLES: Final = ("parameters", "node", "store", "sync", "members")
"""Tables of the file, which `--set` and `RUMORMILL_SET` reach as KEY, node.KEY, store.KEY, sync.KEY
and members.KEY."""


_ADDRESSES: Final[Mapping[str, Callable[[str], object]]] = {
    "join": parsed_ticket,
    "supervisors": parsed_ticket,
    "relays": lambda text: chosen_reach([text], be_relay=False, map_port=False),
    "listen": listen_endpoint,
    "announce": tcp_address,
}


class Resolved(msgspec.Struct, frozen=True):
    """Every setting with its origin."""

    values: dict[str, Any]
    origins: dict[str, str]
    changes: dict[str, str | Any]
    """What `--set`, `RUMORMILL_SET` and the tables change, by dotted name."""

    @property
    def home(self) -> Path:
        """The home's directory."""
        return Path(self.values["home"]).expanduser().absolute()

    @property
    def network(self) -> Path | None:
        """The key file of the private network; None where the network is open."""
        named = self.text("network")
        return Path(named).expanduser().absolute() if named else None

    @property
    def topic_keys(self) -> dict[str, Path]:
        """The key files of encrypted topics."""
        found = pairs("topic_keys", self.texts("topic_keys"), hint=", such as orders=orders.key")
        return {topic: Path(file).expanduser().absolute() for topic, file in found}

    @property
    def policies(self) -> list[Path]:
        """The files that say who may publish."""
        return [Path(each).expanduser().absolute() for each in self.texts("policies")]

    def text(self, key: str) -> str:
        """A setting that is one text."""
        return str(self.values[key])

    def texts(self, key: str) -> list[str]:
        """A setting that is a list."""
        return list(self.values[key])

    def _of(self, table: str) -> dict[str, Any]:
        start = f"{table}."
        return {
            key.removeprefix(start): value
            for key, value in self.changes.items()
            if key.startswith(start)
        }

    def _changed(self, table: str, usual: _Config) -> _Config:
        try:
            return override(usual, self._of(table))
        except ConfigError as error:
            raise ConfigError(f"{table}.{error}") from None

    @property
    def parameters(self) -> dict[str, Any]:
        """What is changed of the protocol's parameters."""
        return self._of("parameters")

    @property
    def node_config(self) -> NodeConfig:
        """The runtime's limits and times."""
        return self._changed("node", NodeConfig())

    @property
    def retain(self) -> dict[str, Retention]:
        """How much of topics is kept."""
        return dict(retention_rules(self.texts("retain")))

    @property
    def sync_config(self) -> SyncConfig:
        """How what is missing is got from other nodes."""
        return self._changed("sync", SyncConfig())

    @property
    def members_config(self) -> MembersConfig:
        """How other nodes are found and kept."""
        return self._changed("members", MembersConfig())

    @property
    def store_config(self) -> StoreConfig:
        """The log's settings."""
        changes = self._of("store")
        known = [field for field in StoreConfig.__struct_fields__ if field != "durability"]
        for key in changes:
            if key not in known:
                raise ConfigError(f"store.{key}: there is no such setting; {nearest(key, known)}")
        try:
            config = msgspec.convert(changes, StoreConfig, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"store: {error}") from None
        config.validate()
        return config

    @property
    def protocol_config(self) -> Config:
        """The protocol's parameters, all of them."""
        return protocol(self.text("protocol")).configure(self.text("preset"), self.parameters)

    def node(
        self,
        home: Path | None,
        observers: Sequence[Observer] = (),
        *,
        supervises: bool = False,
        resume: bool = False,
    ) -> "Node":
        """A node with these settings; without a home, in memory."""
        from rumormill.node.node import Node

        kept = home is not None and self.text("durability") != Durability.MEMORY
        return Node(
            home,
            control=False,  # a daemon opens it when it is ready, for what it alone can do
            listen=self.texts("listen"),
            announce=self.texts("announce"),
            protocol=self.text("protocol"),
            preset=self.text("preset"),
            parameters=self.parameters,
            supervisors=self.texts("supervisors"),
            supervises=supervises,
            network=self.network,
            topic_keys=self.topic_keys,
            policies=self.policies,
            durability=self.text("durability") if kept else None,
            config=self.node_config,
            store=self.store_config,
            retain=self.retain,
            sync=self.sync_config,
            members=self.members_config,
            mdns=self.text("mdns") == "on",
            relays=self.texts("relays"),
            be_relay=self.text("be_relay") == "on",
            map_port=self.text("map_port") == "on",
            resume=resume,
            observers=observers,
        )

    def check_topic(self, topic: str, *, pattern: bool = False) -> None:
        """Refuse a name that no node would take, or that nobody could type again; and a pattern of
        names, unless it may be one."""
        most = protocol(self.text("protocol")).max_topic(self.protocol_config)
        try:
            size = len(topic.encode())
        except UnicodeEncodeError:
            raise CommandError("a topic name is text in UTF-8", USAGE) from None
        if not 0 < size <= most or not topic.isprintable():
            raise CommandError(
                f"{topic[:40]!r} is not a topic name: it has 1 to {most} bytes and no control"
                " characters",
                USAGE,
            )
        try:
            (Pattern if pattern else check_plain)(topic)
        except LocalError as error:
            raise CommandError(str(error), USAGE) from None

    def check(self) -> None:
        """Refuse what cannot work, before anything is opened."""
        assert self.protocol_config
        for key, choices in (
            ("durability", tuple(Durability)),
            ("mdns", ("on", "off")),
            ("be_relay", ("on", "off")),
            ("map_port", ("on", "off")),
            ("log_level", ("", "debug", "info", "warning", "error")),
            ("log_format", ("text", "json")),
        ):
            if self.text(key) not in choices:
                known = ", ".join(filter(None, choices))
                raise ConfigError(f"{key}: {self.text(key)!r} is not one of {known}")
        for key, read in _ADDRESSES.items():
            for text in self.texts(key):
                try:
                    read(text)
                except LocalError as error:
                    raise ConfigError(f"{key}: {error}") from None
        if self.texts("supervisors") and protocol(self.text("protocol")).servers is None:
            raise ConfigError(
                f"supervisors: {self.text('protocol')} has none; --protocol skipring has"
            )
        if self.text("trace") and not self.text("trace").endswith(LINE_SUFFIXES):
            raise ConfigError(f"trace: the name must end in {', '.join(LINE_SUFFIXES)}")
        metrics_endpoint(self.text("metrics"))
        flight_endpoint(self.text("flight"))
        if bool(self.text("flight_cert")) != bool(self.text("flight_key")):
            raise ConfigError("flight_cert, flight_key: TLS needs both")
        for topic in self.topic_keys:
            self.check_topic(topic)
        assert self.node_config
        assert self.members_config
        assert self.store_config


def resolve(options: argparse.Namespace) -> Resolved:
    """Find every setting, and refuse what cannot work."""
    resolved = _resolve(options, os.environ)
    resolved.check()
    return resolved


def _resolve(options: argparse.Namespace, environment: Mapping[str, str]) -> Resolved:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    changes: dict[str, Any] = {}

    def put(key: str, value: Any, origin: str) -> None:
        (changes if "." in key else values)[key] = value
        origins[key] = origin

    typed = {each.key: getattr(options, each.key, None) for each in SETTINGS}
    for each in SETTINGS:
        put(each.key, each.default, "default")
    home = typed["home"] or environment.get("RUMORMILL_HOME") or DEFAULT_HOME
    for key, value, origin in _file_settings(options, environment, Path(home).expanduser()):
        put(key, value, origin)
    for each in SETTINGS:
        text = environment.get(each.variable)
        if text:
            put(each.key, text.split() if each.many else text, each.variable)
        if typed[each.key] is not None:
            put(each.key, typed[each.key], each.flag)
    lists = {
        "RUMORMILL_SET": environment.get("RUMORMILL_SET", "").split(),
        "--set": getattr(options, "set", None),
    }
    for origin, texts in lists.items():
        for key, value in pairs(origin, texts, hint=", such as D=8"):
            table = "" if key.partition(".")[0] in TABLES[1:] else "parameters."
            put(f"{table}{key}", value, origin)
    for flag, key in _FLAGS_OF_TABLES.items():
        if listed := getattr(options, flag[2:].replace("-", "_"), None):
            put(key, listed, flag)
    return Resolved(values, origins, changes)


def _file_settings(
    options: argparse.Namespace, environment: Mapping[str, str], home: Path
) -> list[tuple[str, Any, str]]:
    """Key, value and origin of everything in the configuration file; tables by dotted name."""
    named = getattr(options, "config", None) or environment.get("RUMORMILL_CONFIG")
    path = Path(named).expanduser() if named else home / CONFIG_NAME
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        if named:
            raise ConfigError(f"config: there is no file {path}") from None
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config: cannot read {path}: {error}") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config: {path} is not TOML: {error}") from None
    known = {each.key: each for each in SETTINGS}
    found: list[tuple[str, Any, str]] = []
    for key, value in table.items():
        if key in TABLES and isinstance(value, dict):
            found += [(name, leaf, str(path)) for name, leaf in _leaves(value, key)]
            continue
        setting = known.get(key)
        if setting is None:
            raise ConfigError(f"config: {path} has {key!r}; {nearest(key, [*known, *TABLES])}")
        is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if not (is_list if setting.many else isinstance(value, str)):
            kind = "a list of texts" if setting.many else "a text"
            raise ConfigError(f"config: {key} in {path} must be {kind}")
        if key == "home" and not named:
            raise ConfigError(f"config: {path} lies in the home and cannot name another")
        found.append((key, value, str(path)))
    return found


def _leaves(table: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{name}.{key}")
        else:
            yield f"{name}.{key}", value


def run_config(options: argparse.Namespace) -> int:
    """Show every setting and where it comes from."""
    rows = list(_every_setting(resolve(options)))
    if options.json:
        print(json.dumps({key: {"value": value, "origin": origin} for key, value, origin in rows}))
        return 0
    shown = [(key, json.dumps(value), origin) for key, value, origin in rows]
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    widths[1] = min(widths[1], _WIDEST_VALUE)
    for key, text, origin in shown:
        print(f"{key:<{widths[0]}}  {text:<{widths[1]}}  {origin}")
    return 0


def _every_setting(resolved: Resolved) -> Iterator[tuple[str, Any, str]]:
    """Key, value and origin of each, those of the tables as they are used."""
    for key, value in resolved.values.items():
        yield key, value, resolved.origins[key]
    preset = resolved.text("preset")
    usual = dict(_leaves(_told(protocol(resolved.text("protocol")).configure("default", {})), ""))
    tables = {
        "parameters": resolved.protocol_config,
        "node": resolved.node_config,
        "store": resolved.store_config,
        "sync": resolved.sync_config,
        "members": resolved.members_config,
    }
    for table, config in tables.items():
        for key, value in _leaves(_told(config), table):
            if key == "store.durability":
                continue  # which has a name of its own above
            by_preset = table == "parameters" and value != usual.get(key.removeprefix(table))
            chosen = f"preset {preset}" if by_preset else "default"
            yield key, value, _origin(resolved, key) or chosen


def _origin(resolved: Resolved, key: str) -> str:
    """Who changed a setting of a table, or the whole that it is a part of."""
    while "." in key:
        if key in resolved.changes:
            return resolved.origins[key]
        key = key.rpartition(".")[0]
    return ""


def _told(config: msgspec.Struct) -> dict[str, Any]:
    """A configuration as plain values; what has no limit is null."""
    plain: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(msgspec.structs.asdict(config), enc_hook=str)
    )
    return plain
