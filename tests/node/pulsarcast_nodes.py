"""Real nodes that speak Pulsarcast: parameters for a hurry, and waiting until all know all."""

from collections.abc import Sequence

from live_nodes import until
from rumormill import Node
from rumormill.protocols.pulsarcast.peer import PulsarcastPeer

QUICK = {
    "kademlia.bootstrap_delay": 0.1,
    "subscribe_retry_delay": 0.2,
    "sync_settle": 0.5,
    "refresh_interval": 1.0,
}
SET = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]


async def all_know_all(nodes: Sequence[Node]) -> None:
    """Wait until every node has every other in its table."""
    for node in nodes:
        machine = node._driver.protocol
        assert isinstance(machine, PulsarcastPeer)
        table = machine.dht.contacts.table
        await until(lambda table=table: len(table) >= len(nodes) - 1, "all know all")
