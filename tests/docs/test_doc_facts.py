"""What pages say of names and defaults is what the code has."""

import re
from collections.abc import Iterator

import msgspec
import pytest
from doc_pages import ROOT, pages

from rumormill.cli.parser import build_parser
from rumormill.cli.shared_flags import PROTOCOLS
from rumormill.log.model import StoreConfig
from rumormill.node.config import NodeConfig
from rumormill.node.metrics import METRICS
from rumormill.protocols.registry import protocol

UNITS = {"KiB": 1024, "MiB": 1 << 20}
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?: ([A-Za-z]+)|/s)?")


def page(name: str) -> str:
    """The text of a page."""
    return (ROOT / "docs" / name).read_text()


def parameter_rows(text: str) -> Iterator[tuple[list[str], str]]:
    """The names and the defaults of each row of a page's tables of parameters."""
    for table in re.findall(
        r"^\| parameter \| default \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE
    ):
        for row in table.splitlines():
            names, default = (cell.strip() for cell in row.split("|")[1:3])
            found: list[str] = []
            for name in re.findall(r"`([^`]+)`", names):
                # `.passive_size` behind `hyparview.active_size` is of the same part.
                part = found[-1].rpartition(".")[0] if name.startswith(".") else ""
                found.append(part + name)
            yield found, default


def value_of(config: object, name: str) -> object:
    """A parameter by its dotted name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_parameters_on_a_protocols_page_exist_and_have_these_defaults(name: str) -> None:
    """Every name, and every default that is a number, of `docs/<protocol>.md`."""
    defaults = protocol(name).presets["default"]
    compared = 0
    for names, default in parameter_rows(page(f"{name}.md")):
        values = [value_of(defaults, each) for each in names if not each.endswith("*")]
        written = [_NUMBER.fullmatch(each) for each in default.split(", ")]
        if len(written) != len(values) or None in written:
            continue
        for value, match in zip(values, written, strict=True):
            assert match is not None
            number = float(match[1].replace(",", "")) * UNITS.get(match[2] or "", 1)
            assert number == value, f"{names}: {default}"
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("name", [*PROTOCOLS, "sync"])
def test_a_protocols_page_begins_with_what_it_is_and_a_picture(name: str) -> None:
    """A paragraph of prose, then a picture, before anything else."""
    _, prose, picture, *_ = page(f"{name}.md").split("\n\n")
    assert 4 <= len(re.findall(r"[\w)`*]{2}[.](?=\s|$)", prose)) <= 6
    assert re.match(r"!\[.{20,}\]\(pictures/\w+\.svg\)", picture)


def test_the_front_page_and_the_glossary_are_short() -> None:
    """What is longer is read by nobody."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    assert len(page("glossary.md").splitlines()) <= 40


def test_no_rule_of_the_site_asks_what_a_whole_page_has() -> None:
    """It is asked again for each of the reference's 240 copy buttons: a quarter of a minute."""
    rules = (ROOT / "docs" / "theme" / "site.css").read_text()
    assert re.findall(r"(?:body|html|:root|\.md-c\w+|\.md-main\w*)[^\s{,]*:has\(", rules) == []


def test_operations_names_every_metric_and_no_other() -> None:
    """An operator finds each on the page, and finds nothing that does not exist."""
    text = page("operations.md")
    section = text[text.index("## Metrics") : text.index("## Limits")]
    named = set(re.findall(r"`([a-z_]+_[a-z_]+)(?:\{\w+\})?`", section)) - {"rumormill_"}
    assert named == set(METRICS)


@pytest.mark.parametrize("name", ["operations.md", "security.md", "command-line.md"])
def test_settings_of_node_and_log_on_a_page_exist(name: str) -> None:
    """`node.…` and `store.…` are fields of the two configurations."""
    fields = {
        "node": set(msgspec.structs.asdict(NodeConfig())),
        "store": set(msgspec.structs.asdict(StoreConfig())),
    }
    found = re.findall(r"`(?:[^`]* )?(node|store)\.(\w+)(?:=[^`]*)?`", page(name))
    assert found
    for part, key in found:
        assert key in fields[part], f"{name}: {part}.{key}"


def test_what_the_page_for_contributors_names_is_there() -> None:
    """A name of a file of the package is in that file."""
    named = re.findall(r"`(\w+)` of `([\w/]+\.py)`", page("contributing.md"))
    assert named
    for name, file in named:
        assert name in (ROOT / "src" / "rumormill" / file).read_text(), (name, file)


def test_the_command_line_page_has_every_verb() -> None:
    """What can be typed is described."""
    text = page("command-line.md")
    (verbs,) = (action for action in build_parser()._actions if action.metavar == "VERB")
    assert verbs.choices
    for verb in verbs.choices:
        assert re.search(rf"`{verb}[ `]", text), verb


def test_files_that_pages_name_exist() -> None:
    """`tests/chaos/test_node_kill.py`, `bench/sim.py`, `scenarios/churn.toml` and their like."""
    folders = "bench|docs|examples|grids|scenarios|src|tests|tools"
    named = re.compile(rf"`((?:{folders})/[\w./-]*\w)[/`]?`")
    missing = [
        f"{name}: {path}"
        for name in pages()
        for path in named.findall((ROOT / name).read_text())
        if not (ROOT / path).exists()
    ]
    assert not missing


def named_tests(text: str) -> list[str]:
    return re.findall(r"`tests/[\w./-]+|`make test-chaos`|`python bench/", text)


def test_every_promise_of_reliability_names_its_test() -> None:
    """The numbered ones, and each row of the tables of faults, unless it says that it is none."""
    text = (ROOT / "docs" / "reliability.md").read_text()
    promises = re.findall(r"^\d\. \*\*.*?(?=^\d\. |\n\n)", text, re.MULTILINE | re.DOTALL)
    assert len(promises) == 7
    rows = re.findall(r"^\| \*\*.*\|$", text, re.MULTILINE)
    assert len(rows) > 25
    same = ("the same |", "the same,", "not promised |")
    bare = [each for each in promises + rows if not named_tests(each)]
    assert [each for each in bare if not any(word in each for word in same)] == []


def test_every_part_of_security_names_its_tests() -> None:
    """All but the last, which says what is not protected."""
    text = (ROOT / "docs" / "security.md").read_text()
    *parts, last = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert last.startswith("What is not protected")
    assert [part.partition("\n")[0] for part in parts if not named_tests(part)] == []
