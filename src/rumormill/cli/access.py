"""`rumormill network`, `topic-key`, `policy` and `reload`: the files that say who may come in, read
a topic, and write in it."""

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

from rumormill.cli.grammar import USAGE, CommandError
from rumormill.cli.logs import begin
from rumormill.cli.numbers import whole
from rumormill.cli.printing import iso, plain
from rumormill.cli.reloading import as_told
from rumormill.cli.session import no_node, run_async, running_node
from rumormill.cli.settings import Resolved
from rumormill.core.errors import DecodeError
from rumormill.node.identity import (
    KEY_FILE,
    create_network,
    create_policy,
    create_topic_key,
    load_network,
    load_or_create_key,
    load_policy,
    load_topic_keys,
    rotate_topic_key,
)
from rumormill.node.policy import sign_policy
from rumormill.wire.keys import PeerId


def run_network(options: argparse.Namespace) -> int:
    """Make a key file, or look at one."""
    path = Path(options.file or "swarm.key").expanduser().absolute()
    network = create_network(path) if options.action == "new" else load_network(path)
    assert network is not None
    if options.json:
        print(json.dumps({"file": str(path), "fingerprint": network.fingerprint}))
    else:
        print(f"{path}\nfingerprint: {network.fingerprint}")
    return 0


def run_topic_key(options: argparse.Namespace) -> int:
    """Make a key file, put a new key into one, or look at one."""
    path = Path(options.file).expanduser().absolute()
    keys = _KEY_ACTIONS[options.action](path)
    if options.json:
        print(json.dumps({"file": str(path), "keys": keys.ids}))
    else:
        print(f"{path}\nkeys: {' '.join(keys.ids)}")
    return 0


_KEY_ACTIONS: Final = {
    "new": create_topic_key,
    "rotate": rotate_topic_key,
    "show": load_topic_keys,
}


def run_reload(options: argparse.Namespace) -> int:
    """Have the running node read its files again."""
    return run_async(_reload(begin(options), as_json=options.json))


async def _reload(resolved: Resolved, *, as_json: bool) -> int:
    async with running_node(resolved) as service:
        if service is None:
            raise no_node(resolved, "; its files are read when it starts")
        found = as_told(await service.reload())
    if as_json:
        print(json.dumps({"home": str(resolved.home), **found}))
        return 0
    print(resolved.home)
    for name, keys in found.items():
        if keys:
            print(f"{name.replace('_', ' ')}: {', '.join(keys)}")
    return 0


def run_policy(options: argparse.Namespace) -> int:
    """Make a policy, or look at one."""
    path = Path(options.file).expanduser().absolute()
    if options.action == "new":
        _create(options, path)
    elif options.topics or options.publisher or options.number:
        raise CommandError("policy show takes a file alone", USAGE)
    shown = _shown(path)
    if options.json:
        print(json.dumps(shown))
    else:
        for name, value in shown.items():
            print(f"{name}: {plain(' '.join(value) if isinstance(value, list) else str(value))}")
    return 0


def _create(options: argparse.Namespace, path: Path) -> None:
    if not options.topics or not options.publisher:
        raise CommandError("policy new needs --topic and at least one --publisher", USAGE)
    resolved = begin(options)
    resolved.check_topic(options.topics)
    try:
        publishers = tuple(dict.fromkeys(bytes(PeerId.parse(who)) for who in options.publisher))
    except DecodeError as error:
        raise CommandError(f"--publisher: not a peer id: {error.detail}", USAGE) from None
    key = load_or_create_key(resolved.home / KEY_FILE)
    version = whole("--number", options.number) or 1
    create_policy(path, sign_policy(key, options.topics, publishers, version, int(time.time())))


def _date(seconds: int) -> str:
    """When the owner says that it was; as a number where no calendar has that."""
    try:
        return iso(seconds)
    except (OverflowError, ValueError):
        return f"{seconds} seconds since 1970"


def _shown(path: Path) -> dict[str, Any]:
    policy = load_policy(path)
    return {
        "file": str(path),
        "topic": policy.topic,
        "publishers": [str(PeerId(who)) for who in policy.publishers],
        "version": policy.version,
        "created": _date(policy.created),
        "owner": str(PeerId(policy.owner)),
    }
