"""Overlay attacks of the GossipSub 1.1 evaluation, scaled to the simulator: two sybils per peer.

All with the published hardening preset. Sybils come, take mesh links, and drop what their orders
say. Before an attack and after recovery everybody gets everything on time; what happens between is
measured and bounded. Flood publishing is off in the fast tests, which makes the attacks harder:
with it a message needs no mesh for its first hop.

On time means within two heartbeats, so that gossip may have helped; prompt means over mesh links
alone. `recovered` is virtual seconds from the attack to the last message that was not on time for
somebody, `mesh_recovered` the same for prompt.
"""

import random
from collections.abc import Callable

import msgspec
import pytest

from protocols.attackers import ON_TIME, PROMPT, Battle, Orders, drop_all
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig
from rumormill.protocols.gossipsub.score_params import HARDENING_SCORE

WARM = 10.0
ATTACK = 60.0
FAST, FULL = (20, 40), (50, 100)
SIZES = [
    pytest.param(*FAST, False, id="20 honest, 40 sybils, no flood publishing"),
    pytest.param(*FULL, False, id="50, 100, no flood publishing", marks=pytest.mark.slow),
    pytest.param(*FULL, True, id="50, 100, flood publishing", marks=pytest.mark.slow),
]
Report = Callable[[str, object], None]
attack_sizes = pytest.mark.parametrize(("honest", "sybils", "flood"), SIZES)


def hardened(flood: bool, **changes: object) -> GossipSubConfig:
    config = PRESETS["hardening"]
    assert isinstance(config, GossipSubConfig)
    return msgspec.structs.replace(config, flood_publish=flood, **changes)


def battle(config: GossipSubConfig, honest: int) -> Battle:
    fight = Battle(config, honest=honest, links=12, rate=3.0)
    fight.join()
    return fight


def judge(fight: Battle, attack: float, end: float, report: Report, *, lost: float = 0.0) -> float:
    """Let the fight go on to its end, report its figures, and check what must hold of each."""
    peak = 0
    while fight.now < end:
        fight.run_until(min(end, fight.now + 5.0))
        peak = max(peak, fight.sybil_links())
    last = end - 10.0
    during = fight.delivery(attack, last)
    recovered = fight.recovered(attack, last, ON_TIME)
    report("delivered", round(during, 5))
    report("on_time", round(fight.delivery(attack, last, within=ON_TIME), 5))
    report("prompt", round(fight.delivery(attack, last, within=PROMPT), 5))
    report("recovered", round(recovered, 1))
    report("mesh_recovered", round(fight.recovered(attack, last, PROMPT), 1))
    report("sybil_links", f"{peak} at most, {fight.sybil_links()} of {fight.all_links()} at last")
    if attack > WARM:
        assert fight.delivery(WARM, attack - 5.0, within=ON_TIME) == 1.0, "before the attack"
    assert during >= 1.0 - lost, "during the attack"
    assert fight.delivery(last - 30.0, last, within=ON_TIME) == 1.0, "after recovery"
    return recovered


@attack_sizes
def test_eclipse_of_one_target(
    honest: int, sybils: int, flood: bool, record_property: Report
) -> None:
    """All sybils connect to one peer: its honest links, which it has already, are not for sale."""
    fight = battle(hardened(flood), honest)
    fight.run_until(ATTACK)
    target = fight.honest[0]
    fight.send_sybils(sybils, drop_all, degree=1, targets=[target])
    assert judge(fight, ATTACK, 180.0, record_property) == 0.0
    assert fight.sybil_links(target) < fight.config.D_hi / 2
    assert fight.delivery(ATTACK, 170.0, within=ON_TIME, of=[0]) == 1.0


@attack_sizes
def test_censorship_of_one_publisher(
    honest: int, sybils: int, flood: bool, record_property: Report
) -> None:
    """Sybils earn scores by forwarding all but one author: it is heard all the same."""
    fight = battle(hardened(flood), honest)
    censored = fight.honest[3].id
    fight.run_until(ATTACK)
    fight.send_sybils(sybils, lambda message, _now: message.author != censored, degree=12)
    assert judge(fight, ATTACK, 180.0, record_property) == 0.0


@attack_sizes
def test_cold_boot_among_squatters(
    honest: int, sybils: int, flood: bool, record_property: Report
) -> None:
    """Sybils are there from the start, half of them dialled by the honest peers themselves."""
    fight = battle(hardened(flood), honest)
    fight.send_sybils(sybils // 2, drop_all, degree=8)
    fight.send_sybils(sybils // 2, drop_all, degree=8, dialled=True)
    judge(fight, WARM, 220.0, record_property, lost=0.02)
    repaired = fight.recovered(WARM, 210.0, PROMPT)
    assert 0.0 < repaired < 120.0, "activation of P3 takes a minute, back-offs another"


def test_the_attack_does_harm_where_nothing_stands_against_it() -> None:
    """The same cold boot without scores, gossip and flood publishing loses messages for good."""
    config = hardened(False, scoring=False, history_gossip=0)
    fight = battle(config, FAST[0])
    fight.send_sybils(FAST[1] // 2, drop_all, degree=8)
    fight.send_sybils(FAST[1] // 2, drop_all, degree=8, dialled=True)
    fight.run_until(60.0)
    assert fight.delivery(WARM, 50.0) < 0.9
    assert fight.sybil_links() > fight.all_links() / 2


@attack_sizes
def test_covert_flash(honest: int, sybils: int, flood: bool, record_property: Report) -> None:
    """Sybils behave well for two minutes, earn scores, and then drop everything at once."""
    orders: Orders = lambda _message, now: now < 120.0  # noqa: E731
    fight = battle(hardened(flood), honest)
    fight.send_sybils(sybils, orders, degree=8)
    judge(fight, 120.0, 240.0, record_property, lost=0.02)


@attack_sizes
def test_degradation_by_half(
    honest: int, sybils: int, flood: bool, record_property: Report
) -> None:
    """Sybils drop every other message."""
    coin = random.Random(7)
    fight = battle(hardened(flood), honest)
    fight.run_until(ATTACK)
    fight.send_sybils(sybils, lambda _message, _now: coin.random() < 0.5, degree=12)
    assert judge(fight, ATTACK, 180.0, record_property) == 0.0


@attack_sizes
def test_sybils_that_share_addresses(
    honest: int, sybils: int, flood: bool, record_property: Report
) -> None:
    """With P6 on, many sybils at few addresses get no link at all."""
    crowded = msgspec.structs.replace(HARDENING_SCORE, ip_colocation_factor_weight=-10.0)
    fight = battle(hardened(flood, score=crowded), honest)
    fight.send_sybils(sybils, drop_all, degree=10, addresses=2)
    assert judge(fight, WARM, 100.0, record_property) == 0.0
    assert fight.sybil_links() == 0
