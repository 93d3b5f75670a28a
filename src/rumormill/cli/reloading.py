"""Settings read again by a running node: on SIGHUP, and by `rumormill reload`.

Flags and the environment stay as they were when it started; the file may have changed. What can be
changed while it runs is: keys and policies, retention, logging, more topics and tickets. Of
everything else it is said that it waits for a restart. If anything cannot be used, all stays as it
is. The rule: a signal never ends a node because of what a file says.
"""

import argparse
import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from rumormill.cli.logs import set_up
from rumormill.cli.notify import READY, notify, reloading
from rumormill.cli.settings import Resolved, resolve
from rumormill.core.errors import RumormillError
from rumormill.daemon.control_messages import Reloaded
from rumormill.node.node import Node

_LIVE: Final = frozenset(
    ["topic_keys", "policies", "retain", "topics", "join", "log_level", "log_format"]
)

_log = logging.getLogger("rumormill.node")


class Reloader:
    """The settings that a node has, and how it gets others."""

    def __init__(
        self,
        options: argparse.Namespace,
        resolved: Resolved,
        node: Node,
        join: Callable[[str], None],
    ) -> None:
        self._options = options
        self._node = node
        self._join = join
        self._has = _settings(resolved)

    async def __call__(self) -> Reloaded:
        """Read everything again and use what can be used now."""
        new = resolve(self._options)
        wanted = _settings(new)
        keys = {**self._has, **wanted}
        differs = [key for key in keys if self._has.get(key) != wanted.get(key)]
        changed = [key for key in differs if key in _LIVE]
        later = [key for key in differs if key not in _LIVE]
        for topic in new.texts("topics"):
            new.check_topic(topic)
        retain = new.retain
        self._node.access.use(new.topic_keys, new.policies)  # all of it, or an error
        self._node.set_retention(retain)
        set_up(new, "info")
        for topic in self._added("topics", wanted):
            (await self._node.subscribe(topic)).close()
        for ticket in self._added("join", wanted):
            self._join(ticket)
        self._has |= {key: wanted[key] for key in changed}
        return Reloaded(changed, later)

    async def on_signals(self, told: asyncio.Event) -> None:
        """Reload whenever told to, and log what came of it."""
        while True:
            await told.wait()
            told.clear()
            notify(*reloading())
            try:
                found = await self()
            except (RumormillError, OSError) as error:
                _log.warning("nothing is reloaded: %s", error)
            else:
                fields = {key: ",".join(keys) for key, keys in as_told(found).items() if keys}
                _log.info("reloaded", extra={"fields": fields})
            notify(READY)

    def _added(self, key: str, wanted: dict[str, Any]) -> list[str]:
        return [each for each in wanted[key] if each not in self._has[key]]


def as_told(found: Reloaded) -> dict[str, list[str]]:
    """What people read of it."""
    return {"changed": found.changed, "after_a_restart": found.later}


def _settings(resolved: Resolved) -> dict[str, Any]:
    return {**resolved.values, **resolved.changes}
