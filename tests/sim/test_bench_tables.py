"""Tables of benches say how much was planned and how much of it failed: a protocol that refuses to
publish does not look better for it."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rumormill.sim.scenario import Fault, Scenario, Workload

BENCH = Path(__file__).resolve().parents[2] / "bench"


def bench(name: str) -> ModuleType:
    """A bench as a module."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHOWING = ("delivery_ratio", '["pending"]', '"unsubscribed"')
"""Whoever reads one of these of a run's figures shows what became of publications."""


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(BENCH.glob("*.py")) if any(s in path.read_text() for s in SHOWING)],
    ids=lambda path: path.stem,
)
def test_who_shows_deliveries_shows_what_was_planned_and_failed(path: Path) -> None:
    """Of every bench that simulates."""
    text = path.read_text()
    assert "failed_publications" in text
    assert "planned" in text


def test_published_numbers_have_both_columns() -> None:
    """In a run of twenty peers."""
    module = bench("published_numbers")
    figures = module.measure("v1.0", 20, 1)
    assert {"planned", "failed", "delivery_ratio"} <= set(module.COLUMNS)
    assert figures["planned"] == figures["published"] > 0
    assert figures["failed"] == 0


def test_a_publication_that_fails_is_in_the_figures_of_radius() -> None:
    """What full disks do not take was planned, has failed, and lowers the ratio."""
    module = bench("radius")
    full = Fault(kind="disk-full", at=0.0, fraction=1.0, duration=1000.0)
    scene = Scenario(protocol="radius", peers=10, workload=Workload(messages=4), faults=(full,))
    row = module.run(scene)
    assert (row["planned"], row["failed"], row["published"]) == (4, 4, 0)
    assert row["delivery_ratio"] == 0.0
    assert {"planned", "failed"} <= set(module.COLUMNS)
