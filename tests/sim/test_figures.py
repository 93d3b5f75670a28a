"""Figures of small simulations, within margins: each protocol, calm and stormy, and trunk.

`test_trace_hashes.py` sees every change of behaviour; this one says whether it matters. A change
that moves a figure by more than its margin changes the table in the same commit: run this file as
a program, and say in docs/decisions.md why it is worth it.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from rumormill.protocols.registry import protocol as spec_of
from rumormill.sim.churn import Churn
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Fault, Links, Scenario, Sync, Topology, Workload

TABLE: Final = Path(__file__).with_name("figures.md")
SEEDS: Final = (21, 22, 23)
"""A figure is the mean of these: one run is a matter of luck."""

PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "floodsub": {"protocol": "floodsub"},
    "gossipsub": {"protocol": "gossipsub"},
    "gossipsub, trunk": {"protocol": "gossipsub", "parameters": {"trunk": True}},
    "pulsarcast": {"protocol": "pulsarcast"},
    "pulsarcast, open": {"protocol": "pulsarcast", "preset": "open"},
    "skipring": {"protocol": "skipring"},
    "radius": {"protocol": "radius"},
    "radius, design": {"protocol": "radius", "preset": "design"},
}
WEATHERS: Final[dict[str, dict[str, Any]]] = {
    "calm": {"links": Links(latency="planetlab")},
    "stormy": {
        "links": Links(latency="planetlab", jitter=0.02, loss=0.02),
        "churn": Churn(rate=10.0, downtime=5.0, distribution="exponential"),
        "faults": (Fault(kind="partition", at=4.0, groups=2, duration=3.0),),
    },
}
FIGURES: Final = ("messages per delivery", "p99, ms", "complete, %", "control, B per delivery")
MARGINS: Final = {"calm": (0.05, 0.05, 0.001, 0.05), "stormy": (0.1, 0.5, 0.01, 0.1)}
"""By how much of itself each figure may move. Our choice: in calm weather less than anybody would
call a change. In a storm the slowest of a hundred deliveries are a few lost messages and when they
were noticed: with other seeds their p99 differs by up to 45 %, and control bytes by up to 23 %."""

Figures = dict[str, float]


def measured(protocol: str, weather: str) -> Figures:
    """The mean figures of the runs."""
    return mean(
        _figures(
            run_scenario(
                Scenario(
                    **PROTOCOLS[protocol],
                    **WEATHERS[weather],
                    peers=30,
                    topology=Topology(degree=14),
                    warm_up=8.0,
                    cool_down=25.0,
                    workload=Workload(
                        kind="zipf", topics=2, messages=90, rate=6.0, subscriptions_per_peer=1
                    ),
                    sync=Sync(enabled=spec_of(PROTOCOLS[protocol]["protocol"]).recovers),
                    seed=seed,
                )
            )
        )
        for seed in SEEDS
    )


def _figures(run: dict[str, Any]) -> Figures:
    found = (
        run["messages_per_delivery"],
        1000 * run["latency_p99"],
        100 * run["complete_ratio"],
        run["control_bytes"] / run["delivered"],
    )
    return dict(zip(FIGURES, found, strict=True))


def mean(runs: Iterable[Figures]) -> Figures:
    """Of each figure."""
    found = list(runs)
    return {name: round(sum(run[name] for run in found) / len(found), 3) for name in FIGURES}


def read(text: str) -> dict[str, Figures]:
    """The rows of a table."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: dict(zip(FIGURES, map(float, row[1:]), strict=True)) for row in rows[1:]}


def written(rows: dict[str, Figures]) -> str:
    """The table as people read it."""
    lines = [("", *FIGURES), *((name, *map(str, row.values())) for name, row in rows.items())]
    cells = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(
        [cells[0].replace("|  |", "| run |"), "|---" * len(lines[0]) + "|", *cells[1:]]
    )


def moved(name: str, weather: str, kept: Figures, now: Figures) -> list[str]:
    """A line for each figure that is beyond its margin."""
    return [
        f"{name}: {figure} was {kept[figure]:g} and is {now[figure]:g}"
        f" ({(now[figure] - kept[figure]) / kept[figure]:+.1%}, margin {margin:.1%})"
        for figure, margin in zip(FIGURES, MARGINS[weather], strict=True)
        if abs(now[figure] - kept[figure]) > margin * kept[figure]
    ]


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_figures_are_within_their_margins(protocol: str, weather: str) -> None:
    """Whoever moves one knows it, and says so."""
    name = f"{protocol}, {weather}"
    changed = moved(name, weather, read(TABLE.read_text())[name], measured(protocol, weather))
    assert not changed, (
        "\n  ".join(["figures have moved:", *changed])
        + "\nif it is meant: python tests/sim/test_figures.py, in the same commit"
    )


def test_the_table_has_a_row_for_each_run() -> None:
    """No more, and no fewer."""
    names = [f"{protocol}, {weather}" for protocol in PROTOCOLS for weather in WEATHERS]
    assert list(read(TABLE.read_text())) == names


def test_a_figure_beyond_its_margin_is_named_with_how_far_it_went() -> None:
    """And one within it is not."""
    kept = dict.fromkeys(FIGURES, 100.0)
    now = kept | {"p99, ms": 111.0, "messages per delivery": 104.0, "complete, %": 99.7}
    assert moved("x", "calm", kept, now) == [
        "x: p99, ms was 100 and is 111 (+11.0%, margin 5.0%)",
        "x: complete, % was 100 and is 99.7 (-0.3%, margin 0.1%)",
    ]
    assert not moved("x", "stormy", kept, now)
    assert read(written({"x": kept})) == {"x": kept}


HEAD: Final = """# Figures of small simulations

Means of three runs each: 30 peers, PlanetLab's delays, 90 messages in two topics; *stormy* adds
loss of 2 %, jitter of 20 ms, ten peers a minute that leave for five seconds, and a partition of
three. Protocols that do not repair their histories themselves have sync.
`python tests/sim/test_figures.py` writes this table, which that file compares with today's runs.

"""

if __name__ == "__main__":
    rows = {
        f"{protocol}, {weather}": measured(protocol, weather)
        for protocol in PROTOCOLS
        for weather in WEATHERS
    }
    TABLE.write_text(HEAD + written(rows) + "\n")
    sys.stdout.write(f"{TABLE}: {len(rows)} runs\n")
