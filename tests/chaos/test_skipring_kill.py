"""The skip ring between real nodes: kill -9 of a third of them and of the supervisor.

Every publication that got a receipt is in every history in the end, and the histories are equal:
root hashes compared while the nodes run, logs compared when they have ended. The supervisor comes
back without its database; the ring rebuilds it.
"""

import socket
import time
from pathlib import Path
from typing import Any

import pytest
from ring_nodes import TOPIC

from processes import PATIENCE, Group, ask_all
from rumormill.core.event import Event
from rumormill.log import EventLog
from rumormill.node.identity import NodeIdentity, load_or_create_key
from rumormill.protocols.skipring.envelope import check_event
from rumormill.protocols.skipring.labels import label_of, text_of

SCRIPT = Path(__file__).with_name("ring_nodes.py")


class Network:
    """A supervisor and groups of nodes."""

    def __init__(self, homes: Path, interval: float) -> None:
        self.homes = homes
        self.interval = interval
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.groups: list[Group] = []
        self.published: list[str] = []
        self.ticket = ""
        self.restart_supervisor()

    def restart_supervisor(self) -> None:
        """Start a supervisor that knows nothing but who it is."""
        known, self.ticket = self.ticket, ""
        self.supervisor = self._start(["supervisor"])
        (self.ticket,) = self.supervisor.answer()
        assert known in {"", self.ticket}

    def _start(self, names: list[str]) -> Group:
        arguments = [str(self.interval), str(self.homes), str(self.port), self.ticket]
        return Group(SCRIPT, names, arguments)

    def start(self, groups: list[list[str]]) -> list[Group]:
        """Start groups of nodes, all at once."""
        started = [self._start(names) for names in groups]
        self.groups += started
        for group in started:
            group.answer()
        return started

    def publish(self, groups: list[Group], text: str) -> None:
        """Let every node of some groups publish, and remember the receipts."""
        self.published += ask_all(groups, f"publish {text}")

    def views(self) -> list[dict[str, Any]]:
        """How all nodes see the ring."""
        return ask_all(self.groups, "look")

    def wait_until(self, what: str, settled) -> None:
        """Wait for a state of all nodes that are there."""
        deadline = time.monotonic() + PATIENCE
        while not settled(views := self.views()):
            assert time.monotonic() < deadline, f"not {what}: {views}"
            time.sleep(self.interval)

    def wait_for_histories(self) -> None:
        """Wait until root hashes say that all nodes have the same: everything."""
        count = len(self.published)
        self.wait_until(
            "equal",
            lambda views: (
                len({view["root"] for view in views}) == 1 and views[0]["publications"] == count
            ),
        )

    def wait_for_ring(self) -> None:
        """Wait until the labels are the first n, each once, as the supervisor gives them."""
        self.wait_until(
            "a ring",
            lambda views: (
                sorted(str(view["label"]) for view in views)
                == sorted(text_of(label_of(number)) for number in range(len(views)))
            ),
        )

    def crash(self, groups: list[Group]) -> None:
        """kill -9 of some groups."""
        for group in groups:
            group.kill()
            self.groups.remove(group)

    def stop(self) -> None:
        for process in (self.supervisor, *self.groups):
            process.end()


def history(home: Path) -> dict[str, bytes]:
    """What a home's log has of the topic, each event checked like a stranger's."""
    found = {}
    identity = NodeIdentity(load_or_create_key(home / "identity.key"))
    with EventLog(home) as log:
        info = log.topic(TOPIC)
        assert info is not None
        for stored in log.read(TOPIC, 0, info.next_offset):
            event = Event(
                stored.topic,
                stored.data,
                stored.author,
                stored.id,
                created=stored.created,
                proof=stored.proof,
            )
            assert check_event(event, identity)
            assert event.id.hex() not in found, "kept once"
            found[event.id.hex()] = event.data
    return found


def run(homes: Path, groups: int, size: int, interval: float) -> None:
    """Subscribe, publish, kill the supervisor and a third, restart, come late, compare.

    Without a supervisor the ring goes on delivering; when it has also lost a third, the living may
    be cut off from each other until the supervisor is back (section 3.3), but lose nothing.
    """
    names = [[f"node-{group}-{number}" for number in range(size)] for group in range(groups)]
    network = Network(homes, interval)
    try:
        network.start(names)
        network.publish(network.groups, "first")
        network.publish(network.groups, "second")
        network.wait_for_histories()
        network.wait_for_ring()
        network.supervisor.kill()
        network.publish(network.groups, "without a supervisor")
        network.wait_for_histories()
        victims = network.groups[: groups // 3]
        network.publish(victims, "last words")
        network.crash(victims)
        network.publish(network.groups, "among the living")
        network.restart_supervisor()
        network.start([group.names for group in victims])
        network.publish(network.groups, "again")
        network.start([["late"]])
        network.wait_for_histories()
        network.wait_for_ring()
        for group in network.groups:
            assert group.close() == 0
        assert network.supervisor.close() == 0
    finally:
        network.stop()
    everything = history(homes / "late")
    assert sorted(everything) == sorted(network.published)
    for name in [name for group in names for name in group]:
        assert history(homes / name) == everything


def test_histories_survive_kill_9_of_a_third_and_of_the_supervisor(tmp_path: Path) -> None:
    """Nine nodes in three processes."""
    run(tmp_path, groups=3, size=3, interval=0.25)


@pytest.mark.slow
def test_thirty_nodes_survive_it_too(tmp_path: Path) -> None:
    """Thirty nodes, each a process of its own."""
    run(tmp_path, groups=30, size=1, interval=1.0)
