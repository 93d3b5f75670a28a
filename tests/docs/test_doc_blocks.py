"""Every code block of the documentation runs, or says why not."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from doc_pages import (
    LANGUAGES,
    MARKS,
    NOT_RUN,
    PRINTS,
    ROOT,
    TERMINAL_PRINTS,
    Block,
    blocks_of,
    commands,
    pages,
)
from doc_player import Player, contains, is_like

from rumormill.cli.parser import build_parser

BLOCKS = [block for page in pages() for block in blocks_of(page)]
PLAYED = [page for page in pages() if any(block.is_program for block in blocks_of(page))]
SPARK = pytest.mark.xdist_group("spark")


def with_marks(page: str) -> object:
    """A page as a parameter; those with Spark share the process in which Spark's tests run."""
    spark = any(block.uses_spark for block in blocks_of(page))
    return pytest.param(page, id=page, marks=[SPARK] if spark else [])


@pytest.mark.parametrize("page", [with_marks(page) for page in PLAYED])
def test_the_programs_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """In order, in a new directory, each ends as the page says, and prints what it says."""
    if any(block.uses_spark for block in blocks_of(page)):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    with Player(page, tmp_path) as player:
        ran = list(player.play())
    assert ran == [block.place for block in blocks_of(page) if block.is_program]


@pytest.mark.parametrize("block", BLOCKS, ids=[block.place for block in BLOCKS])
def test_a_block_has_a_language_and_marks_that_exist(block: Block) -> None:
    """So no program hides: what is not run is no program, or says why in a few words."""
    assert block.language in LANGUAGES, block.place
    for mark in block.marks:
        assert mark.startswith(MARKS), f"{block.place}: {mark}"
    reason = block.mark(NOT_RUN)
    assert reason is None or len(reason.split()) >= 3, f"{block.place}: say why"
    if block.language == "":
        is_output = block.mark(PRINTS) is not None or block.mark(TERMINAL_PRINTS) is not None
        for line in block.text.splitlines() if not is_output else ():
            first = line.removeprefix("$ ").split(" ")[0]
            hidden = first in {"rumormill", "python", "pip", "make"} or first.startswith(".venv")
            assert not hidden, f"{block.place}: {line!r} is a command in a block without language"


@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.language in {"toml", "json"}],
    ids=[block.place for block in BLOCKS if block.language in {"toml", "json"}],
)
def test_a_block_of_data_can_be_read(block: Block) -> None:
    """TOML and JSON on a page are TOML and JSON."""
    if block.language == "toml":
        assert tomllib.loads(block.text)
    else:
        assert json.loads(block.text)


@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.language == "sh" and not block.is_program],
    ids=[b.place for b in BLOCKS if b.language == "sh" and not b.is_program],
)
def test_a_command_that_is_not_run_could_be(block: Block) -> None:
    """Its verbs and flags are those of the parser, and the scripts that it names exist."""
    for command in commands(block):
        words = shlex.split(command.replace("$(", "").replace(")", ""), comments=True)
        for number, word in enumerate(words):
            if word.endswith(".py"):
                assert (ROOT / word).is_file(), f"{block.place}: {command}"
            if word in {"rumormill", ".venv/bin/rumormill"}:
                rest = words[number + 1 :]
                ends = [
                    at for at, each in enumerate(rest) if each in {"|", "&&", "<", ">", ";", "&"}
                ]
                # The parser ends the process on a mistake; its complaint is in the test's output.
                build_parser().parse_args(rest[: ends[0]] if ends else rest)


def test_what_is_printed_is_compared() -> None:
    """The comparison itself: equal lines pass, `…` is anything, everything else fails."""
    assert is_like(["a", "b"], ["a", "b"])
    assert is_like(["took 12 ms"], ["took … ms"])
    assert is_like(["a", "b", "c", "d"], ["a", "…", "d"])
    assert not is_like(["a", "b"], ["a"])
    assert not is_like(["took 12 s"], ["took … ms"])
    assert contains(["x", "a", "y", "b"], ["a", "b"])
    assert not contains(["b", "a"], ["a", "b"])


def test_most_programs_run() -> None:
    """A page that lost its blocks, or marked them all, would otherwise pass."""
    ran = sum(block.is_program for block in BLOCKS)
    marked = sum(block.mark(NOT_RUN) is not None for block in BLOCKS)
    assert ran > marked
    assert "README.md" in PLAYED
    assert "docs/start.md" in PLAYED
