"""The nine published attacks with trees inside the mesh, and sybils who speak of trees too."""

import pytest

from protocols.attackers import ON_TIME, Battle, Sybil
from protocols.gossipsub.test_attacks import ATTACKS, FAST, RECOVERED, fought
from rumormill.core.effects import Effects, Send
from rumormill.core.inputs import Input, PeerConnected
from rumormill.protocols.gossipsub.config import GossipSubConfig
from rumormill.protocols.gossipsub.peers import PROTOCOLS
from rumormill.protocols.pubsub.messages import Control, Rpc
from rumormill.protocols.pubsub.trunk_part import TrunkPart, mark_of, tag_of


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_stops_nothing(name: str) -> None:
    """As without trees: everybody gets everything, and in the end at once."""
    outcome = fought(ATTACKS[name], GossipSubConfig(trunk=True), *FAST)
    assert outcome.on_time_before == outcome.delivered == 1.0
    assert outcome.prompt_at_last > 0.99
    assert outcome.recovered <= RECOVERED


class Announcer(Sybil):
    """Announces all that it hears of, to everybody and at once, and never sends anything."""

    def handle(self, event: Input, now: float, effects: Effects) -> None:
        if isinstance(event, PeerConnected):
            effects.append(Send(event.peer, Rpc(control=Control(offers_trunk=True))))
        super().handle(event, now, effects)

    def _on_rpc(self, peer: bytes, rpc: Rpc, now: float, effects: Effects) -> None:
        super()._on_rpc(peer, rpc, now, effects)
        names = [tag_of(each.topic, each.author) + mark_of(each.seqno) for each in rpc.publish]
        if rpc.control is not None and rpc.control.trunk is not None:
            names += rpc.control.trunk.have
        new = tuple(name for name in names if name not in self._seen)
        self._seen.update(dict.fromkeys(new))
        if new:
            part = Rpc(control=Control(trunk=TrunkPart(have=new)))
            effects.extend(Send(link, part) for link in self._links if link != peer)


def test_sybils_that_announce_everything_and_send_nothing() -> None:
    """Twice as many as honest peers, in everybody's mesh, and nearer to everybody than anybody.

    They win elections and are asked first, until they have failed three times.
    """
    fight = Battle(GossipSubConfig(trunk=True), honest=20, links=12, rate=3.0)
    fight.join()
    fight.connect()
    fight.run_until(30.0)
    for _ in range(40):
        sybil = fight.network.add_host(PROTOCOLS, lambda *_: Announcer(lambda _m, _n: False))
        fight.network.start(sybil)
        fight.sybils.append(sybil)
        for victim in fight.randomness.sample(fight.honest, 10):
            fight.network.dial(sybil, victim.id)
    fight.run_until(31.0)
    for sybil in fight.sybils:
        for peer, link in sybil.links.items():
            link.latency = fight.network.by_id[peer].links[sybil.id].latency = 0.001
    fight.run_until(150.0)
    assert fight.sybil_links() > 20, "they are in the meshes"
    assert fight.delivery(30.0, 140.0) == 1.0
    assert fight.delivery(30.0, 140.0, within=ON_TIME) > 0.999
    assert fight.delivery(100.0, 140.0, within=0.5) > 0.98
