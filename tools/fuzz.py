"""Feed every decoder of bytes from outside with what it must refuse in an orderly way.

    python tools/fuzz.py [--target NAME] [--inputs N] [--seed N] [--jobs N] [--corpus FOLDER]

An input is made from one of the kept ones by a few small changes: bytes and bits are changed, cut,
doubled, moved, replaced by numbers at limits, or two inputs are joined. What has an outcome that
was not seen before (another refusal, raised at another place, or a message of another shape) is
kept, and later inputs are made from it. `--corpus` keeps those in a folder too; Ctrl-C
loses none of them.

Same seed, same inputs. A fault is printed with its seed and a command that repeats it.
"""

import argparse
import functools
import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fuzz_targets
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fuzz_targets import Target

from rumormill.libp2p import noise, pnet

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "fuzz" / "corpus"
LONGEST = 2048
"""Bytes of an input: limits on counts and lengths are reached with fewer."""
KEPT_BYTES = 512
KEPT = 40
"""How long the inputs are that a folder keeps for a target, and how many."""
ROUND = 10_000
"""Inputs between two reports."""
EXTREMES = tuple(
    number.to_bytes(size, order)
    for size, numbers in {
        1: (0, 1, 0x7F, 0x80, 0xFF),
        2: (0, 0x7FFF, 0x8000, 0xFFFF),
        4: (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 262145),
        8: (0, 2**63 - 1, 2**63, 2**64 - 1, 9223372036854674580),
    }.items()
    for number in numbers
    for order in ("little", "big")
) + tuple(b"\xff" * count + b"\x01" for count in (1, 3, 4, 8, 9, 10))
"""Numbers at limits: plain, and as varints."""


class FaultError(Exception):
    """A decoder raised what it does not declare."""

    def __init__(self, target: Target, data: bytes, seed: int, error: BaseException) -> None:
        super().__init__(
            f"{target.name}: {type(error).__name__}: {error} (seed {seed}); again:\n"
            f"    python tools/fuzz.py --target {target.name} --replay {data.hex() or '-'}"
        )


class Fuzzer:
    """Inputs for one target, each from those before it that were worth keeping."""

    def __init__(self, target: Target, seed: int, begun_with: list[bytes]) -> None:
        self.target = target
        self.seed = seed
        self.kept = list(begun_with) or [b""]
        self.new: list[bytes] = []
        """What was kept besides."""
        self._random = random.Random(f"{seed}/{target.name}")
        self._seen = {self._outcome(data) for data in self.kept}

    def run(self, inputs: int) -> None:
        """Try so many inputs; raise `FaultError` at the first that is not refused in order."""
        seen, outcome, changed = self._seen, self._outcome, self._changed
        for _ in range(inputs):
            data = changed()
            found = outcome(data)
            if found not in seen:
                seen.add(found)
                self.kept.append(data)
                self.new.append(data)

    def _outcome(self, data: bytes) -> object:
        """What came of an input: its shape, or the refusal and the line that raised it."""
        target = self.target
        try:
            return target.function(data)
        except target.refusals as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            return (getattr(error, "reason", ""), trace and trace.tb_lineno)
        except Exception as error:
            raise FaultError(target, data, self.seed, error) from error

    def _changed(self) -> bytes:
        """One of the inputs with a few changes."""
        draw = self._random.random
        kept = self.kept
        data = bytearray(kept[int(draw() * len(kept))])
        while True:
            size = len(data)
            at = int(draw() * size)
            how = int(draw() * 9)
            if how < 3 and size:
                data[at] = int(draw() * 256)
            elif how == 3 and size:
                data[at] ^= 1 << int(draw() * 8)
            elif how == 4:
                del data[at : at + 1 + int(draw() * draw() * 16)]
            elif how == 5:
                piece = data[at : at + 1 + int(draw() * 32)]
                where = int(draw() * (size + 1))
                data[where:where] = piece
            elif how == 6:
                extreme = EXTREMES[int(draw() * len(EXTREMES))]
                data[at : at + (len(extreme) if draw() < 0.5 else 0)] = extreme
            elif how == 7:
                other = kept[int(draw() * len(kept))]
                data[at:] = other[int(draw() * len(other)) :]
            else:
                del data[at:]
            if draw() < 0.5:
                return bytes(data[:LONGEST])


def read_corpus(folder: Path, target: Target) -> list[bytes]:
    """The inputs that a folder keeps for a target, in an order that is always the same."""
    return [path.read_bytes() for path in sorted((folder / target.name).glob("*"))]


def keep(folder: Path, target: Target, found: list[bytes]) -> None:
    """Add inputs to a folder, the shortest first, as long as there are not too many."""
    place = folder / target.name
    place.mkdir(parents=True, exist_ok=True)
    room = KEPT - len(list(place.iterdir()))
    short = [data for data in found if len(data) <= KEPT_BYTES]
    for data in sorted(short, key=len)[: max(0, room)]:
        (place / sha256(data).hexdigest()[:16]).write_bytes(data)


def fuzz(target: Target, inputs: int, seed: int, corpus: Path | None) -> str:
    """Fuzz one target to the end, or to the first fault or Ctrl-C; say what came of it."""
    fuzzer = Fuzzer(target, seed, read_corpus(corpus or CORPUS, target))
    begun, done, verdict = time.monotonic(), 0, "no fault"
    try:
        while done < inputs:
            fuzzer.run(min(ROUND, inputs - done))
            done += min(ROUND, inputs - done)
            if done % (100 * ROUND) == 0:
                rate = done / (time.monotonic() - begun)
                print(f"{target.name}: {done:,} inputs, {rate:,.0f} a second", flush=True)
    except FaultError as fault:
        verdict = f"FAULT {fault}"
    except KeyboardInterrupt:
        verdict = "stopped, no fault so far"
    finally:
        if corpus is not None:
            keep(corpus, target, fuzzer.new)
    seconds = time.monotonic() - begun
    return f"{target.name}: {done:,} inputs in {seconds:.0f} s, {len(fuzzer.new)} new; {verdict}"


class _KnownSecrets:
    """The secret keys of handshakes here are always the same two."""

    from_private_bytes = functools.cache(X25519PrivateKey.from_private_bytes)


DERIVED_ONCE = (
    (pnet, "hsalsa20", functools.lru_cache(4096)(pnet.hsalsa20)),
    (noise, "X25519PrivateKey", _KnownSecrets),
)
"""What two targets derive from the same bytes each time, two thirds of their time, and what keeps
it instead: of the package's own code."""


def derive_once() -> None:
    """Have it kept, in a process that does nothing but fuzz."""
    for module, name, keeps in DERIVED_ONCE:
        setattr(module, name, keeps)


def _in_a_process(task: tuple[str, int, int, Path | None]) -> str:
    name, inputs, seed, corpus = task
    derive_once()
    return fuzz(fuzz_targets.TARGETS[name], inputs, seed, corpus)


def _results(tasks: list[tuple[str, int, int, Path | None]], jobs: int) -> Iterator[str]:
    if jobs == 1:
        for task in tasks:
            result = _in_a_process(task)
            yield result
            if "stopped" in result:
                return
        return
    with multiprocessing.Pool(jobs, _end_in_order) as pool:
        results = pool.imap_unordered(_in_a_process, tasks)
        try:
            yield from results
        except KeyboardInterrupt:
            # The processes heard it as well: each keeps what it has and ends its task.
            pool.close()
            pool.join()
            yield from results


def _end_in_order() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    """Fuzz what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", choices=fuzz_targets.TARGETS)
    parser.add_argument("--inputs", type=int, default=100_000, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--corpus", type=Path, help="keep new inputs in this folder")
    parser.add_argument("--replay", help="try these bytes, in base16, on the target")
    chosen = parser.parse_args()
    names = chosen.target or list(fuzz_targets.TARGETS)
    if chosen.replay is not None:
        data = bytes.fromhex(chosen.replay.replace("-", ""))
        target = fuzz_targets.TARGETS[names[0]]
        try:
            print(target.function(data))
        except target.refusals as error:
            print(f"refused: {error}")
        return
    tasks = [(name, chosen.inputs, chosen.seed, chosen.corpus) for name in names]
    faults = 0
    for result in _results(tasks, chosen.jobs):
        print(result, flush=True)
        faults += "FAULT" in result
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
