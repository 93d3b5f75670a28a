"""A Python for Spark's workers that starts in a third of the time.

Spark puts a zip of pyspark in front of the workers' PYTHONPATH. Python cannot keep compiled code of
a zip, so each worker compiles pyspark anew: a second of work, for several processes per query, of
which each must answer within ten. On one machine the same pyspark is installed beside us, with its
compiled code. So the workers get a launcher that leaves the zips out and becomes Python.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

_LAUNCHER: Final = """\
#!/bin/sh
# Starts Python with the installed pyspark: the copies in Spark's zips have no compiled code.
kept=
IFS=:
for path in $PYTHONPATH; do
    case "$path" in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) kept="${{kept:+$kept:}}$path" ;;
    esac
done
PYTHONPATH="$kept" exec "{python}" "$@"
"""


def worker_python(cache: Path) -> str:
    """The launcher's path, made once; where it cannot be made, Python's own, which works too."""
    script = _LAUNCHER.format(python=sys.executable)
    path = cache / f"python-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    try:
        if not os.access(path, os.X_OK):
            cache.mkdir(parents=True, exist_ok=True)
            descriptor, made = tempfile.mkstemp(prefix=".python-", dir=cache)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(script)
            draft = Path(made)
            draft.chmod(0o755)
            draft.replace(path)
    except OSError:
        return sys.executable
    return str(path)
