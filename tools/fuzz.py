"""Fuzz the decoders of bytes that peers send, guided by coverage.

    python tools/fuzz.py TARGET [options of libFuzzer, such as -max_total_time=60]

It needs `atheris`, which is not among the development dependencies because it has no packages for
every Python; the same targets are tested with Hypothesis as well.
"""

import sys

import atheris

with atheris.instrument_imports(include=["rumormill.wire", "fuzz_targets"]):
    import fuzz_targets


def main() -> None:
    """Fuzz the target that was named until something is found."""
    names = fuzz_targets.TARGETS
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        sys.exit(f"usage: fuzz.py {{{','.join(names)}}} [libFuzzer options]")
    target = names[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: fuzz_targets.tried(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
