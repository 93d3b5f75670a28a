"""Installs the foreign peers once per machine, outside the repository.

Each environment lies in a folder of the cache that is named after what it was made from, so a
changed pin makes a new one. A folder is complete when it holds its `ready` mark; a file lock keeps
parallel test processes from installing the same thing twice.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from interop_peer import Program

Installed = TypeVar("Installed")

HERE = Path(__file__).resolve().parent
EXAMPLE_PAGE = HERE.parents[1] / "examples" / "browser"


class NotInstallableError(Exception):
    """Something that an environment needs is missing on this machine."""


def installed(install: Callable[[], Installed]) -> Installed:
    """Install a foreign implementation; where that cannot be done, skip, but never in CI."""
    try:
        return install()
    except NotInstallableError as error:
        if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
            pytest.fail(f"CI must run the interop tests: {error}")
        pytest.skip(str(error))


def cache_folder() -> Path:
    """Where environments are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rumormill" / "interop"


def javascript() -> Program:
    """Return the js-libp2p peer, installed from its lock file on Node 22."""
    source = HERE / "js"
    if shutil.which("npm") is None:
        raise NotInstallableError("npm is not installed; js-libp2p comes from it")

    def build(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        # The package `node` fetches the binary for this machine in its install script.
        _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts=false"], folder)

    made_from = [source / "package.json", source / "package-lock.json"]
    folder = _environment("js", made_from, build)
    # Packages are looked for beside the script, so the newest script lies beside them.
    script = _placed(source / "peer.js", folder)
    node = folder / "node_modules" / ".bin" / "node"
    return Program((str(node), str(script)), folder, dict(os.environ))


def golang(pins: str = "go") -> Program:
    """Return the go-libp2p peer, built from its sources as pinned in the files of this name."""
    source = HERE / "go"
    if shutil.which("go") is None:
        raise NotInstallableError("go is not installed; go-libp2p's peer is built with it")

    def build(folder: Path) -> None:
        for path, name in zip(made_from, ("go.mod", "go.sum", "main.go"), strict=True):
            shutil.copy(path, folder / name)
        _run(["go", "build", "-mod=readonly", "-ldflags=-s -w", "-o", "peer", "."], folder)

    made_from = [source / f"{pins}.mod", source / f"{pins}.sum", source / "main.go"]
    folder = _environment("go", made_from, build)
    return Program((str(folder / "peer"),), folder, dict(os.environ))


def rust() -> Program:
    """Return the rust-libp2p peer, built from its pinned sources."""
    source = HERE / "rust"
    if shutil.which("cargo") is None:
        raise NotInstallableError("cargo is not installed; rust-libp2p's peer is built with it")

    def build(folder: Path) -> None:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        # What others wrote is built once, however often the peer changes.
        target = cache_folder() / "rust-target"
        _run(["cargo", "build", "--release", "--quiet", "--target-dir", target], folder)
        shutil.copy(target / "release" / "rumormill-interop-peer", folder / "peer")

    folder = _environment("rust", [source / "Cargo.toml", source / "src" / "main.rs"], build)
    return Program((str(folder / "peer"),), folder, dict(os.environ))


def python() -> Program:
    """Return the py-libp2p peer, installed from its pins into an environment of its own."""
    return _python_program(HERE / "py" / "peer.py")


def pulsarcast_bridge() -> Program:
    """Return the py-libp2p host that carries bytes to the JavaScript original of Pulsarcast."""
    return _python_program(HERE / "pulsarcast" / "bridge.py")


def pulsarcast() -> Program:
    """Return the JavaScript original of Pulsarcast, installed from its lock file."""
    source = HERE / "pulsarcast"
    node = shutil.which("node")
    if shutil.which("npm") is None or node is None:
        raise NotInstallableError("npm is not installed; the original of Pulsarcast comes from it")

    def build(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        # Install scripts only build faster variants of what is there in JavaScript too.
        _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)

    made_from = [source / "package.json", source / "package-lock.json"]
    folder = _environment("pulsarcast", made_from, build)
    script = _placed(source / "peer.js", folder)
    return Program((node, str(script)), folder, dict(os.environ))


def browser_page() -> Path:
    """Return a folder with the browser's example page, built as its users build it."""
    if shutil.which("npm") is None:
        raise NotInstallableError("npm is not installed; the page is bundled with what it fetches")
    sources = sorted(path for path in EXAMPLE_PAGE.iterdir() if path.is_file())

    def build(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        _run(["npm", "ci", "--no-audit", "--no-fund"], folder)
        _run(["npm", "run", "build"], folder)

    return _environment("browser", sources, build)


def _python_program(script: Path) -> Program:
    """A script that runs with py-libp2p."""
    pins = HERE / "py" / "requirements.txt"

    def build(folder: Path) -> None:
        _run([sys.executable, "-m", "venv", "venv"], folder)
        _run(
            ["venv/bin/python", "-m", "pip", "install", "-q", "--require-hashes", "-r", pins],
            folder,
        )

    folder = _environment("py", [pins], build, f"{sys.version_info.major}.{sys.version_info.minor}")
    interpreter = folder / "venv" / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return Program((str(interpreter), str(script)), script.parent, environment)


def _environment(
    kind: str, made_from: list[Path], build: Callable[[Path], None], variant: str = ""
) -> Path:
    digest = hashlib.sha256(variant.encode())
    for path in made_from:
        digest.update(path.read_bytes())
    folder = cache_folder() / f"{kind}-{digest.hexdigest()[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = folder / "ready"
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            ready.touch()
    return folder


def _placed(script: Path, folder: Path) -> Path:
    """Copy a script into an environment, under a name that says which version it is."""
    content = script.read_bytes()
    name = f"{script.stem}-{hashlib.sha256(content).hexdigest()[:16]}{script.suffix}"
    target = folder / name
    if not target.exists():
        draft = folder / f".{os.getpid()}-{name}"
        draft.write_bytes(content)
        draft.rename(target)
    return target


def _run(command: list[str | Path], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stdout + done.stderr)[-2000:]
        raise NotInstallableError(f"`{' '.join(map(str, command))}` failed:\n{tail}")
