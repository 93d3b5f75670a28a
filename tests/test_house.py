"""The rules of the house, checked on the source itself (docs/architecture.md, CONTRIBUTING.md)."""

import ast
import functools
import gc
import re
import subprocess
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("house")

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
PACKAGE = SOURCES / "rumormill"

MODULE_LINES = 500
TEST_LINES = 800
"""A file of tests follows one module of at most 500 lines and may be longer than it."""
FUNCTION_LINES = 70

PURE = ("core", "members", "protocols", "overlay", "sync", "wire")
"""Packages that know no clock, no chance and no network but what they are handed."""

PURE_LIBP2P = (
    "autonat",
    "circuit",
    "dcutr",
    "envelope",
    "identify",
    "mdns",
    "multistream",
    "noise",
    "pnet",
    "portmap",
    "upgrade",
    "yamux",
    "yamux_types",
)
"""The machines of the connection, likewise; its asyncio side stands beside them."""

IMPURE = frozenset(
    {
        "_random", "_socket", "_thread", "_threading_local", "asyncio", "concurrent", "ctypes",
        "datetime", "fcntl", "http", "io", "multiprocessing", "numpy", "os", "pathlib", "posix",
        "pty", "queue", "random", "sched", "secrets", "select", "selectors", "shutil", "signal",
        "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading",
        "time", "timeit", "trio", "anyio", "urllib", "uuid", "uvloop", "zoneinfo",
    }
)  # fmt: skip
"""Modules through which time, chance, threads or the outside world come in."""

BACK_DOORS = frozenset({"__import__", "eval", "exec", "open", "compile", "input", "print"})
"""Built-ins that reach the same without an import statement."""

IMPORTERS = {"protocols/registry.py"}
"""Pure modules that may import by name: the registry, from its own table. What stands in that table
knows the registry's types; the registry itself knows none of it until it is asked for."""

LAYERS = {
    "core": 0,
    "version": 0,
    "wire": 1,
    "libp2p": 2,
    "overlay": 2,
    "protocols": 3,
    "trace": 3,
    "log": 3,
    "sync": 4,
    "members": 4,
    "dashboard": 4,
    "daemon": 5,
    "sim": 5,
    "node": 6,
    "rumormill": 7,
    "spark": 8,
    "pyspark_rumormill": 9,
    "demo": 9,
    "cli": 10,
    "__main__": 11,
}
"""The storeys: a module imports from its own package and from lower storeys, never from beside or
above. `protocols` stands beside `trace` and neither knows the other: payloads are `core.trace`."""

GENERATED = re.compile(r"_pb2\.pyi?$")


def modules() -> list[Path]:
    """Every module of the package that people wrote."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not GENERATED.search(path.name)]


def written() -> list[Path]:
    """Every Python file that people wrote: package, tests, benchmarks, tools."""
    others = (ROOT / folder for folder in ("tests", "bench", "tools"))
    found = [path for folder in others for path in sorted(folder.rglob("*.py"))]
    return modules() + [path for path in found if not GENERATED.search(path.name)]


def committed() -> list[Path]:
    """Every file of the repository; where git is missing, what would be in it."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        hidden = re.compile(r"/(\.(?!ci/|gitignore)[^/]+|__pycache__|build|dist)(/|$)")
        found = (
            path for path in ROOT.rglob("*") if not hidden.search(f"/{path.relative_to(ROOT)}")
        )
        return sorted(path for path in found if path.is_file())
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def name_of(path: Path) -> str:
    """A module's dotted name."""
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """What a file says; parsed once for all rules."""
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """All that is in a tree; walked through once for all rules."""
    return list(ast.walk(tree))


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """They are large, and no other module wants them: nor is there anything in them to collect."""
    gc.disable()
    yield
    for each in (tree_of, nodes_of, dependencies):
        each.cache_clear()
    gc.enable()


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module that a file may import, with the line: `from a import b` may mean a or a.b."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            assert node.module is not None
            yield node.lineno, node.module
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def depends(tree: ast.AST, known: Container[str], *, by_name: bool) -> Iterator[tuple[int, str]]:
    """Every module of ours that a file imports, whenever and for whatever: for the type checker
    alone, inside a function, or (`by_name`) because its name stands there for `import_module`."""
    loggers = [
        node.args
        for node in nodes_of(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "getLogger"
    ]
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else str(node.module) for name in found]
        elif by_name and isinstance(node, ast.Constant) and [node] not in loggers:
            names = [str(node.value)] if "." in str(node.value) else []
        else:
            continue
        assert isinstance(node, ast.stmt | ast.expr)
        yield from ((node.lineno, name) for name in dict.fromkeys(names) if name in known)


@functools.cache
def dependencies() -> dict[str, dict[str, int]]:
    """For every module those that it imports, each with the line of the first import."""
    paths = {name_of(path): path for path in sorted(SOURCES.rglob("*.py"))}
    found: dict[str, dict[str, int]] = {}
    for name, path in paths.items():
        by_name = not any(path == PACKAGE / importer for importer in IMPORTERS)
        lines = sorted(depends(tree_of(path), paths, by_name=by_name), reverse=True)
        found[name] = {other: line for line, other in lines if other != name}
    return found


def cycles_in(graph: Mapping[str, Iterable[str]]) -> set[frozenset[str]]:
    """The largest groups of modules each of which depends on all others of its group."""
    reached: dict[str, dict[str, None]] = {}
    for start in graph:
        waiting, seen = list(graph[start]), reached.setdefault(start, {})
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen[name] = None
                waiting += graph[name]
    return {
        frozenset(other for other in ways if name in reached[other])
        for name, ways in reached.items()
        if name in ways
    }


def storey_of(module: str) -> str:
    """The package, or the module beside the packages, that a module belongs to."""
    parts = module.split(".")
    return parts[0] if len(parts) == 1 else parts[1]


def shown(path: Path, line: int, fault: str) -> str:
    """A complaint that an editor can follow."""
    return f"{path.relative_to(ROOT)}:{line}: {fault}"


def impurities(tree: ast.AST, *, may_import_by_name: bool = False) -> Iterator[tuple[int, str]]:
    """Every way in which a module reaches for the outside world."""
    for line, name in imported(tree):
        top = name.partition(".")[0]
        if top in IMPURE or (top == "importlib" and not may_import_by_name):
            yield line, f"imports {name}"
    for node in nodes_of(tree):
        if isinstance(node, ast.Name) and node.id in BACK_DOORS:
            yield node.lineno, f"uses {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr in {"__import__", "__builtins__"}:
            yield node.lineno, f"uses {node.attr}"
        elif isinstance(node, ast.Name) and node.id in {"__builtins__", "__loader__"}:
            yield node.lineno, f"uses {node.id}"


def test_machines_know_no_clock_no_chance_and_no_network() -> None:
    """Time and randomness are handed to pure packages; nothing in them can fetch its own."""
    faults = []
    for path in modules():
        inside = path.relative_to(PACKAGE)
        pure_machine = inside.parts[0] == "libp2p" and inside.stem in PURE_LIBP2P
        if inside.parts[0] in PURE or pure_machine:
            allowed = inside.as_posix() in IMPORTERS
            found = impurities(tree_of(path), may_import_by_name=allowed)
            faults += [shown(path, line, fault) for line, fault in found]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import time as t",
        "from time import monotonic",
        "import os.path",
        "def f():\n    import random",
        "import importlib\nimportlib.import_module('time')",
        "from importlib import import_module",
        "__import__('socket')",
        "x = __builtins__['__import__']",
        "exec('import threading')",
        "open('/dev/urandom')",
        "f = eval",
    ],
)
def test_the_purity_check_sees_every_way_in(source: str) -> None:
    """The check is no decoration: each of these would be caught."""
    assert list(impurities(ast.parse(source)))


def test_nobody_imports_upwards() -> None:
    """A package imports from lower storeys only, so each can be understood without the upper."""
    faults = []
    for module, others in dependencies().items():
        own = storey_of(module)
        assert own in LAYERS, f"{own}: say in tests/test_house.py on which storey it stands"
        for other, line in others.items():
            below = storey_of(other)
            if below != own and LAYERS[below] >= LAYERS[own]:
                faults.append(f"{module}, line {line}: {own} imports {other}")
    assert not faults, "\n".join(faults)


def test_modules_form_no_cycles() -> None:
    """Within a package as well there is a bottom, from which everything can be read upwards."""
    graph = dependencies()
    cycles = cycles_in(graph)
    faults = [
        "a cycle:\n"
        + "\n".join(
            f"  {name}, line {line}: imports {other}"
            for name in sorted(cycle)
            for other, line in graph[name].items()
            if other in cycle
        )
        for cycle in sorted(cycles, key=min)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "source",
    [
        "import a.b",
        "from a import b",
        "from a.b import thing",
        "if TYPE_CHECKING:\n    from a.b import Thing",
        "def f():\n    from a.b import thing",
        "importlib.import_module('a.b')",
        "HOMES = {'thing': 'a.b'}",
    ],
)
def test_the_cycle_check_sees_every_import(source: str) -> None:
    """However it is written and whenever it happens."""
    found = depends(ast.parse(source), {"a", "a.b"}, by_name=True)
    assert [name for _, name in found] == ["a.b"]


def test_the_cycle_check_takes_the_name_of_a_logger_for_none() -> None:
    """Loggers are named after packages and import nothing."""
    assert not list(depends(ast.parse("logging.getLogger('a.b')"), {"a.b"}, by_name=True))


def test_the_cycle_check_finds_cycles_of_any_length() -> None:
    """And leaves out what only leads to one or comes from one."""
    graph = {"top": "ab", "a": "b", "b": "ca", "c": "dab", "d": "e", "e": "f", "f": "e"}
    assert cycles_in(graph) == {frozenset("abc"), frozenset("ef")}


def test_modules_are_short_and_say_what_they_are() -> None:
    """A module has at most 500 lines, a file of tests 800; each opens with its docstring."""
    faults = []
    for path in written():
        text = path.read_text()
        lines = text.count("\n")
        most = TEST_LINES if path.is_relative_to(ROOT / "tests") else MODULE_LINES
        if lines > most:
            faults.append(shown(path, most, f"{lines} lines; {most} are most"))
        if not ast.get_docstring(tree_of(path)):
            faults.append(shown(path, 1, "has no docstring"))
    assert not faults, "\n".join(faults)


def test_functions_are_short() -> None:
    """A function has at most 70 lines."""
    faults = []
    for path in written():
        for node in nodes_of(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    faults.append(shown(path, node.lineno, f"{node.name} has {lines} lines"))
    assert not faults, "\n".join(faults)


def test_nothing_is_left_for_later() -> None:
    """No reminders and no unwritten bodies; the words are put together so as not to match here."""
    later = re.compile(
        "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImple" + "mentedError"))
    )
    faults = [
        shown(path, number, line.strip())
        for path in written()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if later.search(line)
    ]
    assert not faults, "\n".join(faults)


def test_only_the_command_line_prints() -> None:
    """A library that prints spoils its caller's output."""
    faults = [
        shown(path, node.lineno, "prints")
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] != "cli"
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.Name) and node.id == "print"
    ]
    assert not faults, "\n".join(faults)


def test_no_module_is_dead() -> None:
    """Every module is reached from the package, the command, a test or a benchmark."""
    known = {name_of(path): path for path in PACKAGE.rglob("*.py")}
    waiting = ["rumormill", "rumormill.__main__"]
    for path in written():
        if not path.is_relative_to(SOURCES):
            waiting += [name for _, name in imported(tree_of(path))]
    reached: dict[str, None] = {}
    while waiting:
        name = waiting.pop()
        if name not in known or name in reached:
            continue
        reached[name] = None
        waiting.append(name.rpartition(".")[0])
        tree = tree_of(known[name])
        waiting += [other for _, other in imported(tree)]
        # Tables of modules that are imported when asked for, such as the registry's.
        waiting += [
            node.value
            for node in nodes_of(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    dead = [name for name in sorted(known) if name not in reached]
    assert not dead, f"nothing reaches {', '.join(dead)}"


def test_quick_tests_touch_every_package() -> None:
    """What `make test-quick` names is there, and imports something of every package."""
    lines = (ROOT / "tests" / "quick.args").read_text().splitlines()
    named = [ROOT / line for line in lines if line.startswith("tests/")]
    assert named == sorted(dict.fromkeys(named)), "each once, in order"
    touched: dict[str, None] = {}
    for path in named:
        files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
        assert files, f"{path} is not there"
        for each in files:
            touched |= dict.fromkeys(name for _, name in imported(tree_of(each)))
    for package in PACKAGE.rglob("__init__.py"):
        inside = f"{name_of(package)}."
        assert any(name.startswith(inside) for name in touched), f"nothing quick tests {inside}"


def test_groups_of_tests_are_kept_together(request: pytest.FixtureRequest) -> None:
    """A worker gets the whole of a group, or each would start a Spark of its own."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("there is one process")
    assert request.node.nodeid.endswith("@house")


DOWNLOADS = re.compile(
    r"https?://[^\s)\"'>]*(?:pypi\.|pythonhosted|/simple/|index-url|registry|mirror|nexus|artifactory"
    r"|\.(?:whl|tar\.gz|tgz|zip|gz|exe|deb|rpm)\b)|--(?:extra-)?index-url|--find-links",
    re.IGNORECASE,
)
TOLERATED = {"tests/test_house.py"}
"""This file spells out what it forbids."""


def test_no_file_names_a_place_to_download_from() -> None:
    """Where packages come from is the reader's choice, not the repository's."""
    faults = []
    for path in committed():
        if path.relative_to(ROOT).as_posix() in TOLERATED:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # binary data
        for number, line in enumerate(text.splitlines(), 1):
            if DOWNLOADS.search(line):
                faults.append(shown(path, number, line.strip()))
    assert not faults, "\n".join(faults)


def test_requirements_are_pinned_by_version_and_hash() -> None:
    """`make setup` installs exactly what was tested, or nothing."""
    text = (ROOT / "requirements" / "dev.txt").read_text().replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+ ", entry), entry
        assert "--hash=sha256:" in entry, entry
