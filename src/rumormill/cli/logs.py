"""Structured logs on stderr: a line of text, or a JSON object a line."""

import argparse
import json
import logging
import sys

from rumormill.cli.printing import iso, plain
from rumormill.cli.settings import Resolved, resolve
from rumormill.core import trace
from rumormill.trace.entries import Batch
from rumormill.wire.keys import PeerId

_log = logging.getLogger("rumormill.node")


class _Lines(logging.Formatter):
    """Time, level, logger, message, and what the call gave as `extra={"fields": ...}`."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        when, level, message = iso(record.created), record.levelname.lower(), record.getMessage()
        fields = getattr(record, "fields", {})
        error = self.formatException(record.exc_info) if record.exc_info else ""
        if self._as_json:
            line = {"time": when, "level": level, "logger": record.name, "message": message}
            return json.dumps({**line, **fields, **({"error": error} if error else {})})
        tail = "".join(f" {key}={value}" for key, value in fields.items())
        return f"{when} {level}: {plain(message + tail)}" + (f"\n{error}" if error else "")


def begin(options: argparse.Namespace, default_level: str = "warning") -> Resolved:
    """Find every setting of a verb, and log to stderr as they say."""
    resolved = resolve(options)
    set_up(resolved, default_level)
    return resolved


def set_up(resolved: Resolved, default_level: str) -> None:
    """Log to stderr as the settings say."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(as_json=resolved.text("log_format") == "json"))
    logging.basicConfig(
        level=(resolved.text("log_level") or default_level).upper(), handlers=[handler], force=True
    )


class LogObserver:
    """Logs what the trace says of peers and topics; every single refusal only at level debug."""

    def observe(self, batch: Batch) -> None:
        """Log the next entries of the trace."""
        debug = _log.isEnabledFor(logging.DEBUG)
        for _, _, entry in batch:
            match entry:
                case trace.AddPeer(peer, protocol):
                    _say(logging.INFO, "peer connected", peer=_name(peer), protocol=protocol)
                case trace.RemovePeer(peer):
                    _say(logging.INFO, "peer gone", peer=_name(peer))
                case trace.Join(topic):
                    _say(logging.INFO, "joined topic", topic=topic)
                case trace.Leave(topic):
                    _say(logging.INFO, "left topic", topic=topic)
                case trace.Refuse(peer, reason) | trace.Penalise(peer, reason) if debug:
                    kind = type(entry).__name__.lower()
                    _say(logging.DEBUG, kind, peer=_name(peer), reason=reason)
                case trace.DropRPC() if debug:
                    _say(logging.DEBUG, "drop", peer=_name(entry.send_to), reason=entry.reason)
                case trace.RejectMessage() if debug:
                    _say(logging.DEBUG, "reject", topic=entry.topic, reason=entry.reason)

    def close(self) -> None:
        """Nothing is kept."""


def _say(level: int, message: str, **fields: str) -> None:
    _log.log(level, message, extra={"fields": fields})


def _name(peer: bytes) -> str:
    return str(PeerId(peer))
