"""Builds go-libp2p's contestant once for its sources: `go_peer.go`, and the interop tests' pins."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = HERE.parents[1] / "tests" / "interop" / "go"


def go_program(cache: Path) -> Path | None:
    """Where the program is; None where it cannot be built."""
    sources = [PINS / "go.mod", PINS / "go.sum", HERE / "go_peer.go"]
    made_from = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    folder = cache / f"bench-go-{made_from.hexdigest()[:16]}"
    program = folder / "peer"
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if not program.exists() and go is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(source, folder)
        subprocess.run([go, "build", "-mod=readonly", "-o", "peer", "."], cwd=folder, check=False)
    return program if program.exists() else None
