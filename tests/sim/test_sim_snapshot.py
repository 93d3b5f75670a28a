"""A machine is its fields alone: put away in the middle of a run, it goes on as if nothing was."""

import json
import random
from typing import Any

import msgspec
import pytest

from rumormill.core.effects import Ask, Effects
from rumormill.core.inputs import Answered, Command, Input, PeerConnected
from rumormill.core.machine import View
from rumormill.overlay.kademlia.messages import KadMessage, KadType
from rumormill.overlay.kademlia.peer import FindClosest, FindPeer, Provide
from rumormill.protocols.kademlia.spec import SPEC as KADEMLIA
from rumormill.protocols.registry import PROTOCOL_NAMES, Hooks
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.sim.snapshot import Given, dump, restore, state_of
from rumormill.trace.ndjson import TraceHash

CALM: dict[str, Any] = {
    "peers": 20,
    "topology": {"degree": 8},
    "warm_up": 8.0,
    "cool_down": 6.0,
    "workload": {"kind": "zipf", "topics": 4, "messages": 60, "subscriptions_per_peer": 2},
}
STORMY: dict[str, Any] = {
    **CALM,
    "links": {"latency": "regions", "jitter": 0.02, "loss": 0.02, "bandwidth": "10mbit"},
    "churn": {"rate": 60.0, "downtime": 3.0},
    "disk": {"commit_delay": 0.05},
    "faults": [
        {"kind": "byzantine", "at": 0.0, "fraction": 0.1, "duration": 5.0},
        {"kind": "partition", "at": 1.0, "groups": 2, "duration": 1.5},
        {"kind": "slow-reader", "at": 1.0, "fraction": 0.2, "duration": 3.0},
        {"kind": "pause", "at": 2.0, "fraction": 0.2, "duration": 2.0},
        {"kind": "disk-full", "at": 1.5, "fraction": 0.2, "duration": 2.0},
        {"kind": "crash", "at": 1.0, "fraction": 0.2, "duration": 3.0, "keep_state": True},
    ],
}
MOMENTS = (9.0, 10.2, 11.7)
"""All is well; a partition; and then some are paused, down or hostile, or have a full disk."""


def text_of(state: Any) -> str:
    return json.dumps(state)


def run_through(scenario: Scenario) -> tuple[str, str]:
    """Run without a break; return the trace's hash and the states at the end."""
    trace = TraceHash()
    run = Simulation(scenario, [trace])
    run.run()
    return trace.hexdigest(), text_of(run.states())


def run_with_breaks(scenario: Scenario) -> tuple[str, str]:
    """The same, and at some moments every machine is replaced by one made of its dump."""
    trace = TraceHash()
    run = Simulation(scenario, [trace])
    for moment in MOMENTS:
        run.run(until=moment)
        for host, given in zip(run.network.hosts, run.given, strict=True):
            before = host.machine
            host.machine = restore(dump(before, given), given)
            assert host.machine is not before
            assert text_of(state_of(host.machine, given)) == text_of(state_of(before, given))
    run.run()
    return trace.hexdigest(), text_of(run.states())


@pytest.mark.parametrize("weather", [CALM, STORMY], ids=["calm", "stormy"])
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_a_run_goes_on_from_a_dump_as_it_would_have(protocol: str, weather: dict[str, Any]) -> None:
    """Every machine of a network, honest, hostile, paused or down: same trace, same end."""
    scenario = Scenario.from_dict({"protocol": protocol, "seed": 5, **weather})
    assert run_with_breaks(scenario) == run_through(scenario)


@pytest.mark.parametrize("protocol", ["gossipsub", "floodsub", "radius"])
def test_a_run_with_sync_goes_on_from_a_dump_too(protocol: str) -> None:
    """Sessions under way included: they are short, and many."""
    sync = {"enabled": True, "interval": 0.5, "settle": 0.5}
    scenario = Scenario.from_dict({"protocol": protocol, "seed": 5, **STORMY, "sync": sync})
    assert run_with_breaks(scenario) == run_through(scenario)


def test_the_bare_hash_table_can_be_put_away_too() -> None:
    """In the middle of its lookups: it is not run by scenarios."""
    given = Given(SimulatedIdentity(b"anne"), Hooks())
    machine = KADEMLIA.build(given.identity, random.Random(1), KADEMLIA.configure(), given.hooks)
    effects: Effects = []
    for number in range(30):
        machine.handle(PeerConnected(b"%04d" % number, "/p"), 1.0, effects)
    for ask in [each for each in effects if isinstance(each, Ask)]:
        answer = KadMessage(KadType.FIND_NODE)
        machine.handle(Answered(ask.peer, ask.number, answer), 2.0, effects)
    for number, request in enumerate((FindPeer(b"x"), FindClosest(b"y"), Provide(b"z" * 34))):
        machine.handle(Command(number, request), 3.0, effects)
    again = restore(dump(machine, given), given)
    assert text_of(state_of(again, given)) == text_of(state_of(machine, given))
    assert again.view() == machine.view()


# What a dump holds.


class Box:
    """A machine that does nothing, and holds whatever a test puts into it."""

    def __init__(self, given: Given, **fields: Any) -> None:
        self.identity = given.identity
        self.addresses = given.hooks.addresses
        self.__dict__.update(fields)

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        """Do nothing."""

    def view(self) -> View:
        """Show nothing."""
        return View()


class Word(msgspec.Struct):
    """Something that a machine may hold."""

    text: str


@pytest.fixture
def given() -> Given:
    return Given(SimulatedIdentity(b"anne"), Hooks(addresses=lambda peer: (peer,)))


def test_what_the_runtime_gave_is_named_and_not_copied(given: Given) -> None:
    """A key never gets into a dump, and the restored machine has the new runtime's hooks."""
    data = dump(Box(given), given)
    assert b"anne" not in data
    other = Given(SimulatedIdentity(b"bob!"), Hooks(addresses=lambda _: ()))
    box: Any = restore(data, other)
    assert box.identity is other.identity
    assert box.addresses is other.hooks.addresses
    assert state_of(box, other)["identity"] == {"given": "identity"}


def test_what_is_held_twice_stays_one(given: Given) -> None:
    """Also where it is a key by its identity."""
    word = Word("one")
    box: Any = restore(dump(Box(given, table={"a": word}, last=word), given), given)
    assert box.last is box.table["a"]
    assert state_of(box, given)["last"] == {"same": 2}
    apart = Box(given, table={"a": Word("one")}, last=Word("one"))
    assert state_of(apart, given) != state_of(box, given)


def test_randomness_goes_on_where_it_was(given: Given) -> None:
    """It is a part of the machine's state, and shown as such."""
    box: Any = Box(given, randomness=random.Random(3))
    box.randomness.random()
    again: Any = restore(dump(box, given), given)
    assert state_of(again, given) == state_of(box, given)
    assert again.randomness.random() == box.randomness.random()
    box.randomness.random()
    assert state_of(again, given) != state_of(box, given)


def test_a_state_tells_the_order_of_keys(given: Given) -> None:
    """Machines go through their tables in order, so the order is a part of the state."""
    one, other = Box(given, table={b"a": 1, b"b": 2}), Box(given, table={b"b": 2, b"a": 1})
    assert text_of(state_of(one, given)) != text_of(state_of(other, given))
    assert state_of(one, given)["table"] == {"61": 1, "62": 2}


def test_what_is_no_state_is_refused(given: Given) -> None:
    """A closure has no form but itself, and a generator not even that."""
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        dump(Box(given, then=lambda: None), given)
    with pytest.raises(TypeError, match="must not hold a set"):
        state_of(Box(given, peers={b"a"}), given)
