"""What every verb's parser is made of: errors, exit codes, help pages.

A verb's arguments are written as its help page shows them, one a line: a name, a shape, and behind
two spaces what it is for, which goes on in lines that are indented.

    --count N              a flag with a value; without a shape it is on or off
    --join TICKET*         a flag that may be repeated
    --to LAKE!             a flag that must be given
    --size BYTES = 1024    a flag with a default, which its help shows
    --flight [ADDRESS] = X   a flag whose value may be left out, and is X then
    kind {topic,event}     an argument that is one of these
    data [DATA]            an argument that may be left out, or come behind flags
    place:                 a heading for what follows; `options:` ends it
    @peer                  the lines of that name, which several verbs share

Only the standard library is imported here, because `rumormill --help` imports it.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

FAILURE: Final = 1
USAGE: Final = 2
TIMEOUT: Final = 3
DATA_LOSS: Final = 4

_LINE: Final = re.compile(r"((?:-\w, )?[\w-]+)(?: (\S.*?)([*!])?)?(?: = (\S+))?(?:  +(.*))?")
_UNUSUAL: Final[dict[str, dict[str, Any]]] = {
    "--topic": {"dest": "topics"},
    "--from": {"dest": "from_event"},
    "--supervisor": {"dest": "supervisors"},
    "--sub-topic": {"dest": "sub_topics"},
    "--topic-key": {"dest": "topic_keys"},
    "--policy": {"dest": "policies"},
    "--with": {"dest": "changes"},
    "--request-to-publish": {"default": None},
    "--no-request-to-publish": {"action": "store_false", "dest": "request_to_publish"},
}
"""Flags whose values have another name, and the only one that can be taken back."""


class CommandError(Exception):
    """The command cannot go on; its text is the one sentence that people read."""

    def __init__(self, sentence: str, code: int = FAILURE) -> None:
        super().__init__(sentence)
        self.code = code


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal, found without the imports that argparse spends on it."""

    def __init__(self, prog: str) -> None:
        try:
            columns = os.get_terminal_size(sys.stdout.fileno()).columns
        except (OSError, ValueError):
            columns = 100
        super().__init__(prog, max_help_position=26, width=max(60, min(columns, 100)))


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    late_argument = ""
    """An optional argument that may also come behind flags, which argparse does not see there."""

    def add_lines(self, lines: str) -> None:
        """Add arguments as a help page shows them."""
        group: argparse._ActionsContainer = self
        for line in re.sub(r"\n +", " ", lines).splitlines():
            if line.endswith(":") and "  " not in line:
                group = self if line == "options:" else self.add_argument_group(line[:-1])
            else:
                self._add_line(group, line)

    def _add_line(self, group: argparse._ActionsContainer, line: str) -> None:
        match = _LINE.fullmatch(line)
        assert match, line
        names, shape, mark, value, text = match.groups()
        settings: dict[str, Any] = {"help": text and text.replace("%", "%%")}
        if shape is None:
            settings["action"] = "store_true"
        elif shape[0] + shape[-1] == "[]":
            shape = shape[1:-1]
            settings |= {"nargs": "?", "const": value}
            if not names.startswith("-"):
                self.late_argument = names
        elif value is not None:
            settings |= {"default": value, "help": f"{text or ''} ({value})".strip()}
        if mark is not None:
            settings |= {"action": "append"} if mark == "*" else {"required": True}
        if shape and shape[0] == "{":
            settings["choices"] = tuple(shape[1:-1].split(","))
        elif shape:
            settings["metavar"] = shape
        if text is None and value is None:
            settings["help"] = argparse.SUPPRESS
        group.add_argument(*names.split(", "), **settings | _UNUSUAL.get(names, {}))

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and give a word that is left over to the late argument."""
        found, rest = super().parse_known_args(args, namespace)
        is_word = len(rest) == 1 and not rest[0].startswith("-")
        if self.late_argument and is_word and getattr(found, self.late_argument) is None:
            setattr(found, self.late_argument, rest.pop())
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Leave with one sentence and the way to help."""
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")
