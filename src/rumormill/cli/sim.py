"""`rumormill sim`: from flags to scenarios, from runs to output.

The rule: nothing runs before everything that was typed has been checked, for every protocol of a
comparison.
"""

import argparse
import ast
import contextlib
import inspect
import json
import os
import shlex
import textwrap
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rumormill.cli.grammar import FAILURE, CommandError
from rumormill.cli.numbers import pairs
from rumormill.cli.show import progress_bar, show_runs
from rumormill.core.config import Config, nearest
from rumormill.core.errors import ConfigError
from rumormill.protocols.registry import protocol
from rumormill.sim.churn import Churn, Unsubscribing
from rumormill.sim.scenario import Scenario
from rumormill.trace.files import SUFFIXES

if TYPE_CHECKING:
    from rumormill.cli.sim_dashboard import Watched

FLAGS: Final = {
    **{flag: flag for flag in ("protocol", "preset", "peers", "seed", "join", "start")},
    **{flag: flag for flag in ("churn", "unsubscribing")},
    **{flag: f"links.{flag}" for flag in ("latency", "jitter", "loss", "bandwidth")},
    **{flag: f"workload.{flag}" for flag in ("messages", "topics", "rate", "size")},
    "topology": "topology.kind",
    "degree": "topology.degree",
    "workload": "workload.kind",
}
"""The key of a scenario that each flag changes."""


def run_sim(options: argparse.Namespace) -> int:
    """Run what was typed; return the exit code."""
    scenario, parameters = read_scenario(options)
    if options.list_parameters:
        return _list(scenario, parameters, as_json=options.json)
    planned = plan_runs(scenario, parameters, options.compare)
    outputs = _checked_outputs(options)
    named = any(word == "--seed" or word.startswith("--seed=") for word in options.typed)
    seed = [] if named else ["--seed", str(scenario.seed)]
    replay = shlex.join(["rumormill", *options.typed, *seed])
    watch = _watching(options, scenario, replay) if options.dashboard else contextlib.nullcontext()
    with watch as watched:
        runs = {}
        with progress_bar(len(planned)) as advance:
            for label, run in planned.items():
                runs[label] = _run(label, run, outputs, advance(label), options, replay, watched)
        _print_runs(runs, scenario, options, replay)
        if watched is not None:
            watched.wait()
    return 0


def _print_runs(
    runs: Mapping[str, dict[str, Any]], scenario: Scenario, options: argparse.Namespace, replay: str
) -> None:
    if options.json:
        figures = next(iter(runs.values()))
        if options.compare:
            listed = [{"label": label, **run} for label, run in runs.items()]
            figures = {"peers": scenario.peers, "seed": scenario.seed, "runs": listed}
        print(json.dumps(figures))
    else:
        show_runs(runs, scenario, replay)


def _watching(
    options: argparse.Namespace, scenario: Scenario, replay: str
) -> contextlib.AbstractContextManager["Watched | None"]:
    from rumormill.cli.sim_dashboard import watching

    return watching(options.dashboard, scenario, replay, opens=options.open)


def read_scenario(options: argparse.Namespace) -> tuple[Scenario, dict[str, str]]:
    """Return the scenario file with the flags over it, and the protocol's parameters of `--set`."""
    scenario = Scenario.load(options.scenario) if options.scenario else Scenario()
    changes: dict[str, Any] = {}
    for flag, key in FLAGS.items():
        if getattr(options, flag) is not None:
            changes[key] = getattr(options, flag)
    if options.compare is not None:
        for flag in ("protocol", "preset"):
            if flag in changes:
                raise ConfigError(f"--{flag}: --compare names what runs; write it there")
    if options.check_codec:
        changes["check_codec"] = True
    parameters: dict[str, str] = {}
    for key, value in pairs("--set", options.set, hint=", such as D=8"):
        is_scenario_key = key.partition(".")[0] in Scenario.__struct_fields__
        (changes if is_scenario_key else parameters)[key] = value
    kind = changes.get("workload.kind", scenario.workload.kind)
    if kind == "reddit2007" and "workload.messages" in changes:
        changes["workload.limit"] = changes.pop("workload.messages")
    for kind in (Churn, Unsubscribing):
        if isinstance(changes.get(kind.table), str):
            given = kind.parse(changes.pop(kind.table))
            changes[f"{kind.table}.rate"] = given.rate
            changes[f"{kind.table}.fraction"] = given.fraction
    return scenario.changed(changes), parameters


def plan_runs(
    scenario: Scenario, parameters: Mapping[str, str], compare: str | None
) -> dict[str, Scenario]:
    """Return what runs, by its label, each scenario complete and checked.

    In a comparison a parameter goes to those protocols that have it; one that none has is refused.
    """
    wanted: dict[str, Any] = {**scenario.parameters, **parameters}
    if compare is None:
        return {scenario.protocol: _planned(scenario, scenario.preset, wanted)}
    entries = [entry.strip() for entry in compare.split(",")]
    planned = {}
    unused = dict(wanted)
    known: dict[str, None] = {}
    for entry in entries:
        name, _, preset = entry.partition(":")
        if entries.count(entry) > 1:
            raise ConfigError(f"--compare: {entry} is named twice")
        own = protocol(name).configure(preset or "default").__struct_fields__
        known |= dict.fromkeys(own)
        fitting = {key: wanted[key] for key in wanted if key.partition(".")[0] in own}
        for key in fitting:
            unused.pop(key, None)
        if not preset:
            preset = scenario.preset if name == scenario.protocol else "default"
        planned[entry] = _planned(scenario.under(name), preset, fitting)
    for key in unused:
        hint = nearest(key.partition(".")[0], sorted(known))
        raise ConfigError(f"{key}: no protocol of --compare has such a parameter; {hint}")
    return planned


def _planned(scenario: Scenario, preset: str, parameters: Mapping[str, Any]) -> Scenario:
    protocol(scenario.protocol).configure(preset, parameters)
    return scenario.changed({"preset": preset, "parameters": dict(parameters)})


def _run(
    label: str,
    scenario: Scenario,
    outputs: Mapping[str, Path],
    progress: Callable[[float], None],
    options: argparse.Namespace,
    replay: str,
    watched: "Watched | None",
) -> dict[str, Any]:
    from rumormill.sim.run import run_scenario

    watch = {} if watched is None else watched.run(label)
    try:
        return run_scenario(
            scenario,
            trace=outputs.get("trace"),
            harness_logs=outputs.get("harness_logs"),
            dump_state=outputs.get("dump_state"),
            progress=progress,
            **watch,
        )
    except ConfigError:
        raise
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        reason = " ".join(str(error).split()) or "no reason given"
        # A note of several lines spells out the scenario, for which the replay command stands here.
        known = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
        notes = "".join(f" ({note})" for note in known)
        raise CommandError(
            f"the run of {label} failed: {type(error).__name__}: {reason}{notes}\n"
            f"seed: {scenario.seed}\nreplay: {replay}",
            FAILURE,
        ) from error


def _checked_outputs(options: argparse.Namespace) -> dict[str, Path]:
    """Where a run writes besides the screen, by flag; what could not be written is refused."""
    found: dict[str, Path] = {}
    for flag in ("trace", "harness_logs", "dump_state"):
        typed, name = getattr(options, flag), f"--{flag.replace('_', '-')}"
        if typed is None:
            continue
        if options.compare is not None:
            raise ConfigError(f"{name}: goes with one protocol; leave --compare out")
        path = found[flag] = Path(typed)
        if flag == "harness_logs":
            continue  # a folder, which is made
        if flag == "trace" and not path.name.endswith(SUFFIXES):
            raise ConfigError(f"{name}: the name must end in {', '.join(SUFFIXES)}")
        if path.is_dir():
            raise ConfigError(f"{name}: {path} is a folder")
        if not path.parent.is_dir():
            raise ConfigError(f"{name}: there is no folder {path.parent}")
        if not os.access(path.parent, os.W_OK):
            raise ConfigError(f"{name}: cannot write to {path.parent}")
    return found


def _list(scenario: Scenario, parameters: Mapping[str, str], *, as_json: bool) -> int:
    config = protocol(scenario.protocol).configure(
        scenario.preset, {**scenario.parameters, **parameters}
    )
    listed = list_parameters(config)
    if as_json:
        print(json.dumps({"protocol": scenario.protocol, "parameters": listed}))
        return 0
    for entry in listed:
        print(f"{entry['name']} = {msgspec.json.encode(entry['value']).decode()}")
        if entry["text"]:
            print(textwrap.fill(entry["text"], 96, initial_indent="    ", subsequent_indent="    "))
    return 0


def list_parameters(config: Config, prefix: str = "") -> list[dict[str, Any]]:
    """Return name, value and text of every parameter; nested ones by dotted name."""
    texts = _texts(type(config))
    listed: list[dict[str, Any]] = []
    for field in msgspec.structs.fields(config):
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        if isinstance(value, Config):
            listed += list_parameters(value, f"{name}.")
        else:
            plain = msgspec.json.decode(msgspec.json.encode(value))
            listed.append({"name": name, "value": plain, "text": texts.get(field.name, "")})
    return listed


def _texts(kind: type) -> dict[str, str]:
    """The text of each field of a class and of those it inherits from: the string that stands below
    it in the source, so that there is one place to write it."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not issubclass(owner, Config):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[name] = " ".join(text.split())
    return texts
