"""Daemons in processes of their own, from one ticket: whoever is killed, the rest is one network.

Killed means SIGKILL. Those who were killed come back in their homes and are given no ticket again,
so that one network lives through every case. The skip ring's nodes are told their supervisor, each
time, because nothing else is its way in.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from live_nodes import run
from rumormill.core.api import TopicOptions
from rumormill.demo.network import Daemon
from rumormill.protocols.registry import PROTOCOL_NAMES

WITHIN = 30.0
"""Seconds in which everybody who is left has everything."""

ANY_ONE = [(number,) for number in range(10)]
ANY_THREE = [(0, 1, 2), (0, 4, 7), (3, 6, 9), (1, 5, 8), (2, 4, 9)]


class Daemons:
    """A network of daemons with one topic."""

    def __init__(self, protocol: str, count: int, folder: Path) -> None:
        preset = {"pulsarcast": "open", "radius": "few"}.get(protocol, "default")
        spoken = ["--protocol", protocol, "--preset", preset]
        self._supervised = protocol == "skipring"
        self._few = 2 if self._supervised else 4
        """Peers that everybody has before anybody is killed: the neighbours in a ring, or one more
        than are killed at once."""
        self.supervisor = Daemon("supervisor", folder, (), verb="supervisor")
        self.all = [Daemon(f"n{each}", folder, spoken) for each in range(count)]
        self.topic = ""
        self._way_in: list[str] = []
        self.sent: set[bytes] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start everybody with the first one's ticket, a few at a time."""
        first, *others = self.all
        try:
            if self._supervised:
                await self.supervisor.start()
                self._way_in = ["--supervisor", self.supervisor.ticket]
            await first.start(self._way_in)
            self.topic = await first.client.create_topic("news", TopicOptions())
            ticket = [] if self._supervised else ["--join", first.ticket]
            for at in range(0, len(others), 5):
                await self.start(others[at : at + 5], ticket)
            yield
        finally:
            await asyncio.gather(*[each.kill() for each in (*self.all, self.supervisor)])

    async def start(self, daemons: Sequence[Daemon], ticket: Sequence[str] = ()) -> None:
        """Start daemons, or start them again; return when none hangs by one peer alone."""
        words = [*self._way_in, *ticket, "--topic", self.topic]
        await asyncio.gather(*[each.start(words) for each in daemons])
        await asyncio.gather(*[self._linked(each) for each in daemons])

    async def _linked(self, daemon: Daemon) -> None:
        await daemon.client.wait(self.topic, 1, 60.0)
        async with asyncio.timeout(60.0):
            while len(await daemon.client.peers()) < self._few:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def publish(self, publishers: Sequence[Daemon]) -> None:
        """Everyone publishes one event."""
        for each in publishers:
            self.sent.update(one.id for one in await each.client.publish(self.topic, [b"hello"]))

    async def all_is_at(self, daemons: Sequence[Daemon]) -> None:
        """Wait until everyone has everything that was ever published."""
        async with asyncio.timeout(WITHIN):
            await asyncio.gather(*[self._all_is_at(each) for each in daemons])

    async def _all_is_at(self, daemon: Daemon) -> None:
        found: set[bytes] = set()
        offset = 0
        while not self.sent <= found:
            kept = await daemon.client.history(self.topic, offset=offset, limit=200)
            found.update(event.id for event in kept.events)
            offset += len(kept.events)
            await asyncio.sleep(0 if kept.events else 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_whoever_of_ten_daemons_is_killed_the_rest_gets_everything(
    protocol: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    network = Daemons(protocol, 10, tmp_path_factory.mktemp("d"))

    async def story() -> None:
        async with network.running():
            for victims in (*ANY_ONE, *ANY_THREE):
                killed = [network.all[number] for number in victims]
                left = [each for each in network.all if each not in killed]
                await asyncio.gather(*[each.kill() for each in killed])
                await network.publish(left)
                await network.all_is_at(left)
                await network.start(killed)

    run(story, patience=600.0)


@pytest.mark.slow
def test_fifty_daemons_lose_the_first_three_and_the_rest_gets_everything(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    network = Daemons("gossipsub", 50, tmp_path_factory.mktemp("d"))

    async def story() -> None:
        async with network.running():
            killed, left = network.all[:3], network.all[3:]
            await asyncio.gather(*[each.kill() for each in killed])
            await network.publish(left)
            await network.all_is_at(left)

    run(story, patience=600.0)


@pytest.mark.slow
def test_a_ring_goes_on_without_its_supervisor(tmp_path_factory: pytest.TempPathFactory) -> None:
    network = Daemons("skipring", 10, tmp_path_factory.mktemp("d"))

    async def story() -> None:
        async with network.running():
            await network.supervisor.kill()
            await network.publish(network.all)
            await network.all_is_at(network.all)

    run(story)
