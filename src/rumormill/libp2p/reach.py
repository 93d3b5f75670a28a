"""How a node is reached, put together: whether it can be dialled, the relays that it uses, and the
relay that it may be. What is known of it is said in one sentence, and said again when it changes.
"""

import logging
from collections.abc import Sequence

from rumormill.libp2p.mapping import PortMapping
from rumormill.libp2p.punching import Punching
from rumormill.libp2p.reachability import AutoNat
from rumormill.libp2p.relay import Relay
from rumormill.libp2p.reserving import Reserving
from rumormill.libp2p.swarm import Swarm
from rumormill.wire.keys import PeerId
from rumormill.wire.multiaddr import Multiaddr

_log = logging.getLogger("rumormill.reach")


class Reach:
    """What a node does to be reached, and to have others reached."""

    def __init__(
        self,
        swarm: Swarm,
        relays: Sequence[Multiaddr],
        *,
        auto: bool,
        be_relay: bool,
        map_port: bool,
    ) -> None:
        self._swarm = swarm
        self.relay = Relay(swarm) if be_relay else None
        self.autonat = AutoNat(swarm, self._look)
        self.reserving = Reserving(
            swarm, relays, auto=auto, needed=lambda: not self.autonat.proven, changed=self._look
        )
        self.punching = Punching(swarm)
        self.mapping = PortMapping(swarm, self._look) if map_port else None
        self.sentence = ""
        """Who reaches this node, as far as somebody has tried; empty before that."""

    def start(self) -> None:
        """Begin, until the swarm closes."""
        self.reserving.start()
        self._swarm.spawn(self.autonat.keep_asking())
        if self.mapping is not None:
            self._swarm.spawn(self.mapping.keep())

    async def close(self) -> None:
        """Give back what a router was asked for."""
        if self.mapping is not None:
            await self.mapping.close()

    def _look(self) -> None:
        sentence = self._sentence()
        if sentence != self.sentence:
            self.sentence = sentence
            if sentence:
                _log.info("%s", sentence)

    def _sentence(self) -> str:
        proven, relayed = self.autonat.proven, self._swarm.own.relayed
        if proven:
            return f"reachable at {_listed(proven)}: peers have dialled it"
        closed = list(self.autonat.answers)
        why = f"nobody could dial {_listed(closed)}" if closed else "no public address is known"
        if relayed:
            return f"reachable by relay only, because {why}: at {_listed(relayed)}"
        if closed:
            return f"not reachable from elsewhere, because {why}; --relay auto asks peers for help"
        return ""

    def report(self) -> list[str]:
        """Everything that is known, for people."""
        found = [self.sentence] if self.sentence else []
        for address, answers in self.autonat.answers.items():
            reached = sum(each.reached for each in answers.values())
            found.append(f"{address}: {reached} of {len(answers)} peers could dial it")
        observed = self._swarm.own.observed()
        if observed:
            found.append(f"peers see this node at {', '.join(observed)}")
        if self.mapping is not None and self.mapping.outcome:
            found.append(self.mapping.outcome)
        for relay, place in self.reserving.places.items():
            limit = f"{place.limit.bytes} bytes, {place.limit.seconds} s" if place.limit else "none"
            found.append(f"a place at relay {PeerId(relay)}, limit of a circuit: {limit}")
        for relay, problem in self.reserving.problems.items():
            found.append(f"no place at relay {PeerId(relay)}: {problem}")
        if self.punching.symmetric:
            found.append("the router takes another port for everybody we send to: a symmetric NAT")
        for peer, outcome in self.punching.last.items():
            why = self.punching.reasons.get(peer, "")
            found.append(
                f"from the relay to a direct connection with {PeerId(peer)}: {outcome}"
                f"{f', because {why}' if why else ''}"
            )
        return found

    def counts(self) -> dict[str, dict[str, float]]:
        """Metrics: value by label."""
        kinds = {"direct": 0.0, "punched": 0.0, "relayed": 0.0, "relayed-limited": 0.0}
        for each in self._swarm.connections.values():
            if each.relay:
                kinds["relayed-limited" if each.limited else "relayed"] += 1
            else:
                kinds["punched" if each.punched else "direct"] += 1
        relay = self.relay
        return {
            "rumormill_connections_by_kind": kinds,
            "rumormill_relay": {
                "places": float(len(self.reserving.places)),
                "reservations": float(len(relay.reservations)) if relay else 0.0,
                "circuits": float(relay.reservations.circuits) if relay else 0.0,
            },
            "rumormill_relay_bytes": {"": float(relay.carried_bytes)} if relay else {},
            "rumormill_punches": {how: float(n) for how, n in self.punching.outcomes.items()},
            "rumormill_reachable": {"": float(bool(self.autonat.proven))},
        }


def _listed(addresses: Sequence[Multiaddr]) -> str:
    return ", ".join(map(str, addresses))
