"""The command line: `rumormill VERB ...`.

The rules of the house: results go to stdout, everything else to stderr; `--json` prints one JSON
object (or, from verbs that stream, one a line) and nothing else; an error is one sentence; exit
codes are 0 for success, 1 for a failure, 2 for a wrong command or configuration, 3 for a timeout, 4
for lost data, 130 for Ctrl-C. Help must come at once, so a verb's
modules are imported when the verb runs, not before: this module and those of the parser import
nothing but the standard library.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from rumormill.cli.grammar import (
    DATA_LOSS,
    FAILURE,
    TIMEOUT,
    USAGE,
    CommandError,
    behind_the_verb,
)
from rumormill.cli.parser import build_parser

INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
_CODES = {"timeout": TIMEOUT, "damaged": DATA_LOSS, "usage": USAGE}
"""The kinds of errors, here and in a node that runs elsewhere, as exit codes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        words = behind_the_verb(arguments)
        parser = build_parser(*words[:1])
        options = parser.parse_args(words, argparse.Namespace(parser=parser))
        # What a failed run tells people to type again.
        options.typed = arguments
        code: int = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("rumormill: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough; keep the interpreter from complaining about it on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        print(f"rumormill: {told}", file=sys.stderr)
        return told.code
    return code


def _told(error: Exception) -> CommandError | None:
    """What people read of an error, and its exit code; None for a bug, which shows where it is."""
    if isinstance(error, CommandError):
        return error
    if isinstance(error, OSError):
        return CommandError(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    from rumormill.core.errors import RumormillError
    from rumormill.daemon.control_errors import error_code

    if not isinstance(error, RumormillError):
        return None
    return CommandError(" ".join(str(error).split()), _CODES.get(error_code(error), FAILURE))
