"""The vectors: what the JavaScript original makes of descriptors, dates and RPCs.

They lie beside this file with a note of how they were made.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "vectors"
RPC_CREATED = "2019-10-05T10:00:00.500Z"
"""The date of every RPC in the vectors."""


def load(name: str) -> Any:
    """One file of vectors."""
    return json.loads((FOLDER / name).read_text())


ORIGINAL: Any = load("original.json")
FURTHER: Any = load("further.json")
TOPICS: list[dict[str, Any]] = ORIGINAL["topics"] + FURTHER["topics"]
EVENTS: list[dict[str, Any]] = ORIGINAL["events"] + FURTHER["events"]
PEERS = {name: bytes.fromhex(peer["multihash_hex"]) for name, peer in ORIGINAL["peers"].items()}


def label(item: dict[str, Any]) -> str:
    """How a test names a vector."""
    return str(item["label"])


def block_cid(name: str) -> bytes:
    """A CID of something that need not exist."""
    return b"\x01\x71\x12\x20" + hashlib.sha256(f"block {name}".encode()).digest()
