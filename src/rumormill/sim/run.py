"""Running scenarios for people: one call from a scenario to its figures.

The figures come from the trace alone; this module only wires a simulation to the observers that
compute them, and names the run.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.trace.entries import Observer
from rumormill.trace.files import open_writer
from rumormill.trace.harness import HarnessLogs
from rumormill.trace.metrics import Metrics
from rumormill.trace.ndjson import LineEncoder, TraceHash


def run_scenario(
    scenario: Scenario,
    *,
    trace: Path | None = None,
    harness_logs: Path | None = None,
    dump_state: Path | None = None,
    progress: Callable[[float], None] | None = None,
    observer: Observer | None = None,
    begun: Callable[[Simulation], None] | None = None,
) -> dict[str, Any]:
    """Run a scenario and return its figures, ready for JSON.

    `trace` names a file to write the trace to; its suffix chooses the format. `harness_logs` names
    a new folder for the logs that libp2p's gossipsub-interop analysis reads. `dump_state` names a
    file for the state of all peers at the end, as JSON. `progress` is called with the part that is
    done. `observer` sees the trace besides, and `begun` is given the simulation before it runs.
    """
    lines = LineEncoder()
    metrics, trace_hash = Metrics(), TraceHash(lines)
    with ExitStack() as files:
        observers: list[Observer] = [metrics, trace_hash]
        if trace is not None:
            observers.append(files.enter_context(open_writer(trace, lines)))
        if harness_logs is not None:
            observers.append(HarnessLogs(harness_logs))
        if observer is not None:
            observers.append(observer)
        simulation = Simulation(scenario, observers)
        if begun is not None:
            begun(simulation)
        simulation.run(progress)
    inspection, forming = simulation.inspection, simulation.forming
    relays = simulation.network.relays
    if dump_state is not None:
        dump_state.write_text(json.dumps(simulation.states()))
    return {
        "protocol": scenario.protocol,
        "preset": scenario.preset,
        "peers": scenario.peers,
        "seed": scenario.seed,
        **metrics.summary(),
        **({} if inspection is None else inspection.figures()),
        **({} if forming is None else forming.figures()),
        **({} if relays is None else relays.figures()),
        **simulation.left_behind(),
        **_topic_names(simulation),
        "steps": simulation.network.engine.steps,
        "virtual_seconds": simulation.plan.end,
        "trace_hash": trace_hash.hexdigest(),
    }


def _topic_names(simulation: Simulation) -> dict[str, dict[str, str]]:
    """Where topics are called otherwise on the network than in the scenario, its name of each."""
    made = simulation.set_up
    called = [(topic, each) for topic, versions in made.versions.items() for each in versions]
    names = {**made.metas, **{each: topic for topic, each in called if each != topic}}
    return {"topic_names": names} if names else {}
