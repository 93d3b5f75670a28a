"""The API reference says what the code says."""

import re
import subprocess
import sys

from doc_pages import ROOT

import rumormill


def test_the_page_is_what_the_generator_writes() -> None:
    """If not: python tools/api_reference.py."""
    command = [sys.executable, str(ROOT / "tools" / "api_reference.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0


def test_every_public_name_is_there_and_explained() -> None:
    """Each has a section, and each section and call has words besides its signature."""
    text = (ROOT / "docs" / "api-reference.md").read_text()
    for name in rumormill.__all__:
        assert name.startswith("_") or f"\n## {name}\n" in text, name
    pieces = re.sub(r"^#.*$", "", text, flags=re.MULTILINE).split("```")[2::2]
    assert [piece for piece in pieces if not piece.split("<!--")[0].strip()] == []
    assert "\n### Node.publish\n" in text
    assert " object at 0x" not in text
