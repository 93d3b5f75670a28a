"""Every decoder of bytes from outside reads 100,000 inputs, or refuses them in an orderly way.

The inputs grow from a kept corpus (`tools/fuzz.py`, which also has the long form, `make fuzz`).
"""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
INPUTS = 100_000
CORPUS_BYTES = 300_000
DECODERS = ("decode", "decrypt", "feed", "from", "read", "receive", "unseal")
"""How functions that take bytes from outside are called, alone or before an underscore."""
HANDED_ON = {"rumormill.libp2p.stream.Stream.receive"}
"""These hand bytes to decoders that are fed themselves."""


def load() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("fuzz")
    finally:
        sys.path.pop(0)


fuzz = load()
TARGETS: dict[str, Any] = fuzz.fuzz_targets.TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_reads_or_refuses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept inputs, of which one at least is read to its end, and new ones made from them."""
    for module, derived, keeps in fuzz.DERIVED_ONCE:
        monkeypatch.setattr(module, derived, keeps)
    target = TARGETS[name]
    corpus = fuzz.read_corpus(fuzz.CORPUS, target)
    fuzzer = fuzz.Fuzzer(target, 1, corpus)
    read = 0
    for data in corpus:
        try:
            target.function(data)
        except target.refusals:
            continue
        read += 1
    assert read, "the fuzzer starts on the right path"
    fuzzer.run(INPUTS)


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    """Inputs of targets that are gone go with them."""
    assert {folder.name for folder in fuzz.CORPUS.iterdir()} == TARGETS.keys()
    assert sum(path.stat().st_size for path in fuzz.CORPUS.glob("*/*")) < CORPUS_BYTES


def test_a_fault_is_found_and_says_how_to_repeat_it(tmp_path: Path) -> None:
    """A decoder that fails where a length is too large, as an example."""

    def careless(data: bytes) -> object:
        return data[data[0]] if data else None

    target = fuzz.Target("careless", careless, (), ())
    with pytest.raises(fuzz.FaultError, match=r"seed 3\); again:\n.*--replay [0-9a-f]+"):
        fuzz.Fuzzer(target, 3, [b"\0"]).run(1000)
    found = fuzz.fuzz(target, 1000, 3, tmp_path)
    assert "FAULT careless: IndexError" in found


def test_same_seed_same_inputs() -> None:
    """And another seed has others."""
    target = TARGETS["frames"]
    runs = [fuzz.Fuzzer(target, seed, [b"\1\2\3"]) for seed in (1, 1, 2)]
    for run in runs:
        run.run(2000)
    assert runs[0].kept == runs[1].kept != runs[2].kept


def decoders(path: Path) -> list[str]:
    """The public functions of a module that need bytes, and nothing else, to read."""
    module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    found = []
    tree = ast.parse(path.read_text())
    owners = [(tree, module)]
    owners += [
        (node, f"{module}.{node.name}") for node in tree.body if isinstance(node, ast.ClassDef)
    ]
    for owner, name in owners:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name.split("_")[0] in DECODERS:
                asked = [each for each in node.args.args if each.arg not in ("self", "cls")]
                needed = asked[: len(asked) - len(node.args.defaults)]
                kinds = [ast.unparse(each.annotation) for each in needed if each.annotation]
                if kinds in (["bytes"], ["bytes | memoryview"]):
                    found.append(f"{name}.{node.name}")
    return found


def test_every_decoder_is_fed() -> None:
    """A new one is found by its name and arguments; private ones are fed by their owners."""
    fed = {
        f"{decoder.__module__}.{decoder.__qualname__}"
        for target in TARGETS.values()
        for decoder in target.feeds
    }
    there = [name for path in sorted((ROOT / "src").rglob("*.py")) for name in decoders(path)]
    assert len(there) > 20
    assert [name for name in there if name not in fed | HANDED_ON and "._" not in name] == []
