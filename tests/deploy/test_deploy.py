"""What is shipped for operators: a dashboard, a unit of systemd, a container's recipe.

No image can be built in a test: the recipe is read, and what it would run is run here.
"""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run
from metrics_parser import parse
from processes import Terminal
from rumormill.cli.parser import build_parser
from rumormill.node.metrics import METRICS
from rumormill.node.metrics_page import render_metrics
from rumormill.node.node import Node

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
FUNCTIONS = {"histogram_quantile", "sum", "rate", "count", "max", "topk", "by"}


# The dashboard.


def samples(tmp_path: Path) -> dict[str, set[str]]:
    """The labels of every sample that a node serves, by its name."""

    async def story() -> str:
        async with Node(tmp_path) as node:
            return render_metrics(node.metrics())

    found: dict[str, set[str]] = {}
    for name, metric in parse(run(story), openmetrics=False).items():
        for suffix, labels in metric.samples or {("", ()): 0.0}:
            found.setdefault(name + suffix, set()).update(key for key, _ in labels)
    return found


def names_in(expression: str) -> set[str]:
    """The metrics of an expression: what is no function, label, number or variable."""
    bare = re.sub(r"by \([^)]*\)|\{[^}]*\}|\[[^]]*\]", "", expression)
    return set(re.findall(r"[a-zA-Z_]\w*", bare)) - FUNCTIONS


def expressions() -> list[str]:
    """All that the dashboard asks for."""
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [each["query"] for each in DASHBOARD["templating"]["list"] if "refresh" in each]
    return [*asked, *(re.sub(r"label_values\((.*), \w+\)", r"\1", each) for each in variables)]


def test_every_metric_of_the_dashboard_exists(tmp_path: Path) -> None:
    """And has the labels by which it is summed."""
    known = samples(tmp_path)
    for expression in expressions():
        names = names_in(expression)
        assert names, expression
        assert names <= known.keys(), f"{expression}: no {names - known.keys()}"
        (first, *_) = names
        own = METRICS[re.sub(r"_(total|info|bucket)$", "", first)].label.split(",")
        for labels in re.findall(r"by \(([^)]*)\)", expression):
            assert {*labels.split(", ")} <= {*own, "instance", "job"}, expression
    assert names_in('sum by (le) (rate(a_bucket{b=~"c"}[5m])) / no_such') == {"a_bucket", "no_such"}


def test_the_dashboard_fits_a_screen() -> None:
    """At most twelve panels, none over another, each with a title, a unit and what it means."""
    panels = DASHBOARD["panels"]
    assert 0 < len(panels) <= 12
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken
        taken |= cells


# The unit.


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=True, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(DEPLOY / "rumormill.service")
    return found


def test_the_unit_runs_a_node_as_a_user_of_its_own() -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["User"] not in ("", "root", "0")
    assert service["NoNewPrivileges"] == "yes"
    words = shlex.split(service["ExecStart"])
    options = build_parser().parse_args(words[1:])
    assert options.home == f"/var/lib/{service['StateDirectory']}"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # It must find the program that is started; all else is as it is shipped.
    text = (DEPLOY / "rumormill.service").read_text()
    text = text.replace("/srv/rumormill/.venv/bin/rumormill", shutil.which("true") or "")
    copy = tmp_path / "rumormill.service"
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if copy.name in line]
    assert not complaints, complaints


# The container.


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def last(word: str) -> str:
    return [rest for each, rest in instructions() if each == word][-1]


def test_the_container_runs_as_a_user_without_rights() -> None:
    """Nothing is done as root behind the user's line, and its home is its own."""
    words = [word for word, _ in instructions()]
    user, group = last("USER").split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert not {"RUN", "COPY", "ADD"} & {*words[words.index("USER") :]}
    made = " ".join(rest for word, rest in instructions() if word == "RUN")
    assert f"--uid {user}" in made
    assert "--mode 0700 /var/lib/rumormill" in made
    assert last("VOLUME") == "/var/lib/rumormill"
    assert "RUMORMILL_HOME=/var/lib/rumormill" in last("ENV")


def test_the_recipe_names_what_there_is() -> None:
    """Images with a version, files of this tree, extras of this package."""
    for word, rest in instructions():
        if word == "FROM":
            assert re.fullmatch(r"python:3\.\d+-slim( AS build)?", rest)
        if word == "COPY" and not rest.startswith("--from=build "):
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources), rest
        assert word != "ADD"
    (extras,) = re.findall(r"\.\[([\w,]+)\]", (DEPLOY / "Dockerfile").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in project for extra in extras.split(","))


def test_what_the_container_runs_and_asks_works_here(home: Path) -> None:
    """Its command, at other ports, and its question about health, before and after the end."""
    command = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    assert command[0] == "rumormill"
    options = build_parser().parse_args(command[1:])
    assert last("EXPOSE").split() == [options.listen[0].split("/")[-1], options.metrics[-4:]]
    question = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    here = [each.replace("0.0.0.0", "127.0.0.1").replace("/tcp/4001", "/tcp/0") for each in command]
    here = [each.replace(":9464", ":0") for each in here]
    with Terminal(*here[1:], "--json", RUMORMILL_HOME=str(home)) as node:
        port = json.loads(node.prints()[0])["metrics_port"]
        asked = [sys.executable, *(each.replace(":9464", f":{port}") for each in question[1:])]
        assert subprocess.run(asked, check=False).returncode == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as page:
            assert page.read() == b"ok\n"
        assert node.stop() == 0
    assert subprocess.run(asked, check=False, stderr=subprocess.DEVNULL).returncode != 0
