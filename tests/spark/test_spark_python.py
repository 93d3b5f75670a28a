"""The launcher of Spark's Python workers: the installed pyspark, not the zip."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from rumormill.spark.session import worker_python


def test_the_launcher_leaves_sparks_zips_out_and_nothing_else(tmp_path: Path) -> None:
    """It is Python, with the arguments as given and the rest of the path in order."""
    library = Path(pyspark.__file__).parent / "python" / "lib"
    zips = [str(each) for each in sorted(library.glob("*.zip"))]
    assert len(zips) == 2
    path = os.pathsep.join([zips[1], "/a place", zips[0], "/another"])
    program = "import os, sys, pyspark; print(os.environ['PYTHONPATH']); print(pyspark.__file__);"
    done = subprocess.run(
        [
            worker_python(tmp_path),
            "-c",
            program + "print(sys.argv[1:], sys.executable)",
            "a  b",
            "",
        ],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"/a place{os.pathsep}/another",
        pyspark.__file__,
        f"['a  b', ''] {sys.executable}",
    ]


def test_the_launcher_is_made_once(tmp_path: Path) -> None:
    """And where it cannot be made, plain Python serves."""
    first = worker_python(tmp_path / "cache")
    assert worker_python(tmp_path / "cache") == first
    assert [str(each) for each in (tmp_path / "cache").iterdir()] == [first]
    (tmp_path / "file").write_text("")
    assert worker_python(tmp_path / "file") == sys.executable
