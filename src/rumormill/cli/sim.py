"""`rumormill sim`: from flags to scenarios, from runs to output.

The rule: nothing runs before everything that was typed has been checked, for every protocol of a
comparison.
"""

import argparse
import ast
import inspect
import json
import os
import shlex
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rumormill.cli.grammar import FAILURE, USAGE, CommandError
from rumormill.cli.options import SIM_OPTIONS
from rumormill.cli.show import progress_bar, show_runs
from rumormill.core.config import Config, nearest
from rumormill.core.errors import ConfigError
from rumormill.protocols.registry import protocol
from rumormill.sim.scenario import Churn, Scenario
from rumormill.trace.files import SUFFIXES


class Outputs(msgspec.Struct, frozen=True):
    """Where a run writes besides the screen."""

    trace: Path | None
    harness_logs: Path | None
    dump_state: Path | None


class PlannedRun(msgspec.Struct, frozen=True):
    """One run of a comparison, or the only run."""

    label: str
    scenario: Scenario


def run_sim(options: argparse.Namespace) -> int:
    """Run what was typed; return the exit code."""
    try:
        scenario, parameters = read_scenario(options)
        if options.list_parameters:
            return _list(scenario, parameters, as_json=options.json)
        planned = plan_runs(scenario, parameters, options.compare)
        outputs = Outputs(
            _checked_trace(options),
            _checked_harness_logs(options),
            _checked_dump(options),
        )
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from None
    replay = replay_command(options.typed, scenario.seed)
    runs = {}
    with progress_bar(len(planned)) as advance:
        for run in planned:
            runs[run.label] = _run(run, outputs, advance(run.label), options, replay)
    if options.json:
        figures = next(iter(runs.values()))
        if options.compare:
            listed = [{"label": label, **run} for label, run in runs.items()]
            figures = {"peers": scenario.peers, "seed": scenario.seed, "runs": listed}
        print(json.dumps(figures))
    else:
        show_runs(runs, scenario, replay)
    return 0


def read_scenario(options: argparse.Namespace) -> tuple[Scenario, dict[str, str]]:
    """Return the scenario file with the flags over it, and the protocol's parameters of `--set`."""
    scenario = Scenario.load(options.scenario) if options.scenario else Scenario()
    changes: dict[str, Any] = {}
    for option in SIM_OPTIONS:
        value = getattr(options, option.dest)
        if value is not None:
            changes[option.key] = value
    if options.compare is not None:
        for flag in ("protocol", "preset"):
            if flag in changes:
                raise ConfigError(f"--{flag}: --compare names what runs; write it there")
    if options.check_codec:
        changes["check_codec"] = True
    parameters: dict[str, str] = {}
    for text in options.set:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise ConfigError(f"--set: {text!r} is not KEY=VALUE, such as D=8")
        is_scenario_key = key.partition(".")[0] in Scenario.__struct_fields__
        (changes if is_scenario_key else parameters)[key] = value
    kind = changes.get("workload.kind", scenario.workload.kind)
    if kind == "reddit2007" and "workload.messages" in changes:
        changes["workload.limit"] = changes.pop("workload.messages")
    if isinstance(changes.get("churn"), str):
        churn = Churn.parse(changes.pop("churn"))
        changes |= {"churn.rate": churn.rate, "churn.fraction": churn.fraction}
    return scenario.changed(changes), parameters


def plan_runs(
    scenario: Scenario, parameters: Mapping[str, str], compare: str | None
) -> list[PlannedRun]:
    """Return what runs, each scenario complete and checked.

    In a comparison a parameter goes to those protocols that have it; one that none has is refused.
    """
    wanted: dict[str, Any] = {**scenario.parameters, **parameters}
    if compare is None:
        return [_planned(scenario.protocol, scenario, scenario.preset, wanted)]
    entries = [entry.strip() for entry in compare.split(",")]
    planned = []
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
        changed = scenario.changed({"protocol": name})
        planned.append(_planned(entry, changed, preset, fitting))
    for key in unused:
        hint = nearest(key.partition(".")[0], sorted(known))
        raise ConfigError(f"{key}: no protocol of --compare has such a parameter; {hint}")
    return planned


def _planned(
    label: str, scenario: Scenario, preset: str, parameters: Mapping[str, Any]
) -> PlannedRun:
    protocol(scenario.protocol).configure(preset, parameters)
    changes = {"preset": preset, "parameters": dict(parameters)}
    return PlannedRun(label, scenario.changed(changes))


def replay_command(typed: list[str], seed: int) -> str:
    """Return the command that repeats a run, with its seed spelled out."""
    named = any(word == "--seed" or word.startswith("--seed=") for word in typed)
    return shlex.join(["rumormill", *typed, *([] if named else ["--seed", str(seed)])])


def _run(
    run: PlannedRun,
    outputs: Outputs,
    progress: Callable[[float], None],
    options: argparse.Namespace,
    replay: str,
) -> dict[str, Any]:
    from rumormill.sim.run import run_scenario

    try:
        return run_scenario(
            run.scenario,
            trace=outputs.trace,
            harness_logs=outputs.harness_logs,
            dump_state=outputs.dump_state,
            progress=progress,
        )
    except ConfigError as error:
        raise CommandError(str(error), USAGE) from None
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        reason = " ".join(str(error).split()) or "no reason given"
        # A note of several lines spells out the scenario, for which the replay command stands here.
        known = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
        notes = "".join(f" ({note})" for note in known)
        raise CommandError(
            f"the run of {run.label} failed: {type(error).__name__}: {reason}{notes}\n"
            f"seed: {run.scenario.seed}\nreplay: {replay}",
            FAILURE,
        ) from error


def _checked_trace(options: argparse.Namespace) -> Path | None:
    if options.trace is None:
        return None
    if options.compare is not None:
        raise ConfigError("--trace: goes with one protocol; leave --compare out")
    path = Path(options.trace)
    if not path.name.endswith(SUFFIXES):
        raise ConfigError(f"--trace: the name must end in {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise ConfigError(f"--trace: {path} is a folder")
    if not path.parent.is_dir():
        raise ConfigError(f"--trace: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"--trace: cannot write to {path.parent}")
    return path


def _checked_harness_logs(options: argparse.Namespace) -> Path | None:
    if options.harness_logs is None:
        return None
    if options.compare is not None:
        raise ConfigError("--harness-logs: goes with one protocol; leave --compare out")
    return Path(options.harness_logs)


def _checked_dump(options: argparse.Namespace) -> Path | None:
    if options.dump_state is None:
        return None
    if options.compare is not None:
        raise ConfigError("--dump-state: goes with one protocol; leave --compare out")
    path = Path(options.dump_state)
    if path.is_dir():
        raise ConfigError(f"--dump-state: {path} is a folder")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"--dump-state: cannot write to {path.parent}")
    return path


def _list(scenario: Scenario, parameters: Mapping[str, str], *, as_json: bool) -> int:
    config = protocol(scenario.protocol).configure(
        scenario.preset, {**scenario.parameters, **parameters}
    )
    listed = list_parameters(config)
    if as_json:
        json.dump({"protocol": scenario.protocol, "parameters": listed}, sys.stdout)
        print()
    else:
        show_parameters(listed)
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


def show_parameters(listed: list[dict[str, Any]]) -> None:
    """Print parameters for people."""
    for entry in listed:
        value = msgspec.json.encode(entry["value"]).decode()
        print(f"{entry['name']} = {value}")
        if entry["text"]:
            print(textwrap.fill(entry["text"], 96, initial_indent="    ", subsequent_indent="    "))


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
