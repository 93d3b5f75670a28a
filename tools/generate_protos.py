"""Regenerate the modules that protoc makes from our schemas, which the tests use as oracles.

Run without arguments to write them into tests/oracles. The compiler comes with grpcio-tools, so its
version is the one that the development dependencies install; a test compares the committed
modules with what `generate` writes.
"""

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
ORACLES = ROOT / "tests" / "oracles"


def schemas() -> list[Path]:
    """Every schema, beside the codec that it describes."""
    return sorted((ROOT / "src" / "rumormill").rglob("*.proto"))


def generate(target: Path) -> list[Path]:
    """Compile every schema into `target`; return the names of what was written."""
    for schema in schemas():
        arguments = [
            "protoc",
            f"--proto_path={schema.parent}",
            f"--python_out={target}",
            f"--pyi_out={target}",
            schema.name,
        ]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc refused a schema; its message stands above")
    stems = [schema.stem for schema in schemas()]
    return [Path(f"{stem}_pb2{suffix}") for stem in stems for suffix in (".py", ".pyi")]


if __name__ == "__main__":
    for written in generate(ORACLES):
        sys.stdout.write(f"{written}\n")
