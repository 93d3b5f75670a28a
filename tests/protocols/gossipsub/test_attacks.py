"""The nine attacks of the GossipSub 1.1 evaluation, scaled to the simulator: two sybils per peer.

All against the parameters that a node has if nobody says otherwise. Sybils come, take mesh links,
and drop what their orders say. Everybody gets everything, before, during and after. What gossip has
to bring, because the mesh does not, comes some heartbeats later, until the mesh has recovered.

On time means within two heartbeats, so that gossip may have helped; prompt means over mesh links
alone. The mesh has recovered at the last message that was not prompt for somebody.

Run as a program, this file prints the table of docs/attacks.md:

    cd tests && python -m protocols.gossipsub.test_attacks
"""

import random
import sys
from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from protocols.attackers import ON_TIME, PROMPT, Battle, drop_all
from rumormill.protocols.gossipsub.config import PRESETS, GossipSubConfig

WARM: Final = 10.0
LATE: Final = 60.0
COVERT: Final = 120.0
"""When attacks begin: sybils that are there from the start, that come later, that show what they
are later. The published runs have the same last two."""
WATCHED: Final = 180.0
"""Seconds from the beginning of an attack to the end of the run."""
RECOVERED: Final = 120.0
"""Seconds after which the mesh carries everything again."""
EVERYBODY: Final = 1000
"""Connections of an attacker that has as many as there are honest peers."""
PUBLISHERS: Final = 5
"""Who publishes when publishers are attacked: a tenth of fifty, as in the published runs."""
FAST, FULL = (20, 40), (50, 100)
"""Honest peers and sybils."""


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """One of the nine: how the sybils come, what they do, and when it begins."""

    begins: float
    send: Callable[[Battle, int], None]
    """Called with the number of sybils when it begins, or, when that is before `LATE`, at the
    start, after the honest peers have come up."""
    dawn: float = 0.0
    """Seconds that the honest peers then let pass before they connect to each other."""
    publishers: int | None = None
    """How many of the honest peers publish; all unless said otherwise."""
    colocation: float = 0.0
    """The weight of P6, which is off by default."""


def eclipse_target(fight: Battle, sybils: int) -> None:
    """All connect to one peer. Its honest links, which it has already, are not for sale."""
    fight.send_sybils(sybils, drop_all, degree=1, targets=fight.honest[:1])


def eclipse_network(fight: Battle, sybils: int) -> None:
    """Everybody is connected to all of them."""
    fight.send_sybils(sybils, drop_all, degree=EVERYBODY)


def eclipse_publishers(fight: Battle, sybils: int) -> None:
    """They want to be the only ones who hear a publisher."""
    fight.send_sybils(sybils, drop_all, degree=EVERYBODY, targets=fight.honest[:PUBLISHERS])


def censor(fight: Battle, sybils: int) -> None:
    """They earn scores by forwarding all authors but one."""
    censored = fight.honest[3].id
    fight.send_sybils(sybils, lambda message, _now: message.author != censored, degree=EVERYBODY)


def degrade(fight: Battle, sybils: int) -> None:
    """They drop every other message."""
    coin = random.Random(7)
    fight.send_sybils(sybils, lambda _message, _now: coin.random() < 0.5, degree=EVERYBODY)


def squat(fight: Battle, sybils: int) -> None:
    """They are there from the start, half of them dialled by the honest peers themselves."""
    fight.send_sybils(sybils // 2, drop_all, degree=20)
    fight.send_sybils(sybils // 2, drop_all, degree=20, dialled=True)


def flash(fight: Battle, sybils: int) -> None:
    """They behave well for two minutes, earn scores, and then drop everything at once."""
    fight.send_sybils(sybils, lambda _message, now: now < COVERT, degree=20)


def wait_for_dawn(fight: Battle, sybils: int) -> None:
    """They are connected before the honest peers know each other."""
    fight.send_sybils(sybils, drop_all, degree=20)


def crowd(fight: Battle, sybils: int) -> None:
    """They share two addresses."""
    fight.send_sybils(sybils, drop_all, degree=20, addresses=2)


ATTACKS: Final = {
    "eclipse one target": Attack(begins=LATE, send=eclipse_target),
    "eclipse the network": Attack(begins=LATE, send=eclipse_network),
    "eclipse all publishers": Attack(begins=LATE, send=eclipse_publishers, publishers=PUBLISHERS),
    "censor one publisher": Attack(begins=LATE, send=censor),
    "degradation by half": Attack(begins=LATE, send=degrade),
    "cold boot": Attack(begins=WARM, send=squat),
    "covert flash": Attack(begins=COVERT, send=flash),
    "attack at dawn": Attack(begins=2 * WARM, send=wait_for_dawn, dawn=WARM),
    "sybils at two addresses, P6 on": Attack(begins=WARM, send=crowd, colocation=-10.0),
}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an attack. Parts are of pairs of a message and an honest peer."""

    delivered: float
    on_time_before: float
    prompt: float
    prompt_at_last: float
    """In the last half minute."""
    recovered: float
    """Seconds from the beginning to the last message that was not prompt for somebody."""
    sybil_links: int
    all_links: int
    fewest_honest_links: int


def node_config(flood: bool) -> GossipSubConfig:
    """What a node has; without flood publishing attacks are harder, for the first hop's sake."""
    return GossipSubConfig(flood_publish=flood)


def fought(
    attack: Attack, config: GossipSubConfig, honest: int, sybils: int, seed: int = 1
) -> Outcome:
    """Let an attack come, and see what it does."""
    if attack.colocation:
        crowded = msgspec.structs.replace(
            config.score, ip_colocation_factor_weight=attack.colocation
        )
        config = msgspec.structs.replace(config, score=crowded)
    fight = Battle(config, honest=honest, links=12, rate=3.0, seed=seed)
    fight.join()
    if attack.begins != LATE:
        attack.send(fight, sybils)
    fight.run_until(attack.dawn)
    fight.connect(fight.honest[: attack.publishers])
    if attack.begins == LATE:
        fight.run_until(LATE)
        attack.send(fight, sybils)
    fight.run_until(attack.begins + WATCHED)
    begin, end = attack.begins, fight.now - 10.0
    before = fight.delivery(WARM, begin - 5.0, within=ON_TIME) if begin >= LATE else 1.0
    return Outcome(
        delivered=fight.delivery(begin, end),
        on_time_before=before,
        prompt=fight.delivery(begin, end, within=PROMPT),
        prompt_at_last=fight.delivery(end - 30.0, end, within=PROMPT),
        recovered=fight.recovered(begin, end, PROMPT),
        sybil_links=fight.sybil_links(),
        all_links=fight.all_links(),
        fewest_honest_links=fight.fewest_honest_links(),
    )


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize(
    ("honest", "sybils", "flood"),
    [
        pytest.param(*FAST, True, id="20 honest, 40 sybils"),
        pytest.param(*FULL, False, id="50, 100, no flood publishing", marks=pytest.mark.slow),
        pytest.param(*FULL, True, id="50, 100", marks=pytest.mark.slow),
    ],
)
def test_an_attack_stops_nothing(name: str, honest: int, sybils: int, flood: bool) -> None:
    """Everybody gets everything, and in the end the mesh carries it again."""
    outcome = fought(ATTACKS[name], node_config(flood), honest, sybils)
    assert outcome.on_time_before == outcome.delivered == 1.0
    assert outcome.prompt_at_last > 0.99
    assert outcome.fewest_honest_links > 0
    assert outcome.recovered <= RECOVERED
    if ATTACKS[name].begins == LATE:
        assert outcome.recovered == 0.0, "links that exist are not for sale"


def test_a_mesh_recovers_from_a_covert_flash() -> None:
    """All links of all meshes are silent at once; better peers are found, and let in, in time."""
    outcome = fought(ATTACKS["covert flash"], node_config(flood=False), *FAST)
    assert outcome.delivered == 1.0
    assert outcome.prompt < 0.9, "it is an attack"
    assert 0.0 < outcome.recovered <= RECOVERED


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_a_mesh_recovers_from_a_covert_flash_in_other_networks_too(seed: int) -> None:
    """The same with other links, other sybils and other delays, in the size of the table."""
    outcome = fought(ATTACKS["covert flash"], node_config(flood=False), *FULL, seed=seed)
    assert outcome.delivered == 1.0
    assert 0.0 < outcome.recovered <= RECOVERED


def test_the_published_set_lets_an_attacker_live_on_its_savings() -> None:
    """Why the defaults differ from it: what a sybil earned outweighs its silence for minutes."""
    published = PRESETS["hardening"]
    assert isinstance(published, GossipSubConfig)
    config = msgspec.structs.replace(published, flood_publish=False)
    outcome = fought(ATTACKS["covert flash"], config, *FAST)
    assert outcome.delivered == 1.0, "gossip does not mind"
    assert outcome.recovered > RECOVERED


def test_attacks_do_harm_where_nothing_stands_against_them() -> None:
    """A cold boot without scores, gossip and flood publishing loses messages for good."""
    config = GossipSubConfig(flood_publish=False, scoring=False, history_gossip=0)
    outcome = fought(ATTACKS["cold boot"], config, *FAST)
    assert outcome.delivered < 0.9
    assert outcome.sybil_links > outcome.all_links / 2


def main() -> None:
    """Print the table."""
    columns = (
        "attack",
        "delivered",
        "prompt",
        "mesh recovered",
        "fewest honest links of a peer",
        "mesh links with sybils",
    )
    write = sys.stdout.write
    write("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|\n")
    for name, attack in ATTACKS.items():
        both = [fought(attack, node_config(flood), *FULL) for flood in (False, True)]
        cells = (
            " / ".join(f"{one.delivered:.2%}" for one in both),
            " / ".join(f"{one.prompt:.1%}" for one in both),
            " / ".join(f"{one.recovered:.0f} s" for one in both),
            " / ".join(str(one.fewest_honest_links) for one in both),
            " / ".join(f"{one.sybil_links} of {one.all_links}" for one in both),
        )
        write(f"| {name} | " + " | ".join(cells) + " |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
