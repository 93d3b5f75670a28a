"""The parser of all verbs, out of their help pages.

A verb's module is imported when the verb runs, not before; only the standard library is imported
here, because `rumormill --help` imports it.
"""

import argparse
import importlib
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from rumormill.cli.grammar import Formatter, Parser
from rumormill.cli.pages import EXAMPLES, PAGES
from rumormill.cli.shared_flags import SHARED
from rumormill.version import __version__

MODULES: Final = {
    "rumormill.cli.access": ("network", "topic-key", "policy", "reload"),
    "rumormill.cli.bench": ("bench",),
    "rumormill.cli.completion": ("completion",),
    "rumormill.cli.daemon": ("node", "supervisor", "serve-store"),
    "rumormill.cli.dashboard": ("dashboard",),
    "rumormill.cli.demo": ("demo",),
    "rumormill.cli.doctor": ("doctor",),
    "rumormill.cli.groups": ("groups",),
    "rumormill.cli.history": ("get", "history", "peers", "sync", "ticket"),
    "rumormill.cli.inspecting": ("inspect",),
    "rumormill.cli.milling": ("mill", "sweep", "report"),
    "rumormill.cli.pubsub": ("pub", "sub"),
    "rumormill.cli.settings": ("config",),
    "rumormill.cli.sim": ("sim",),
    "rumormill.cli.top": ("top",),
    "rumormill.cli.topics": ("topics",),
    "rumormill.cli.upkeep": (
        "retention",
        "backup",
        "restore",
        "export",
        "import",
        "compact",
        "repair",
    ),
}
"""Where verbs are carried out, each by a function `run_VERB`."""
_STAYS: Final = "rumormill.cli.daemon"
"""Where those are that no SIGHUP ends, also not while this is imported."""
_ASKS_OF_ALL: Final = "completion"
"""The verb that looks at all others."""


def _expanded(lines: str) -> str:
    """Lines with those that they name by `@` in their place."""
    return re.sub(r"(?m)^@(\w+)$", lambda match: _expanded(SHARED[match[1]]), lines)


def build_parser(verb: str = "") -> Parser:
    """Make the parser of every verb, or of the one that is asked for, which is sooner done."""
    alone = verb in PAGES and verb != _ASKS_OF_ALL
    parser = Parser(
        prog="rumormill",
        description="Brokerless topic publish/subscribe: nodes, and a simulator to study them.",
        epilog=EXAMPLES,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rumormill {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name in [verb] if alone else PAGES:
        brief, description, lines, examples = PAGES[name].split("\n\n")
        parser_of_verb = verbs.add_parser(
            name,
            help=brief,
            description=description,
            epilog=examples,
            formatter_class=Formatter,
            allow_abbrev=False,
        )
        parser_of_verb.add_lines(_expanded(lines))
        parser_of_verb.set_defaults(run=partial(_run, name))
    return parser


def _run(verb: str, options: argparse.Namespace) -> int:
    (module,) = (name for name, verbs in MODULES.items() if verb in verbs)
    if module == _STAYS:
        import signal

        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can hear what that asks for
    run: Callable[[argparse.Namespace], int]
    run = getattr(importlib.import_module(module), f"run_{verb.replace('-', '_')}")
    return run(options)
