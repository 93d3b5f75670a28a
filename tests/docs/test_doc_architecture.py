"""`docs/architecture.md` and the tree tell the same story."""

import re
from pathlib import Path

from doc_pages import ROOT

from test_house import LAYERS

PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGE = ROOT / "src" / "rumormill"


def drawn() -> set[str]:
    """The packages that the page's tree names, as paths below `rumormill`."""
    tree = PAGE[PAGE.index("src/rumormill/\n") : PAGE.index("src/pyspark_rumormill/")]
    found, parents = set(), []
    for indent, name in re.findall(r"^( +)(\w+)/ ", tree, re.MULTILINE):
        depth = len(indent) // 2 - 1
        parents = [*parents[:depth], name]
        found.add("/".join(parents))
    return found


def standing() -> set[str]:
    """The packages that there are, but for those of generated code and data."""
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")}
    return folders - {"."}


def test_the_tree_on_the_page_is_the_tree() -> None:
    """Every package is named there, and nothing that does not exist."""
    assert drawn() == standing()


def test_every_folder_of_the_repository_is_on_the_page() -> None:
    """And those on the page exist."""
    tree = PAGE[PAGE.index("src/rumormill/\n") :].split("```")[0]
    named = {name.split("/")[0] for name in re.findall(r"^(\w[\w/]*)/", tree, re.MULTILINE)}
    assert named == {path.name for path in ROOT.iterdir() if is_ours(path)}


def is_ours(path: Path) -> bool:
    """Whether it is a folder of the repository, and nothing that a tool has made or hidden."""
    made = {"build", "dist", "site", "node_modules"}
    return path.is_dir() and path.name not in made and re.match(r"[._]", path.name) is None


def test_the_storeys_on_the_page_are_those_that_are_checked() -> None:
    """Every package stands where `test_house.py` has it."""
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    told = {name: int(storey) for storey, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert told == LAYERS


def test_the_page_names_only_modules_that_exist() -> None:
    """`sim.engine` and its like are files."""
    packages = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())
    named = set(re.findall(rf"`((?:{'|'.join(packages)})(?:\.\w+)+)", PAGE)) - {"trace.proto"}
    assert named
    for name in sorted(named):
        parts = name.split(".")
        # `core.machine.Machine` names a class in a module.
        while parts and parts[-1][:1].isupper():
            parts.pop()
        path = PACKAGE.joinpath(*parts)
        assert path.with_suffix(".py").exists() or path.is_dir(), name


def test_the_page_names_every_input_and_effect() -> None:
    """What can come into a machine and go out of it is in the two tables."""
    for module, base in (("inputs", "Input"), ("effects", "Effect")):
        source = (PACKAGE / "core" / f"{module}.py").read_text()
        names = re.findall(rf"^class (\w+)\({base}\b", source, re.MULTILINE)
        assert names
        for name in names:
            assert f"`{name}`" in PAGE, f"core.{module}.{name}"
