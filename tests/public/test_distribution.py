"""The wheel and the sdist: what is in them, and that the wheel works in an environment of its own.

The environment has the wheel and what it depends on, and nothing else. In `make test` its
dependencies are those of the environment that runs the tests, linked file by file, so that nothing
is downloaded; marked slow, pip installs them as a user would, in the versions that are pinned.
"""

import email
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rumormill import __version__

ROOT = Path(__file__).resolve().parents[2]
NAME = f"rumormill-{__version__}"
NEEDED = {
    "rumormill/py.typed",
    "rumormill/sim/data/planetlab-rtt.tsv.gz",
    "rumormill/sim/data/reddit-2007-25k.jsonl.gz",
    "rumormill/sim/data/regions.json",
    "rumormill/protocols/skipring/skipring.proto",
    "rumormill/protocols/skipring/skipring.vectors.json",
    "rumormill/trace/trace.proto",
    "pyspark_rumormill/__init__.py",
}
BLOCK = re.compile(r"```python\n(.*?)```.*?```\n(.*?)```", re.DOTALL)


def build(source: Path, target: Path) -> tuple[Path, Path]:
    """Build both from a tree, as `make dist` does."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return target / f"{NAME}-py3-none-any.whl", target / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist of this tree."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def packaged() -> set[str]:
    """The files of the packages, as the tree has them."""
    return {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }


def members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_has_the_packages_and_nothing_else(built: tuple[Path, Path]) -> None:
    """Types, data and schemas too; no tests and no caches."""
    assert members(built[0]) == packaged()
    assert packaged() >= NEEDED


def test_the_sdist_has_what_a_wheel_is_made_of(built: tuple[Path, Path], tmp_path: Path) -> None:
    """And the same wheel comes out of it."""
    with tarfile.open(built[1]) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    texts = {"CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "SECURITY.md"}
    made = {"PKG-INFO", "pyproject.toml", ".gitignore"}
    assert names == texts | made | {f"src/{name}" for name in packaged()}
    wheel, _ = build(tmp_path / NAME, tmp_path / "dist")
    assert members(wheel) == packaged()


def test_the_wheel_says_what_it_is(built: tuple[Path, Path]) -> None:
    """Its version, and the Pythons that docs/stability.md says were tested."""
    with zipfile.ZipFile(built[0]) as archive:
        told = email.message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))
    assert told["Version"] == __version__
    kinds = told.get_all("Classifier", [])
    claimed = [each.rpartition(" ")[2] for each in kinds if re.search(r":: 3\.\d+$", each)]
    page = (ROOT / "docs" / "stability.md").read_text()
    (tested,) = re.findall(r"CPython ([\d., and]+) on Linux", page)
    assert claimed == re.findall(r"\d\.\d+", tested)
    assert told["Requires-Python"] == f">={claimed[0]}"


def runtime() -> set[str]:
    """The names of what the wheel depends on, and of what that depends on."""
    found: set[str] = set()
    waiting = ["rumormill"]
    while waiting:
        for line in metadata.requires(waiting.pop()) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                if needed.name not in found:
                    waiting.append(needed.name)
                found.add(needed.name)
    return found


def bare(folder: Path) -> Path:
    """An empty environment; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str) -> None:
    """Have the pip of the test's environment install into another."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "install"]
    subprocess.run([*command, *arguments], check=True, capture_output=True)


def link_dependencies(python: Path) -> None:
    """Put in what the wheel depends on, and no more."""
    major, minor = sys.version_info[:2]
    site = python.parents[1] / "lib" / f"python{major}.{minor}" / "site-packages"
    for name in runtime():
        files = metadata.distribution(name).files
        assert files
        for top in {file.parts[0] for file in files if file.parts[0] != ".."}:
            if top != "__pycache__":
                place = metadata.distribution(name).locate_file(top)
                (site / top).symlink_to(str(place))


def answers(python: Path, folder: Path, *arguments: str) -> str:
    """What a program prints there, where nothing of this tree can be seen."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    ran = subprocess.run(
        [str(python), "-I", *arguments],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def try_out(python: Path, folder: Path) -> None:
    """Run the README's fifteen lines, the command and the simulator."""
    found = BLOCK.search((ROOT / "README.md").read_text())
    assert found is not None
    program, printed = found.groups()
    (folder / "fifteen.py").write_text(program)
    assert answers(python, folder, "fifteen.py") == printed
    where = answers(python, folder, "-c", "import rumormill; print(rumormill.__file__)")
    assert where.startswith(str(python.parents[1]))
    assert answers(python, folder, "-m", "rumormill", "--version") == f"rumormill {__version__}\n"
    sim = ("sim", "--peers", "5", "--messages", "2", "--latency", "planetlab", "--json")
    assert '"delivery_ratio": 1.0' in answers(python, folder, "-m", "rumormill", *sim)
    script = python.with_name("rumormill")
    assert subprocess.run([script, "--help"], capture_output=True, check=True).stdout


def test_the_wheel_works_with_its_dependencies_alone(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """The README's fifteen lines print what they should."""
    python = bare(tmp_path / "env")
    pip(python, "--no-deps", "--no-index", str(built[0]))
    link_dependencies(python)
    try_out(python, tmp_path)


@pytest.mark.slow
def test_the_wheel_is_installed_with_its_pinned_dependencies(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """As a user would, into an empty environment, from the index that pip is set up with."""
    pinned = re.findall(
        r"^\S+==[^\\\n]+", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE
    )
    (tmp_path / "pinned.txt").write_text("\n".join(pinned))
    python = bare(tmp_path / "env")
    pip(python, "--constraint", str(tmp_path / "pinned.txt"), str(built[0]))
    try_out(python, tmp_path)
