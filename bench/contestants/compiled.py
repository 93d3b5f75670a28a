"""Builds contestants that need a compiler, once for their sources, with the interop tests' pins."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = HERE.parents[1] / "tests" / "interop"


class MissingError(Exception):
    """A contestant cannot be had here."""


def go_program(cache: Path) -> Path:
    """go-libp2p's program."""

    def build(folder: Path) -> None:
        go = _tool("go", "/usr/local/go/bin")
        _run([go, "build", "-mod=readonly", "-o", "peer", "."], folder)

    pins = {name: PINS / "go" / name for name in ("go.mod", "go.sum")}
    return _built(cache, "bench-go", {**pins, "main.go": HERE / "go_peer.go"}, build)


def rust_program(cache: Path) -> Path:
    """rust-libp2p's program, optimised as `cargo build --release` does; the tests' is not."""

    def build(folder: Path) -> None:
        cargo = _tool("cargo", str(Path.home() / ".cargo" / "bin"))
        target = cache / "bench-rust-target"  # what others wrote is built once
        command = [cargo, "build", "--release", "--quiet", "--target-dir", str(target)]
        _run(command, folder, CARGO_PROFILE_RELEASE_OPT_LEVEL="3")
        shutil.copy(target / "release" / "rumormill-interop-peer", folder / "peer")

    pins = PINS / "rust" / "Cargo.toml"
    sources = {"Cargo.toml": pins, "src/main.rs": HERE / "rust_peer.rs"}
    return _built(cache, "bench-rust", sources, build)


def _tool(name: str, usually: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{usually}")
    if found is None:
        raise MissingError(f"{name} is not installed")
    return found


def _built(cache: Path, kind: str, sources: dict[str, Path], build: Callable[[Path], None]) -> Path:
    """The program made from these files, which lie where their names say while it is built."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources.values()))
    folder = cache / f"{kind}-{digest.hexdigest()[:16]}"
    program = folder / "peer"
    if not program.exists():
        for name, source in sources.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
        build(folder)
    return program


def _run(command: list[str], folder: Path, **variables: str) -> None:
    environment = {**os.environ, **variables}
    if subprocess.run(command, cwd=folder, env=environment, check=False).returncode:
        raise MissingError(f"`{' '.join(command)}` failed")
