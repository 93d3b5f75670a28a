"""Help, version and completion: quick, complete, true."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from processes import environment, rumormill
from rumormill import __version__
from rumormill.cli.completion import KNOWN_OF_SIM
from rumormill.cli.grammar import Parser, behind_the_verb
from rumormill.cli.parser import build_parser
from rumormill.cli.shared_flags import PROTOCOLS
from rumormill.cli.sim import FLAGS
from rumormill.daemon.endpoint import FLIGHT_ENDPOINT
from rumormill.protocols.registry import PROTOCOL_NAMES, protocol
from rumormill.sim.scenario import Scenario, TopologyKind, WorkloadKind

VERBS = (
    "demo", "node", "pub", "sub", "history", "topics", "peers", "doctor", "config", "bench", "sim",
    "mill", "sweep", "report", "inspect", "completion", "ticket",
)  # fmt: skip
KNOWN = {flag: tuple(values.split()) for flag, values in KNOWN_OF_SIM.items()}


def test_the_version_is_printed() -> None:
    assert rumormill("--version").stdout == f"rumormill {__version__}\n"


@pytest.mark.parametrize("page", [(), *((verb,) for verb in VERBS)])
def test_every_help_page_ends_with_examples(page: tuple[str, ...]) -> None:
    """Examples come last and each can be pasted."""
    done = rumormill(*page, "--help")
    assert done.returncode == 0
    examples = done.stdout.partition("\nexamples:\n")[2].splitlines()
    assert examples
    assert all("rumormill" in line or line.startswith("      ") for line in examples)


@pytest.mark.parametrize(
    "page", [("--help",), ("sim", "--help"), ("pub", "--help"), ("demo", "--help"), ("--version",)]
)
def test_help_imports_nothing_heavy(page: tuple[str, ...]) -> None:
    """Help is quick because neither the simulator nor any dependency is imported for it."""
    program = (
        "import sys\nfrom rumormill.cli import main\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *page],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    loaded = done.stderr.split()
    ours = [name for name in loaded if name.startswith("rumormill.")]
    assert sorted(ours) == [
        "rumormill.cli",
        "rumormill.cli.grammar",
        "rumormill.cli.node_pages",
        "rumormill.cli.pages",
        "rumormill.cli.parser",
        "rumormill.cli.shared_flags",
        "rumormill.version",
    ]
    heavy = {"rich", "msgspec", "asyncio", "inspect", "dataclasses", "pyarrow", "google"}
    assert not heavy & {*loaded}


def test_what_help_names_is_what_there_is() -> None:
    """Help lists names without importing them; here they are compared with the real ones."""
    assert PROTOCOLS == PROTOCOL_NAMES
    assert build_parser().parse_args(["node", "--flight"]).flight == str(FLIGHT_ENDPOINT)
    assert KNOWN["--workload"] == get_args(WorkloadKind)
    assert {*KNOWN["--topology"]} == {*get_args(TopologyKind)} - {"file"}
    presets = dict.fromkeys(name for each in PROTOCOLS for name in protocol(each).presets)
    assert {*KNOWN["--preset"]} == {*presets}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_known_value_is_accepted(flag: str) -> None:
    """No flag offers a value that its scenario key refuses."""
    for value in KNOWN.get(f"--{flag}", ()):
        Scenario().changed({FLAGS[flag]: value})


def test_no_parameter_is_hidden_by_a_scenario_key() -> None:
    """`--set` decides by the name alone whether a protocol or the scenario is meant."""
    for name in PROTOCOL_NAMES:
        for config in protocol(name).presets.values():
            assert not {*config.__struct_fields__} & {*Scenario.__struct_fields__}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_flag(shell: str) -> None:
    done = rumormill("completion", shell)
    assert done.returncode == 0
    for flag in FLAGS:
        assert (flag if shell == "fish" else f"--{flag}") in done.stdout


def test_bash_completes_verbs_flags_and_values() -> None:
    """The script, sourced by a real bash, offers what fits the word before the cursor."""
    script = rumormill("completion", "bash").stdout

    def completed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        program = (
            f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
            '_rumormill; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("rumormill", "s") == [
        "supervisor",
        "serve-store",
        "sub",
        "sync",
        "sim",
        "sweep",
    ]
    assert completed("rumormill", "sub", "--jo") == ["--join"]
    assert completed("rumormill", "sub", "--join", "one") == []
    assert completed("rumormill", "sim", "--join", "one") == ["one-by-one"]
    assert completed("rumormill", "node", "--durability", "f") == ["fsync"]
    assert completed("rumormill", "sim", "--pe") == ["--peers"]
    assert completed("rumormill", "sim", "--protocol", "g") == ["gossipsub"]
    assert "zsh" in completed("rumormill", "completion", "")


def test_without_a_verb_one_sentence_points_to_help() -> None:
    done = rumormill()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--help" in done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("histroy news", "there is no verb 'histroy' (did you mean history?)"),
        ("topcis", "(did you mean topics?)"),
        ("topics shwo CID", "there is no action 'shwo' (did you mean show?)"),
        ("node --lissten=/ip4/127.0.0.1/tcp/0", "there is no --lissten (did you mean --listen?)"),
        ("sub news --history al", "(did you mean all?)"),
        ("zzz", "there is no verb 'zzz' (demo, node, "),
    ],
)
def test_what_was_mistyped_is_answered_with_what_was_meant(typed: str, meant: str) -> None:
    done = rumormill(*typed.split())
    assert done.returncode == 2
    assert meant in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "--home {} topics show CID",
        "--home={} topics show CID",
        "topics --home {} show CID",
        "topics show --home {} CID",
        "topics show CID --home {}",
    ],
)
def test_home_may_stand_anywhere(line: str, tmp_path: Path) -> None:
    """Before the verb too; what stands behind `--` is no flag."""
    found = build_parser().parse_args(behind_the_verb(line.format(tmp_path).split()))
    assert (found.home, found.action, found.subject) == (str(tmp_path), "show", "CID")
    done = rumormill(*line.format(tmp_path).split())
    assert (done.returncode, done.stderr.count("'CID' names no topic")) == (2, 1)


def test_what_is_behind_two_dashes_is_no_home() -> None:
    assert behind_the_verb(["--home", "a", "pub", "t", "--", "--home", "b"]) == [
        *("pub", "t", "--home", "a"),
        *("--", "--home", "b"),
    ]


def test_the_parser_of_one_verb_is_that_of_the_verb_among_all() -> None:
    """It is made alone, but for the verb that looks at all others."""

    def helps(parser: Parser) -> dict[str, str]:
        (verbs,) = (each for each in parser._actions if each.metavar == "VERB")
        return {name: verb.format_help() for name, verb in dict(verbs.choices or {}).items()}

    every = helps(build_parser())
    assert len(every) > 30
    assert helps(build_parser("completion")) == helps(build_parser("no verb")) == every
    for name in every.keys() - {"completion"}:
        assert helps(build_parser(name)) == {name: every[name]}
