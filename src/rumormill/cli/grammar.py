"""What every verb's parser is made of: errors, exit codes, help pages.

Only the standard library is imported here, because `rumormill --help` imports it.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeAlias

FAILURE: Final = 1
USAGE: Final = 2
TIMEOUT: Final = 3
DATA_LOSS: Final = 4


class CommandError(Exception):
    """The command cannot go on; its text is the one sentence that people read."""

    def __init__(self, sentence: str, code: int = FAILURE) -> None:
        super().__init__(sentence)
        self.code = code


class Option:
    """A flag that sets one value: its name, the key it sets, and the values worth completing."""

    __slots__ = ("flag", "key", "known", "metavar", "text")

    def __init__(
        self, flag: str, key: str, metavar: str, text: str, known: tuple[str, ...] = ()
    ) -> None:
        self.flag = flag
        self.key = key
        self.metavar = metavar
        self.text = text
        self.known = known

    @property
    def dest(self) -> str:
        """The name under which the parser keeps the value."""
        return self.flag.lstrip("-").replace("-", "_")


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


Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_verb(
    verbs: Verbs,
    name: str,
    *,
    brief: str,
    text: str,
    epilog: str,
    run: Callable[[argparse.Namespace], int],
) -> Parser:
    """Add a verb with its help page."""
    verb = verbs.add_parser(
        name,
        help=brief,
        description=text,
        epilog=epilog,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    verb.set_defaults(run=run)
    return verb


def late(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """A verb whose module is imported when it runs."""

    def run(options: argparse.Namespace) -> int:
        import importlib

        found: Callable[[argparse.Namespace], int] = getattr(
            importlib.import_module(module), function
        )
        return found(options)

    return run
