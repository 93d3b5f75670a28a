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
from collections.abc import Iterable, Sequence
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
    "--relay": {"dest": "relays"},
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
        elif shape.endswith("...") and not names.startswith("-"):
            settings["nargs"], shape = "*", shape[:-3]
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
        if args is not None and self._subparsers is None:
            self._check_flags(args)
        found, rest = super().parse_known_args(args, namespace)
        is_word = len(rest) == 1 and not rest[0].startswith("-")
        if self.late_argument and is_word and getattr(found, self.late_argument) is None:
            setattr(found, self.late_argument, rest.pop())
        return found, rest

    def _check_flags(self, args: Sequence[str]) -> None:
        """Refuse a flag that the verb does not have before its value is taken for an argument."""
        known = self._option_string_actions
        for each in args[: args.index("--")] if "--" in args else args:
            flag = each.partition("=")[0]
            if flag.startswith("--") and flag not in known:
                self.error(f"there is no {flag}{_meant(flag, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is not one of the choices, and name the one that was meant."""
        choices = [*map(str, action.choices or ())]
        if choices and value not in choices:
            what = "verb" if isinstance(action, argparse._SubParsersAction) else action.dest
            meant = _meant(value, choices) or f" ({', '.join(choices)})"
            raise argparse.ArgumentError(None, f"there is no {what} {value!r}{meant}")

    def error(self, message: str) -> NoReturn:
        """Leave with one sentence and the way to help."""
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def _meant(name: str, known: Iterable[str]) -> str:
    """The question whether a name was meant that is close to what was typed; empty if none is."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def behind_the_verb(arguments: Sequence[str]) -> list[str]:
    """The same command with `--home DIR` at its end, wherever it was typed."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    rest, home = list(arguments[:end]), list[str]()
    for at in [at for at, each in enumerate(rest) if each.partition("=")[0] == "--home"][::-1]:
        size = 1 if "=" in rest[at] else 2
        home[:0] = rest[at : at + size]
        del rest[at : at + size]
    return [*rest, *home, *arguments[end:]]
