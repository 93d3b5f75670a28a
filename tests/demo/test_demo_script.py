"""What a demonstration does is decided before it begins, and by the seed alone."""

import pytest

from rumormill.core.errors import ConfigError
from rumormill.demo.script import MOST_NODES, PARTICIPANTS, Script, chosen, write_script
from rumormill.protocols.registry import PROTOCOL_NAMES, protocol
from rumormill.sim.workload import load_reddit


def test_the_same_seed_gives_the_same_script_and_another_another() -> None:
    assert write_script(10, 50, 7) == write_script(10, 50, 7)
    assert write_script(10, 50, 7).kills != write_script(10, 50, 8).kills


def test_the_load_is_the_beginning_of_the_recorded_one() -> None:
    """Every comment comes from the node that plays its user, which subscribes to its topic."""
    script = write_script(10, 200, 1)
    recorded = load_reddit().events[:200]
    assert [each.data for each in script.publications] == [each.data for each in recorded]
    assert [each.publisher for each in script.publications] == [e.user % 10 for e in recorded]
    assert {*script.topics} == {each.topic for each in recorded}
    for each in script.publications:
        assert each.topic in script.subscriptions[each.publisher]
    assert script.publications[0].at >= 0.0


def test_the_observer_follows_everything_and_publishes_nothing() -> None:
    script = write_script(10, 200, 1)
    assert script.subscriptions[script.observer] == script.topics
    assert all(script.observer != each.publisher for each in script.publications)


@pytest.mark.parametrize(("nodes", "events"), [(3, 1), (3, 40), (10, 240), (MOST_NODES, 5000)])
def test_a_third_is_killed_one_after_another_and_all_come_back(nodes: int, events: int) -> None:
    """Every victim dies once, and is called back before the last event is published."""
    script: Script = write_script(nodes, events, 1)
    victims = [kill.node for kill in script.kills]
    assert len(dict.fromkeys(victims)) == len(victims) == nodes // 3
    assert all(0 <= kill.after <= kill.back_after < events for kill in script.kills)
    assert script.observer not in victims


@pytest.mark.parametrize(
    ("nodes", "events", "fault"),
    [(2, 10, "nodes"), (MOST_NODES + 1, 10, "nodes"), (5, 0, "events"), (5, 5001, "events")],
)
def test_impossible_sizes_are_refused(nodes: int, events: int, fault: str) -> None:
    with pytest.raises(ConfigError, match=f"{fault}: must be from"):
        write_script(nodes, events, 1)


def test_every_protocol_takes_part() -> None:
    assert sorted(each.protocol for each in PARTICIPANTS) == sorted(PROTOCOL_NAMES)
    for each in PARTICIPANTS:
        assert each.preset in protocol(each.protocol).presets
    assert chosen([]) == list(PARTICIPANTS)
    assert [each.label for each in chosen(["radius", "floodsub", "radius"])] == [
        "radius",
        "floodsub",
    ]
    with pytest.raises(ConfigError, match="gossipsub"):
        chosen(["gosipsub"])
