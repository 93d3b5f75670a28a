"""Sweeps: the simulations of a grid, run inside Spark's tasks and milled into the lake.

A grid is a TOML file: a scenario that all runs share, and lists of what differs. Every combination
is one run. The rule is that of scenarios: whatever a file says is used or refused with its key, and
all runs are checked before the first begins.

    name = "paper"
    scenario = "reddit2007.toml"          # beside the grid; or a table [base] in its place
    protocols = ["floodsub", "gossipsub", "gossipsub:ethereum", "pulsarcast"]
    peers = [50, 100]
    seeds = [1, 2, 3]

    [parameters.gossipsub]                # of one protocol: every combination of these
    D = [6, 8]

    [conditions.calm]                     # keys of a scenario by their dotted names
    [conditions.lossy]
    "links.loss" = 0.05

Simulations are packed, so that tasks are few and long: each task takes about the same estimated
work. A task writes the trace of every simulation that it has finished as a Parquet file of the
table `traces`, and its figures beside it, under names that follow from the scenario; a file gets
its name when it is complete. The rule: what is there is not computed again, so that a sweep that
was interrupted goes on where it was, and one that changed runs what is new.

When all runs are there, the part of the lake is made of their files (by hard links), and milled.
"""

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from rumormill.core.config import nearest
from rumormill.core.errors import ConfigError, LocalError
from rumormill.protocols.registry import protocol
from rumormill.sim.scenario import LONGEST_FILE, Scenario
from rumormill.spark.bronze import Placing
from rumormill.spark.lake import Lake, draft_name, is_being_written
from rumormill.spark.mill import DEFAULT_WINDOW, Tell, build_tables, plain, silence
from rumormill.spark.tables import COLUMNS, ddl
from rumormill.trace.entries import Batch, Entry
from rumormill.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_RUNS: Final = 100_000
"""Runs of one grid; our choice: at a second each, more than a day of one core."""

_KEYS: Final = ("name", "scenario", "base", "protocols", "peers", "seeds", "parameters",
                "conditions")  # fmt: skip


class GridRun(msgspec.Struct, frozen=True):
    """One simulation of a grid."""

    name: str
    condition: str
    scenario: Scenario

    @property
    def digest(self) -> str:
        """What tells this run from every other: its name, its scenario, and who simulates it."""
        told = [__version__, self.name, self.condition, self.scenario.to_dict()]
        text = json.dumps(told, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


class Grid(msgspec.Struct, frozen=True):
    """What differs between the runs of a sweep, and what they share."""

    name: str
    base: Scenario
    protocols: tuple[str, ...]
    peers: tuple[int, ...]
    seeds: tuple[int, ...]
    parameters: dict[str, dict[str, list[Any]]]
    conditions: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, path: str | Path, changes: Mapping[str, Any] | None = None) -> "Grid":
        """Read and check a file; `changes` are dotted keys of the scenario that all share."""
        file = Path(path)
        try:
            with file.open("rb") as stream:
                content = stream.read(LONGEST_FILE + 1)
            table = tomllib.loads(content.decode())
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: not TOML: {error}") from None
        if len(content) > LONGEST_FILE:
            raise ConfigError(f"{path}: larger than {LONGEST_FILE} bytes, the limit of grids")
        table.setdefault("name", file.stem)
        grid = cls.from_dict(table, file.parent)
        return msgspec.structs.replace(grid, base=grid.base.changed(changes)) if changes else grid

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], folder: Path = Path()) -> "Grid":
        """Build a grid; a scenario's path is relative to `folder`."""
        for key in table:
            if key not in _KEYS:
                raise ConfigError(f"{key}: there is no such key; {nearest(key, list(_KEYS))}")
        name = table.get("name", "sweep")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
            raise ConfigError("name: use letters, digits, dot, dash and underscore, 100 at most")
        if isinstance(table.get("scenario"), dict):
            raise ConfigError("scenario: is the name of a file; a table with its keys is [base]")
        if "scenario" in table and "base" in table:
            raise ConfigError("base: excludes scenario: give one of them")
        if "scenario" in table:
            base = Scenario.load(folder / _text(table["scenario"], "scenario"))
        else:
            base = Scenario.from_dict(_table(table.get("base", {}), "base"))
        protocols = _list(table.get("protocols", [base.protocol]), "protocols", str)
        parameters = {
            name: {
                key: value if isinstance(value, list) else [value]
                for key, value in _table(keys, f"parameters.{name}").items()
            }
            for name, keys in _table(table.get("parameters", {}), "parameters").items()
        }
        for entry in parameters:
            if entry not in protocols:
                close = nearest(entry, list(protocols))
                raise ConfigError(f"parameters.{entry}: not among the protocols; {close}")
        found = _table(table.get("conditions", {}), "conditions") or {"": {}}
        conditions = {name: _table(keys, f"conditions.{name}") for name, keys in found.items()}
        return cls(
            name,
            base,
            protocols,
            _list(table.get("peers", [base.peers]), "peers", int),
            _list(table.get("seeds", [base.seed]), "seeds", int),
            parameters,
            conditions,
        )

    def runs(self) -> list[GridRun]:
        """Every combination, checked, in a fixed order."""
        per_choice = len(self.conditions) * len(self.peers) * len(self.seeds)
        choices = sum(
            math.prod(map(len, self.parameters.get(entry, {}).values())) for entry in self.protocols
        )
        if choices * per_choice > MOST_RUNS:
            raise ConfigError(f"more than {MOST_RUNS} runs: make the grid smaller")
        return [
            self._run(entry, chosen, name, changes, peers, seed)
            for entry in self.protocols
            for chosen in _combinations(self.parameters.get(entry, {}))
            for name, changes in self.conditions.items()
            for peers, seed in itertools.product(self.peers, self.seeds)
        ]

    def _run(
        self,
        entry: str,
        chosen: Mapping[str, Any],
        condition: str,
        changes: Mapping[str, Any],
        peers: int,
        seed: int,
    ) -> GridRun:
        named, _, preset = entry.partition(":")
        parts = [entry.replace(":", "-"), *[f"{key}={value}" for key, value in chosen.items()]]
        words = [*parts, *([condition] if condition else []), f"n={peers}", f"seed={seed}"]
        label = ",".join(words)
        try:
            # The base's own parameters and preset are those of its own protocol.
            own = self.base.parameters if named == self.base.protocol and not preset else {}
            fallback = self.base.preset if named == self.base.protocol else "default"
            scenario = self.base.changed(
                {
                    **changes,
                    "preset": preset or fallback,
                    "parameters": {**own, **chosen},
                    "peers": peers,
                    "seed": seed,
                }
            ).under(named)
            protocol(named).configure(scenario.preset, scenario.parameters)
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None
        return GridRun(label, condition, scenario)


def _combinations(parameters: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    names = list(parameters)
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*parameters.values())
    ]


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{key}: expected text, got {value!r}")
    return value


def _table(value: object, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{key}: expected a table, got {value!r}")
    return value


def _list(value: object, key: str, kind: type) -> tuple[Any, ...]:
    values = value if isinstance(value, list) else [value]
    for each in values:
        if not isinstance(each, kind) or isinstance(each, bool):
            raise ConfigError(f"{key}: {each!r} is not what belongs there ({kind.__name__})")
    if not values:
        raise ConfigError(f"{key}: the list is empty")
    if len(dict.fromkeys(values)) < len(values):
        raise ConfigError(f"{key}: names something twice")
    return tuple(values)


_SWEEPS: Final = ".sweeps"
_TASKS_PER_CORE: Final = 3
"""Our choice: enough that cores end together although estimates are rough."""

_WATCH_SECONDS: Final = 2.0
_ROW_GROUP: Final = 65_536
"""Entries that are written at a time: our choice, some tens of megabytes."""


def sweep(
    spark: "SparkSession",
    grid: Grid,
    lake: Lake,
    *,
    window: float = DEFAULT_WINDOW,
    tell: Tell = silence,
) -> dict[str, Any]:
    """Run a grid and make it a part of the lake; return how many runs were new and in all."""
    runs = grid.runs()
    folder = lake.path / _SWEEPS / grid.name
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [run for run in runs if not _figures_path(folder, run).is_file()]
    tell(f"{len(runs)} simulations, {len(waiting)} of them new")
    try:
        _simulate_all(spark, waiting, folder, grid.name, tell)
        with lake.writing(grid.name) as draft:
            traces = draft.path / "traces"
            traces.mkdir()
            for run in runs:
                os.link(_trace_path(folder, run), traces / f"{run.digest}.parquet")
            (traces / "_SUCCESS").touch()
            rows = [_run_row(folder, grid.name, run) for run in runs]
            draft.write(spark.createDataFrame(rows, ddl("runs")).coalesce(1), "runs")
            build_tables(spark, draft, window, tell)
    except Exception as error:
        raise plain(error) from error
    finally:
        for unfinished in folder.glob(".*~*"):  # what tasks left that were killed
            if not is_being_written(unfinished):
                unfinished.unlink(missing_ok=True)
    return {"runs": len(runs), "new": len(waiting)}


def estimate(run: GridRun) -> float:
    """How long a simulation takes, in arbitrary units: what it sends grows with both of these."""
    workload = run.scenario.workload
    return run.scenario.peers * ((workload.limit or workload.messages) + 100.0)


def pack(runs: Sequence[GridRun], tasks: int) -> list[list[GridRun]]:
    """Share runs out so that tasks take about equally long: the longest first, to the idlest."""
    packs: list[list[GridRun]] = [[] for _ in range(max(1, min(tasks, len(runs))))]
    loads = [0.0] * len(packs)
    for run in sorted(runs, key=estimate, reverse=True):
        idlest = loads.index(min(loads))
        packs[idlest].append(run)
        loads[idlest] += estimate(run)
    return [each for each in packs if each]


def _simulate_all(
    spark: "SparkSession", runs: Sequence[GridRun], folder: Path, part: str, tell: Tell
) -> None:
    if not runs:
        return
    context = spark.sparkContext
    packs = pack(runs, _TASKS_PER_CORE * context.defaultParallelism)
    sent = [
        [(run.name, run.condition, run.scenario.to_dict(), str(folder), part) for run in each]
        for each in packs
    ]
    with _watched(folder, runs, tell):
        context.parallelize(sent, len(sent)).foreachPartition(_simulate_packs)


@contextlib.contextmanager
def _watched(folder: Path, runs: Sequence[GridRun], tell: Tell) -> Iterator[None]:
    """Tell how many runs are finished, while tasks leave their figures in the folder."""
    over = threading.Event()

    def watch() -> None:
        told = 0
        while not over.wait(_WATCH_SECONDS):
            done = sum(_figures_path(folder, run).is_file() for run in runs)
            if done > told:
                tell(f"{done} of {len(runs)} simulations are done")
                told = done

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _simulate_packs(packs: Iterable[Any]) -> None:
    from rumormill.sim.scenario import Scenario  # noqa: PLC0415

    for each in packs:
        for name, condition, table, folder, part in each:
            run = GridRun(name, condition, Scenario.from_dict(table))
            if not _figures_path(Path(folder), run).is_file():
                simulate(run, Path(folder), part)


def simulate(run: GridRun, folder: Path, part: str) -> None:
    """Run one simulation; leave its trace, and then its figures, under their names."""
    from rumormill.sim.run import run_scenario  # noqa: PLC0415

    draft = folder / draft_name(f".{run.digest}")
    try:
        try:
            with _Recorder(f"{part}/{run.name}", draft) as recorder:
                figures = run_scenario(run.scenario, observer=recorder)
        except Exception as error:
            raise LocalError(f"{run.name}: {type(error).__name__}: {error}") from error
        draft.replace(_trace_path(folder, run))
        draft.write_text(json.dumps(figures))
        draft.replace(_figures_path(folder, run))
    finally:
        draft.unlink(missing_ok=True)


class _Recorder:
    """Writes a run's trace as a file of the table `traces` while it is simulated."""

    def __init__(self, run: str, path: Path) -> None:
        self._placing = Placing(run)
        self._path = path
        self._waiting: list[Entry] = []
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        if self._file is not None:
            self._file.close()

    def observe(self, batch: Batch) -> None:
        """Take the next entries."""
        self._waiting += batch
        if len(self._waiting) >= _ROW_GROUP:
            self._write()

    def close(self) -> None:
        """The trace is complete; the file is when this object's block ends."""

    def _write(self) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415

        from rumormill.trace.parquet import table_of  # noqa: PLC0415

        waiting, self._waiting = self._waiting, []
        for batch in table_of(waiting).combine_chunks().to_batches():
            placed = self._placing.place(batch)
            if self._file is None:
                self._file = pq.ParquetWriter(self._path, placed.schema, compression="zstd")
            self._file.write_batch(placed)


def _trace_path(folder: Path, run: GridRun) -> Path:
    return folder / f"{run.digest}.parquet"


def _figures_path(folder: Path, run: GridRun) -> Path:
    return folder / f"{run.digest}.json"


def _run_row(folder: Path, part: str, run: GridRun) -> tuple[Any, ...]:
    scenario = run.scenario
    row = {
        "run": f"{part}/{run.name}",
        "protocol": scenario.protocol,
        "source": f"sweep {part}",
        "peers": scenario.peers,
        "seed": str(scenario.seed),
        "preset": scenario.preset,
        "parameters": json.dumps(scenario.parameters),
        "condition": run.condition,
        "scenario": json.dumps(scenario.to_dict()),
        "figures": _figures_path(folder, run).read_text(),
    }
    return tuple(row.get(name) for name, _ in COLUMNS["runs"])
