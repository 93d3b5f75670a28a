"""A program for a network namespace of its own: honest nodes, and one group full of attackers.

Every address of some networks is this machine's there, so that nodes stand in different groups, and
500 ids in one of them. It prints how many links and places in the book of the attacked node the
attackers hold, and whether the honest nodes still hear each other.
"""

import asyncio
import json
import sys
from typing import Any

from hostile_peer import HostilePeer

from live_nodes import take, until
from rumormill import Node
from rumormill.members.config import MembersConfig
from rumormill.members.peer import MEMBERS_PROTOCOL, topic_key
from rumormill.overlay.kademlia.messages import KadMessage, KadPeer, KadType, encode_kad
from rumormill.wire.frames import frame

KEY = topic_key("news")
HONEST = 8
SYBILS = 500


async def sybil(number: int, target: Node) -> HostilePeer:
    """Come as a subscriber, ask as a member does, and say so to the table as well."""
    peer = HostilePeer()
    peer.address = f"45.67.89.{1 + number % 250}"
    await peer.connect(target)
    peer.hello("news")
    question = KadMessage(KadType.FIND_NODE, bytes(peer.key.peer_id))
    peer.open(MEMBERS_PROTOCOL, frame(encode_kad(question)))
    claim = KadMessage(KadType.ADD_PROVIDER, KEY, providers=(KadPeer(bytes(peer.key.peer_id)),))
    peer.open(MEMBERS_PROTOCOL, frame(encode_kad(claim)))
    return peer


async def main() -> None:
    """Attack, and look."""
    config = MembersConfig(interval=1.0)
    nodes = [
        Node(None, listen=f"/ip4/20.{number}.0.1/tcp/0", members=config) for number in range(HONEST)
    ]
    for node in nodes:
        await node.start()
    events = [await node.subscribe("news") for node in nodes]
    target = nodes[0]
    for node in nodes[1:]:  # the target dials: to whom it dials it knows by its own address
        await target.connect(node.tickets[0])
    view = target._driver.machine.view
    await until(lambda: view().members["linked"] >= HONEST - 1, "the honest ones are linked")
    attackers = [await sybil(number, target) for number in range(SYBILS)]
    await asyncio.sleep(2.0)
    ours = {node.id for node in nodes}
    machine: Any = target._driver.machine
    providers = machine.protocol._table.providers.get(KEY, target._driver.now())
    await nodes[5].publish("news", b"still here")
    heard = [await take(each, 1) for each in events]
    found = {
        "links": [peer in ours for peer in view().links["member"][""]],
        "book": [known.peer in ours for known in machine.protocol._book],
        "providers": [peer in ours for peer in providers],
        "heard": sum(each == [b"still here"] for each in heard),
    }
    sys.stdout.write(json.dumps(found))
    for attacker in attackers:
        await attacker.hang_up()
    for node in nodes:
        await node.close()


if __name__ == "__main__":
    asyncio.run(main())
