"""Stories of nodes and foreign peers behind NATs, which `test_nat_partners.py` runs in a lab.

    unshare -rn python tests/interop/nat_partners.py punch PROGRAM we

The program is a foreign peer's: its command and its folder, as JSON. What came of it is printed as
one line of JSON.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "node"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from interop_peer import ForeignPeer, Program
from nat_stories import World, world

from live_nodes import until
from nat_lab import Host
from rumormill.node.node import Node

OBSERVERS = (5, 8, 9, 12)
"""Networks of peers that must see a go-libp2p peer at an address before it believes that; js-libp2p
wants as many to dial it, each in another network by the first byte."""


def on(host: Host, program: Program) -> Program:
    """The program, to be run on a host."""
    inside = ("nsenter", f"--net=/proc/{os.getpid()}/fd/{host.namespace}")
    return msgspec.structs.replace(program, command=(*inside, *program.command))


async def observers(here: World, *, first_is_relay: bool = False) -> list[tuple[Node, str]]:
    """Public nodes of ours, each with its ticket."""
    nodes = [
        await here.node(here.internet.host("none", network), be_relay=first_is_relay and not number)
        for number, network in enumerate(OBSERVERS)
    ]
    return [(node, here.tickets(node)[0]) for node in nodes]


async def dialled(program: Program, who_dials: str = "they") -> dict[str, Any]:
    """A public node of ours finds out that it is, by a foreign peer alone."""
    async with world() as here:
        ours = await here.node(here.internet.host("none"))
        host = here.internet.host("none")
        listen = ["/ip4/0.0.0.0/tcp/4001"]
        async with ForeignPeer(on(host, program), reach=True, listen=listen) as foreign:
            if who_dials == "they":
                await foreign.ask("dial", ticket=here.tickets(ours)[0])
            else:
                with here.at(ours):
                    await ours.connect(f"/ip4/{host.address}/tcp/4001/p2p/{foreign.id}")
            await until(lambda: ours._reach.autonat.proven, "ours is proven")
            before = dict(ours._swarm.connections)
            await asyncio.sleep(3)  # longer than a connection stays that was replaced
            return {
                "ours": ours.reachability[0],
                "at": ours.reachability[1],
                "connected": bool(before) and before == ours._swarm.connections,
            }


async def dial_back(program: Program) -> dict[str, Any]:
    """A public foreign peer finds out that it is, by nodes of ours."""
    async with world() as here:
        public = await observers(here)
        host = here.internet.host("none")
        listen = ["/ip4/0.0.0.0/tcp/4001"]
        async with ForeignPeer(on(host, program), reach=True, listen=listen) as foreign:
            for _, ticket in public:
                await foreign.ask("dial", ticket=ticket)
            found: list[str] = []
            async with asyncio.timeout(60):
                while not found:
                    await asyncio.sleep(0.2)
                    found = await foreign.ask("reachable")
            return {"theirs": found, "at": host.address}


async def punch(program: Program, who_leads: str, kind: str, *ways: str) -> dict[str, Any]:
    """Two peers behind routers get from the relay to each other; ours is behind one of a kind, the
    foreign one behind a home router. The one that is reached through the relay leads (`we`,
    `they`). `listens`: the foreign one asks for a place by listening there; `announces`: it is
    configured to say where its router has it."""
    async with world() as here:
        public = await observers(here, first_is_relay=True)
        host = here.internet.host("port restricted")
        relay_ticket = public[0][1]
        relays = [relay_ticket] if who_leads == "we" else []
        ours = await here.node(here.internet.host(kind), relays=relays)
        for _, ticket in public:
            with here.at(ours):
                await ours.connect(ticket)
        listen = ["/ip4/0.0.0.0/tcp/4001"]
        if "listens" in ways and who_leads == "they":
            listen.append(f"{relay_ticket}/p2p-circuit")
        announced = [f"/ip4/5.{host.number}.0.1/tcp/4001"] if "announces" in ways else []
        program = on(host, program)
        options: dict[str, Any] = {"reach": True, "listen": listen, "announce": announced}
        async with ForeignPeer(program, **options) as foreign:
            for _, ticket in public:
                await foreign.ask("dial", ticket=ticket)
            if who_leads == "we":
                await foreign.ask("dial", ticket=await here.has_place(ours))
            else:
                if "listens" not in ways:
                    await foreign.ask("reserve", ticket=relay_ticket)
                await asyncio.sleep(6)  # until it believes what it was told of its address
                with here.at(ours):
                    await ours.connect(f"{relay_ticket}/p2p-circuit/p2p/{foreign.id}")
            theirs = lambda: [each.id for each in ours.peers if str(each.id) == foreign.id]  # noqa: E731
            await until(theirs, "it is connected")
            peer = theirs()[0]
            direct = lambda: ours._reach.punching._is_direct(peer)  # noqa: E731
            outcome = lambda: ours._reach.punching.last.get(peer)  # noqa: E731
            await until(lambda: direct() or outcome(), "there is an outcome")
            with contextlib.suppress(AssertionError):
                await until(outcome, "it is noted")
            shown: list[dict[str, Any]] = []
            with contextlib.suppress(TimeoutError):  # until it is done with its side as well
                async with asyncio.timeout(10):
                    while not shown or all("/p2p-circuit" in each["address"] for each in shown):
                        await asyncio.sleep(0.05)
                        shown = await foreign.ask("connections", peer=str(ours.id))
            return {"outcome": outcome(), "direct": direct(), "theirs": shown}


STORIES: dict[str, Any] = {"dialled": dialled, "dial_back": dial_back, "punch": punch}


def main() -> None:
    """Run a story, and print what came of it."""
    name, program, *arguments = sys.argv[1:]
    command, folder = json.loads(program)
    chosen = Program(tuple(command), Path(folder), dict(os.environ))
    sys.stdout.write(json.dumps(asyncio.run(STORIES[name](chosen, *arguments))))


if __name__ == "__main__":
    main()
