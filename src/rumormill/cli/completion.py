"""`rumormill completion`: scripts that complete what the parser knows.

The words come from the parser itself, so that a new flag completes without being listed twice.
Scripts are static: pressing the tab key starts no Python.
"""

import argparse
import shlex
from typing import Final

from rumormill.cli.grammar import Parser
from rumormill.cli.shared_flags import PROTOCOLS

KNOWN: Final = {
    "--protocol": " ".join(PROTOCOLS),
    "--preset": "default design ethereum few hardening open ordered",
    "--log-level": "debug info warning error",
    "--log-format": "text json",
    "--durability": "fsync os memory",
}
"""The values worth completing, by flag."""
KNOWN_OF_SIM: Final = KNOWN | {
    "--join": "one-by-one all-at-once",
    "--start": "empty legitimate arbitrary",
    "--topology": "random-regular ring-random star tree line complete self-formed",
    "--latency": "constant:50ms uniform:10ms-100ms normal:50ms,10ms regions planetlab",
    "--bandwidth": "unlimited 10mbit 10mbit/50mbit regions",
    "--workload": "fixed poisson zipf reddit2007",
}
"""To `sim` some flags mean something else."""


def run_completion(options: argparse.Namespace) -> int:
    """Print the script of a shell."""
    (verbs,) = (each for each in options.parser._actions if each.metavar == "VERB")
    parsers: dict[str, Parser] = dict(verbs.choices or {})
    if options.shell == "fish":
        print(_fish(parsers))
    else:
        print(_bash(parsers, zsh=options.shell == "zsh"))
    return 0


def _flags(parser: Parser) -> list[str]:
    return [
        flag for action in parser._actions for flag in action.option_strings if flag[:2] == "--"
    ]


def _words(parser: Parser) -> list[str]:
    """What may follow a verb: its flags and the values of its arguments."""
    values = [
        str(choice)
        for action in parser._actions
        if not action.option_strings
        for choice in action.choices or ()
    ]
    return values + _flags(parser)


def _bash(parsers: dict[str, Parser], *, zsh: bool) -> str:
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if zsh else []
    lines += [
        "_rumormill() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        "    local words=''",
        '    case "${COMP_WORDS[1]} $before" in',
    ]
    for name, parser in parsers.items():
        own = _flags(parser)
        for flag, values in (KNOWN_OF_SIM if name == "sim" else KNOWN).items():
            if flag in own:
                pattern = shlex.quote(f"{name} {flag}")
                lines.append(f"        {pattern}) words={shlex.quote(values)} ;;")
    lines += ["        *)", '            case "${COMP_WORDS[1]}" in']
    for name, parser in parsers.items():
        lines.append(f"                {name}) words={shlex.quote(' '.join(_words(parser)))} ;;")
    lines += [
        "            esac",
        '            if [ "$COMP_CWORD" -eq 1 ]; then',
        f"                words={shlex.quote(' '.join([*parsers, '--help', '--version']))}",
        "            fi ;;",
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "}",
        "complete -o default -F _rumormill rumormill",
    ]
    return "\n".join(lines)


def _fish(parsers: dict[str, Parser]) -> str:
    lines = []
    for name, parser in parsers.items():
        lines.append(f"complete -c rumormill -n __fish_use_subcommand -a {name}")
        seen = f"complete -c rumormill -n '__fish_seen_subcommand_from {name}'"
        known = KNOWN_OF_SIM if name == "sim" else KNOWN
        for word in _words(parser):
            if not word.startswith("--"):
                lines.append(f"{seen} -a {word}")
            elif word in known:
                lines.append(f"{seen} -l {word[2:]} -x -a {shlex.quote(known[word])}")
            else:
                lines.append(f"{seen} -l {word[2:]}")
    return "\n".join(lines)
