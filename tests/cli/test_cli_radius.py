"""Radius gossip from the command line: simulated, and at two terminals."""

import json
from pathlib import Path

import pytest

from processes import SOURCES, Terminal, rumormill

RADIUS = ("--protocol", "radius")
SCENARIOS = SOURCES.parent / "scenarios"


def test_two_terminals(home: Path) -> None:
    """`sub`, then `pub`, with nothing but the protocol named."""
    with Terminal("sub", "news", "--count", "1", *RADIUS, RUMORMILL_HOME=home) as sub:
        sub.says("listening to news")
        done = rumormill("pub", "news", "hello", *RADIUS, RUMORMILL_HOME=home)
        assert done.returncode == 0, done.stderr
        assert sub.prints() == ["hello"]
        assert sub.ends() == 0


def test_a_node_between_two_others_relays(home: Path) -> None:
    """A daemon that wants nothing itself brings publisher and subscriber together."""
    with Terminal("node", "--home", home, *RADIUS) as daemon:
        (ticket,) = [line for line in daemon.prints() if "/p2p/" in line][:1]
        apart = {"RUMORMILL_HOME": f"{home}-sub"}
        join = ("--join", ticket.split()[-1])
        with Terminal("sub", "news", "--count", "1", *RADIUS, *join, **apart) as sub:
            sub.says("listening to news")
            apart = {"RUMORMILL_HOME": f"{home}-pub"}
            done = rumormill("pub", "news", "across", *RADIUS, *join, **apart)
            assert done.returncode == 0, done.stderr
            assert sub.prints() == ["across"]


@pytest.mark.parametrize("serving", ["all", "few"])
def test_the_reference_workload(serving: str) -> None:
    """20 peers, 50 topics, 5 subscriptions each, 60 publications: everything arrives, once."""
    scenario = str(SCENARIOS / "radius-reference.toml")
    done = rumormill("sim", scenario, "--set", f"serving={serving}", "--check-codec", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["delivery_ratio"] == 1.0
    assert figures["repeated_deliveries"] == 0
    assert figures["delivered"] > 100


def test_the_rules_compared() -> None:
    """One command compares both rules with GossipSub on the same graph and workload."""
    scenario = Path(SCENARIOS / "radius-sparse.toml")
    small = ["--peers", "60", "--set", "network_size=60", "--topics", "6"]
    compare = ["--compare", "radius:design,radius,gossipsub"]
    done = rumormill("sim", str(scenario), *small, *compare, "--json")
    assert done.returncode == 0, done.stderr
    everybody, few, gossipsub = json.loads(done.stdout)["runs"]
    assert everybody["delivery_ratio"] == few["delivery_ratio"] == 1.0
    assert gossipsub["delivery_ratio"] < 1.0  # those between do not relay what they do not want
    letters = [run["control_messages"]["directmsg"] for run in (everybody, few)]
    assert letters[1] < letters[0] / 10
