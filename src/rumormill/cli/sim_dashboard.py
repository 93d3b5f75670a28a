"""`rumormill sim --dashboard`: the page beside a simulation.

The simulation has the main thread, as always, so that it ends as always; the page is served by an
event loop in another. Results are the same with a page and without: an observer changes nothing.
"""

import asyncio
import contextlib
import sys
import threading
import webbrowser
from collections.abc import Iterator
from functools import partial
from typing import Any

from rumormill.cli.dashboard import started
from rumormill.core.event import Event
from rumormill.core.ids import Topic
from rumormill.daemon.endpoint import dashboard_endpoint
from rumormill.dashboard.server import Dashboard
from rumormill.dashboard.sim_source import Feed, SimulationSource
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation


class Watched:
    """A simulation that is watched."""

    def __init__(self, source: SimulationSource) -> None:
        self._source = source

    def run(self, label: str) -> dict[str, Any]:
        """What a run of that name needs to be seen."""

        def begun(simulation: Simulation) -> None:
            protocol = simulation.scenario.protocol
            end, logs = simulation.plan.end, partial(latest_of, simulation)
            self._source.begin(label, protocol, end, lambda: simulation.machines, logs)

        return {"observer": Feed(self._source), "begun": begun}

    def wait(self) -> None:
        """Leave the page as it is until Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):  # from the moment that it is offered
            print("the run is over; the page stays until Ctrl-C", file=sys.stderr)
            threading.Event().wait()


def latest_of(simulation: Simulation, topic: Topic, most: int) -> list[list[Event]]:
    """The last events of a topic, at each peer that is up and keeps any."""
    kept = [host.journal for host in simulation.network.hosts if host.up and host.journal]
    return [events for journal in kept if (events := journal.latest(topic, most))]


@contextlib.contextmanager
def watching(where: str, scenario: Scenario, command: str, *, opens: bool) -> Iterator[Watched]:
    """Serve the page of a simulation that is about to run; its address goes to stderr."""
    about = {"protocol": scenario.protocol, "seed": scenario.seed, "command": command}
    source = SimulationSource("simulation", about)
    endpoint = dashboard_endpoint(where)
    assert endpoint is not None
    door = Dashboard(source, lambda _: None)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="dashboard", daemon=True)
    thread.start()
    try:
        url = asyncio.run_coroutine_threadsafe(started(door, endpoint), loop).result()
        print(url, file=sys.stderr, flush=True)
        if opens:
            webbrowser.open(url)
        yield Watched(source)
    finally:
        asyncio.run_coroutine_threadsafe(door.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
