"""Regenerate the modules that protoc makes from the schemas under src/rumormill/wire/proto.

Run without arguments to write them in place. The compiler comes with grpcio-tools, so its version
is the one that the development dependencies install; a test compares the committed modules with
what `generate` writes.
"""

import sys
from pathlib import Path

from grpc_tools import protoc

SOURCES = Path(__file__).resolve().parent.parent / "src"
SCHEMAS = tuple(
    f"rumormill/wire/proto/{name}.proto"
    for name in ("kad", "pulsarcast", "radius", "rpc", "skipring", "trace")
)


def generate(target: Path) -> list[Path]:
    """Compile every schema into `target`; return the written paths relative to it."""
    # The schemas are named from the source root, so that the modules know their package.
    arguments = [
        "protoc",
        f"--proto_path={SOURCES}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        *SCHEMAS,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc refused a schema; its message stands above")
    stems = [schema.removesuffix(".proto") for schema in SCHEMAS]
    return [Path(f"{stem}_pb2{suffix}") for stem in stems for suffix in (".py", ".pyi")]


if __name__ == "__main__":
    for written in generate(SOURCES):
        sys.stdout.write(f"{written}\n")
