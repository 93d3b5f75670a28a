"""Nodes behind NATs, in a lab of network namespaces (`nat_lab`); skipped where there are none."""

import json
from pathlib import Path
from typing import Any

import pytest

from nat_lab import KINDS, NoLabError, run_alone

STORIES = Path(__file__).with_name("nat_stories.py")
CLOSED = ("port restricted", "symmetric", "CGNAT", "firewall")
"""What lets in only whom it has sent to, port and all: against these a changing port is lost."""


def tell(*arguments: object, patience: float = 120.0) -> Any:
    """Run a story in the lab; return what came of it."""
    try:
        return json.loads(run_alone(STORIES, *arguments, timeout=patience))
    except NoLabError as error:
        pytest.skip(f"no lab of NATs: {error}")


@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [
        ("port restricted", "none", "direct"),
        ("port restricted", "port restricted", "punched"),
        ("firewall", "CGNAT", "punched"),
        ("symmetric", "address restricted", "punched"),
        ("address restricted", "symmetric", "punched"),
    ],
)
def test_two_nodes_get_from_the_relay_to_each_other(one: str, other: str, outcome: str) -> None:
    """And what is published arrives before and after."""
    found = tell("pair", one, other)
    assert found["direct"]
    assert found["outcome"] == outcome


def test_who_cannot_be_punched_through_to_stays_on_the_relay() -> None:
    """A port that changes, against one that must be known: pub/sub works, and says so."""
    found = tell("pair", "port restricted", "symmetric")
    assert found["outcome"] == "not punched"
    assert not found["direct"]
    assert found["told"][0].endswith(f": not punched, because {found['why']}")
    assert found["why"].startswith("one router takes another port for everybody")


def test_between_two_symmetric_nats_nothing_is_tried() -> None:
    """Public peers see several ports of each, both know it of both, and the reason is said."""
    found = tell("pair", "symmetric", "symmetric")
    assert found["outcome"] == "symmetric NATs"
    assert found["symmetric"] == [True, True]
    assert found["why"] == "both routers take another port for everybody they send to"
    assert not found["direct"]


def test_one_symmetric_nat_is_known_on_both_sides() -> None:
    """By who is behind it; and the other one's is known not to be."""
    found = tell("pair", "address restricted", "symmetric", 2, "rough")
    assert found["symmetric"] == [False, True]
    assert found["outcome"] == "punched"


@pytest.mark.parametrize("other", ["port restricted", "symmetric"])
def test_routers_that_have_forgotten_cost_no_event(other: str) -> None:
    """Mappings that nobody has used expire; what both sides publish then arrives."""
    found = tell("expiry", "port restricted", other)
    assert found["expired"]
    assert found["direct_before"] == (other == "port restricted")
    assert found["arrived"] == [["0", "1"], ["0", "1"]]


def test_a_network_mostly_behind_nats_loses_nothing_while_its_relay_is_away() -> None:
    """Twelve nodes, eight behind NATs: everybody has everything in the end."""
    found = tell("network", 12, 8)
    assert found["least"] == found["published"] == 66


def test_every_gateway_is_what_it_is_called() -> None:
    """Who gets in: strangers, whoever was sent to, or its port alone; and whether ports change."""
    assert tell("gateways") == {
        "none": {"stranger": True, "address": True, "port": True, "changes": False},
        "full cone": {"stranger": True, "address": True, "port": True, "changes": False},
        "address restricted": {"stranger": False, "address": True, "port": True, "changes": False},
        "port restricted": {"stranger": False, "address": False, "port": True, "changes": False},
        "symmetric": {"stranger": False, "address": False, "port": True, "changes": True},
        "CGNAT": {"stranger": False, "address": False, "port": True, "changes": False},
        "firewall": {"stranger": False, "address": False, "port": True, "changes": False},
    }


@pytest.mark.slow
def test_thirty_nodes_of_which_twenty_are_behind_nats() -> None:
    """The same with as many as a small network has."""
    found = tell("network", 30, 20, patience=400)
    assert found["least"] == found["published"] == 174


@pytest.mark.slow
@pytest.mark.parametrize("other", KINDS)
def test_the_matrix(other: str) -> None:
    """All get through to each other but a changing port to one that must be known."""
    for one in KINDS:
        found = tell("pair", one, other)
        lost = {one, other} == {"symmetric"} or (
            "symmetric" in (one, other) and ((other if one == "symmetric" else one) in CLOSED)
        )
        assert found["direct"] != lost, (one, other, found)
