"""The way of an event, as `docs/architecture.md` draws it: few classes, one thread each way."""

import sys
import threading
from types import FrameType
from typing import Any

from network import run, take

from rumormill import Node

MOST_CLASSES = 20


class Passed:
    """The classes of ours whose methods run, by thread, while it watches."""

    def __init__(self) -> None:
        self.classes: dict[str, dict[str, None]] = {}

    def __enter__(self) -> "Passed":
        threading.setprofile_all_threads(self._see) if sys.version_info >= (3, 12) else None
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        if sys.version_info >= (3, 12):
            threading.setprofile_all_threads(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/rumormill/" in frame.f_code.co_filename:
            who = frame.f_locals.get("self")
            if who is not None and type(who).__module__.startswith("rumormill"):
                seen = self.classes.setdefault(threading.current_thread().name, {})
                seen[type(who).__name__] = None
