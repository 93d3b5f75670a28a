"""The data files that come with the simulator, unpacked on demand."""

import gzip
from importlib.resources import files


def shipped_bytes(name: str) -> bytes:
    """Return the content of a file of `rumormill/sim/data`, unpacked when its name ends in .gz."""
    content = files("rumormill.sim").joinpath("data", name).read_bytes()
    return gzip.decompress(content) if name.endswith(".gz") else content
