"""The supervised skip ring between live nodes: histories, restarts, several supervisors, liars."""

import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hostile_peer import HostilePeer

from live_nodes import run, take, until
from rumormill.core.effects import Effects, Mail
from rumormill.core.errors import ConfigError, LocalError
from rumormill.core.inputs import Input, TimerFired
from rumormill.log.model import Retention
from rumormill.node.identity import NodeIdentity
from rumormill.node.node import Node
from rumormill.overlay.patricia import EVERYTHING, HASH_BYTES, Summary
from rumormill.protocols.skipring import messages
from rumormill.protocols.skipring.envelope import Author, named
from rumormill.protocols.skipring.junk import junk_letter
from rumormill.protocols.skipring.labels import label_of
from rumormill.protocols.skipring.messages import (
    CheckTrie,
    Letter,
    PublishNew,
    Reference,
    decode_letter,
    encode_letter,
)
from rumormill.protocols.skipring.peer import TIMEOUT, LookAt, SkipRing
from rumormill.protocols.skipring.spec import SKIPRING
from rumormill.protocols.skipring.supervisor import Supervisors
from rumormill.wire.frames import frame
from rumormill.wire.protobuf import bytes_field, string_field

QUICK = {"interval": 0.1}
TOPIC = "news"


def machine_of(node: Node) -> SkipRing:
    machine: Any = node._driver.protocol
    return machine


def supervisor(port: int = 0, **options: Any) -> Node:
    at = f"/ip4/127.0.0.1/tcp/{port}"
    home = options.pop("home", None)
    return Node(home, listen=at, protocol="skipring", supervises=True, parameters=QUICK, **options)


def subscriber(supervisors: list[str], home: Path | None = None) -> Node:
    return Node(home, protocol="skipring", supervisors=supervisors, parameters=QUICK)


@contextlib.asynccontextmanager
async def ring(count: int, *above: Node) -> AsyncIterator[list[Node]]:
    """Subscribers of one topic, whose supervisors run already."""
    tickets = [node.tickets[0] for node in above]
    async with contextlib.AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(subscriber(tickets)) for _ in range(count)]
        for node in nodes:
            await node.create_topic(TOPIC)
        for node in nodes:
            await node.wait_until_ready(TOPIC)
        yield nodes


async def histories_equal(nodes: list[Node], count: int) -> None:
    """Wait until root hashes say that all have the same, and how many that is."""

    def settled() -> bool:
        found = [machine_of(node).members[TOPIC].publications for node in nodes]
        roots = {each.root_hash for each in found}
        return len(roots) == 1 and len(found[0].trie) == count

    await until(settled, f"all have the same {count} publications")


def test_a_late_subscriber_receives_the_whole_history() -> None:
    """Each publication is delivered once, to those who were there and to those who came later."""

    async def story() -> None:
        async with supervisor() as above, ring(4, above) as nodes:
            events = [await node.subscribe(TOPIC) for node in nodes]
            for number, node in enumerate(nodes * 5):
                await node.publish(TOPIC, b"%d" % number)
            expected = sorted(b"%d" % number for number in range(20))
            for each in events:
                assert sorted(await take(each, 20)) == expected
            async with subscriber(above.tickets) as late:
                heard = await late.subscribe(TOPIC)
                assert sorted(await take(heard, 20)) == expected
                await histories_equal([*nodes, late], 20)
                view = await late.command(LookAt(TOPIC))
                assert view.publications == 20
                assert view.root_hash == machine_of(nodes[0]).members[TOPIC].publications.root_hash

    run(story)


def test_a_ring_that_passes_a_token_between_live_nodes() -> None:
    """`supervision = "token"`: the supervisor counts, somebody leaves, and a late one hears all."""
    counting = {**QUICK, "supervision": "token"}
    at = "/ip4/127.0.0.1/tcp/0"

    async def story() -> None:
        async with (
            Node(
                None, listen=at, protocol="skipring", supervises=True, parameters=counting
            ) as above,
            contextlib.AsyncExitStack() as stack,
        ):
            wish: Any = {"protocol": "skipring", "supervisors": above.tickets[:1]}
            nodes = [Node(None, parameters=counting, **wish) for _ in range(5)]
            for node in nodes:
                await stack.enter_async_context(node)
                await node.create_topic(TOPIC)
            for node in nodes:
                await node.wait_until_ready(TOPIC)
            events = [await node.subscribe(TOPIC) for node in nodes]
            for number, node in enumerate(nodes):
                await node.publish(TOPIC, b"%d" % number)
            for each in events:
                assert sorted(await take(each, 5)) == [b"%d" % number for number in range(5)]
            counter: Any = machine_of(above).supervised[TOPIC]
            await until(lambda: counter.count == 5, "five are counted")
            await nodes.pop(2).close()
            late = await stack.enter_async_context(Node(None, parameters=counting, **wish))
            heard = await late.subscribe(TOPIC)
            assert len(await take(heard, 5)) == 5

            def labelled() -> bool:
                rings = [machine_of(node).members[TOPIC].subscriber for node in [*nodes, late]]
                labels = sorted([ring.label for ring in rings if ring.label is not None])
                return labels == sorted(map(label_of, range(5))) and counter.count == 5

            await until(labelled, "all labels are those of five")

    run(story)


def test_a_hierarchy_of_topics_between_live_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hierarchy = "/"`: topics of one branch take turns at their supervisor, and everybody who
    subscribes to any of them gets everything, also who comes late."""
    levels = {**QUICK, "hierarchy": "/", "patience": 1000}
    topics = ("news/a", "news/b", "news/c", "chat")
    turns: list[list[str]] = []
    handle = SkipRing.handle

    def noted(machine: SkipRing, event: Input, now: float, effects: Effects) -> None:
        handle(machine, event, now, effects)
        if machine.supervised and isinstance(event, TimerFired) and event.timer == TIMEOUT:
            letters = [each.message for each in effects if isinstance(each, Mail)]
            turns.append([each.topic for each in letters if isinstance(each, messages.SetData)])

    monkeypatch.setattr(SkipRing, "handle", noted)

    async def story() -> None:
        at = "/ip4/127.0.0.1/tcp/0"
        wish: Any = {"protocol": "skipring", "parameters": levels}
        async with (
            Node(None, listen=at, supervises=True, **wish) as above,
            contextlib.AsyncExitStack() as stack,
        ):
            nodes = [Node(None, supervisors=above.tickets[:1], **wish) for _ in range(4)]
            heard = {}
            for node in nodes[:3]:
                await stack.enter_async_context(node)
                for topic in topics:
                    heard[node, topic] = await node.subscribe(topic)
            for topic in topics:
                for node in nodes[:3]:
                    await node.wait_until_ready(topic)
                await nodes[0].publish(topic, topic.encode())
            late = await stack.enter_async_context(nodes[3])
            for topic in topics:
                heard[late, topic] = await late.subscribe(topic)
            for (_, topic), events in heard.items():
                assert await take(events, 1) == [topic.encode()]
            del turns[:]
            await until(lambda: len(turns) >= 12, "twelve intervals")

    run(story)
    for turn in turns:
        assert len({topic for topic in turn if topic.startswith("news/")}) == 1
        assert "chat" in turn
    served = [topic for turn in turns for topic in turn]
    assert set(served) == set(topics)


def test_what_retention_deleted_is_not_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node deletes and starts anew; its neighbours offer it the rest, and its log keeps none."""
    monkeypatch.setattr("rumormill.core.history.AHEAD_SECONDS", 0.0)  # all clocks here are one

    async def story() -> None:
        async with supervisor() as above, ring(2, above) as nodes:
            async with subscriber(above.tickets, tmp_path) as frugal:
                events = await frugal.subscribe(TOPIC)
                for number in range(10):
                    await nodes[0].publish(TOPIC, b"%d" % number)
                await take(events, 10)
                frugal.log.retain({TOPIC: Retention(max_events=3)}, time.time())
            async with subscriber(above.tickets, tmp_path) as frugal:
                events = await frugal.subscribe(TOPIC)
                await until(lambda: frugal.log.counters.gone >= 7, "all that is gone was brought")
                await nodes[0].publish(TOPIC, b"new")
                assert await take(events, 1) == [b"new"]
                assert len(await frugal.history(TOPIC)) == 4

    run(story)


def test_a_publisher_needs_no_subscription_and_leaves_when_it_closes() -> None:
    """It joins the ring to publish; what it published stays, and its place is given back."""

    async def story() -> None:
        async with supervisor() as above, ring(2, above) as nodes:
            events = await nodes[0].subscribe(TOPIC)
            async with subscriber(above.tickets) as publisher:
                await publisher.wait_until_ready(TOPIC)
                receipt = await publisher.publish(TOPIC, b"hello")
                assert receipt.peers > 0
            assert await take(events, 1) == [b"hello"]
            await histories_equal(nodes, 1)
            database = machine_of(above).supervised[TOPIC].database
            await until(lambda: len(database) == 2, "the supervisor has forgotten the publisher")

    run(story)


def test_a_supervisor_may_subscribe_too() -> None:
    """It is a subscriber like any other, of a ring that it supervises itself."""

    async def story() -> None:
        async with supervisor() as above:
            events = await above.subscribe(TOPIC)
            async with ring(2, above) as nodes:
                for number, node in enumerate([above, *nodes]):
                    await node.publish(TOPIC, b"%d" % number)
                await histories_equal([above, *nodes], 3)
                assert sorted(await take(events, 3)) == [b"0", b"1", b"2"]
                await until(lambda: above.subscribers(TOPIC) == 2, "it knows both others")
                assert above.metrics()["topic_subscription_status"] == {TOPIC: 1.0}
                assert above.metrics()["topic_peers_count"] == {TOPIC: 2.0}

    run(story)


def test_a_restarted_node_has_its_history_and_hears_only_what_it_missed(tmp_path: Path) -> None:
    """The trie is rebuilt from the log; nothing in it is delivered a second time."""

    async def story() -> None:
        async with supervisor() as above, ring(2, above) as nodes:
            async with subscriber(above.tickets, tmp_path) as first_life:
                heard = await first_life.subscribe(TOPIC)
                before = (await nodes[0].publish(TOPIC, b"before")).id
                assert await take(heard, 1) == [b"before"]
            await nodes[1].publish(TOPIC, b"meanwhile")
            async with subscriber(above.tickets, tmp_path) as second_life:
                heard = await second_life.subscribe(TOPIC)
                restored = machine_of(second_life).members[TOPIC].publications
                await until(lambda: restored.whole, "its history is read")
                assert before in restored.trie
                assert await take(heard, 1) == [b"meanwhile"]
                await histories_equal([*nodes, second_life], 2)
                assert len(await second_life.history(TOPIC)) == 2

    run(story)


def test_a_supervisor_that_lost_its_database_is_rebuilt(tmp_path: Path) -> None:
    """The ring delivers without it; it returns at its address, and its database fills again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with supervisor(port, home=tmp_path) as above:
                nodes = await stack.enter_async_context(ring(4, above))
            await nodes[0].publish(TOPIC, b"alone")
            await histories_equal(nodes, 1)
            async with supervisor(port, home=tmp_path) as again:
                assert again.id == above.id
                await until(
                    lambda: (
                        TOPIC in machine_of(again).supervised
                        and len(machine_of(again).supervised[TOPIC].database) == 4
                    ),
                    "the new supervisor knows all four",
                )
                await nodes[1].publish(TOPIC, b"together")
                await histories_equal(nodes, 2)

    run(story)


def test_supervisors_share_the_topics_and_a_new_one_takes_only_its_share() -> None:
    """Everybody who knows the same supervisors agrees whose a topic is."""

    async def story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            *above, third = [await stack.enter_async_context(supervisor()) for _ in range(3)]
            tickets = [each.tickets[0] for each in above]
            for each in above:
                await each.set_supervisors(tickets)
            nodes = [await stack.enter_async_context(subscriber(tickets)) for _ in range(2)]
            topics = _fairly_shared([node.id for node in above], third.id)
            for node in nodes:
                for topic in topics:
                    await node.create_topic(topic)
            await _shared(above, topics)
            before = _owners(above)
            tickets.append(third.tickets[0])
            for node in (*above, third, *nodes):
                await node.set_supervisors(tickets)
            await _shared([*above, third], topics)
            after = _owners([*above, third])
            moved = [topic for topic in topics if before[topic] != after[topic]]
            assert {after[topic] for topic in moved} == {third.id}
            assert 0 < len(moved) < len(topics)
            for topic in topics:
                events = await nodes[1].subscribe(topic)
                await nodes[0].publish(topic, topic.encode())
                assert await take(events, 1) == [topic.encode()]

    run(story)


def _fairly_shared(first: list[bytes], newcomer: bytes) -> list[str]:
    """Topics of which each supervisor has two, and the newcomer will take one of each."""
    before, after = Supervisors(first), Supervisors([*first, newcomer])
    found: dict[tuple[bytes | None, bool], str] = {}
    for topic in (f"topic-{number}" for number in range(1000)):
        found.setdefault((before.of(topic), before.of(topic) != after.of(topic)), topic)
    return list(found.values())


def _owners_of(node: Node) -> list[str]:
    return list(machine_of(node).supervised)


def _owners(above: list[Node]) -> dict[str, bytes]:
    return {topic: node.id for node in above for topic in _owners_of(node)}


async def _shared(above: list[Node], topics: list[str]) -> None:
    """Wait until each topic has its two subscribers at one supervisor."""

    def settled() -> bool:
        counts = {
            topic: len(each.database)
            for node in above
            for topic, each in machine_of(node).supervised.items()
        }
        total = sum(len(_owners_of(node)) for node in above)
        return total == len(topics) and counts == dict.fromkeys(counts, 2)

    await until(settled, "each topic is supervised once")


def test_what_cannot_be_is_refused_with_a_sentence() -> None:
    """No supervisor, a wrong ticket, a protocol that has no supervisors."""

    async def story() -> None:
        with pytest.raises(ConfigError, match="gossipsub has none"):
            await Node(None, supervises=True).start()
        with pytest.raises(LocalError, match="not a ticket"):
            await subscriber(["nonsense"]).start()
        with pytest.raises(LocalError, match="does not name"):
            await subscriber(["/ip4/127.0.0.1/tcp/4001"]).start()
        async with subscriber([]) as alone:
            with pytest.raises(LocalError, match="no supervisor is known"):
                await alone.create_topic(TOPIC)
            with pytest.raises(LocalError, match="not in the ring"):
                await alone.command(LookAt(TOPIC))
            with pytest.raises(LocalError, match="no command"):
                await alone.command("something else")

    run(story)


class Liar(HostilePeer):
    """A peer that speaks the skip ring's protocol and keeps none of its promises."""

    def __init__(self) -> None:
        super().__init__()
        self.protocols = (SKIPRING,)
        self.stream = 0

    async def meet(self, node: Node) -> None:
        await self.connect(node)
        self.stream = self.open(SKIPRING)

    def write(self, letter: Letter) -> None:
        self.say(self.stream, frame(encode_letter(letter)))

    def letters(self) -> list[Letter]:
        """What the node wrote to it."""
        found: list[Letter] = []
        for heard in self.heard.values():
            data = bytes(heard)
            while data:
                length, start = data[0], 1
                if length & 0x80:
                    length, start = (length & 0x7F) | data[1] << 7, 2
                if len(data) < start + length or length & ~0x3FFF:
                    break
                with contextlib.suppress(Exception):
                    found.append(decode_letter(data[start : start + length]))
                data = data[start + length :]
        return found


def lies(chance: random.Random, node: Node, liar: Liar) -> list[Letter]:
    """Letters that are well formed and false."""
    author = Author(NodeIdentity(liar.key))
    true = author.compose(TOPIC, b"true", 1.0)
    false = named(msgspec.structs.replace(true, data=b"false"))
    stranger = Reference(label_of(3), chance.randbytes(36))
    us, me = node.id, bytes(liar.key.peer_id)
    return [
        PublishNew(TOPIC, false),
        messages.SetData(TOPIC, None, label_of(1), None),
        messages.SetData(TOPIC, stranger, label_of(0), stranger),
        messages.Check(TOPIC, stranger, label_of(0), messages.Flag.LIN),
        messages.GetConfiguration(TOPIC, us),
        messages.Subscribe(TOPIC),
        messages.RemoveConnections(TOPIC),
        *[junk_letter(chance, [us, me], [TOPIC]) for _ in range(100)],
    ]


def test_liars_are_refused_and_counted_and_others_go_on() -> None:
    """False configurations, foreign ids, forged publications and junk, to every node of a ring."""

    async def story() -> None:
        async with supervisor() as above, ring(3, above) as nodes, Liar() as liar:
            chance = random.Random(3)
            await nodes[0].publish(TOPIC, b"before")
            await histories_equal(nodes, 1)
            victim = nodes[1]
            await liar.meet(victim)
            for letter in lies(chance, victim, liar):
                liar.write(letter)
                await liar.drain()
            await until(lambda: sum(_refusals(victim).values()) >= 10, "the node counts them")
            for number, node in enumerate(nodes):
                await node.publish(TOPIC, b"after %d" % number)
            await histories_equal(nodes, 4)
            counted = _refusals(victim)
            assert counted.get("not-supervisor", 0) >= 2
            assert counted.get("foreign-sender", 0) >= 1
            assert counted.get("invalid signature", 0) >= 1

    run(story)


def test_an_endless_chain_is_answered_so_often_and_then_refused() -> None:
    """One peer that finds every hash different is cut off; its neighbours notice nothing."""

    async def story() -> None:
        limits = {**QUICK, "interval": 1e6, "publications.nodes_per_interval": 50}
        async with supervisor() as above, Liar() as liar:
            node = Node(None, protocol="skipring", supervisors=above.tickets, parameters=limits)
            async with node:
                await node.create_topic(TOPIC)
                for number in range(8):
                    await node.publish(TOPIC, b"%d" % number)
                await liar.meet(node)
                root = (Summary(EVERYTHING, b"\x01" * HASH_BYTES),)
                for _ in range(200):
                    liar.write(CheckTrie(TOPIC, root))
                await until(
                    lambda: _refusals(node).get("too-many-checks", 0) == 150,
                    "all but the first fifty are refused",
                )
                await until(
                    lambda: sum(isinstance(each, CheckTrie) for each in liar.letters()) == 50,
                    "those were answered",
                )

    run(story)


@pytest.mark.parametrize(
    "data",
    [
        frame(b"\xff" * 40),
        frame(string_field(1, TOPIC)),
        frame(string_field(1, TOPIC) + bytes_field(12, bytes_field(1, b"\x01"))),
        b"\xff\xff\xff\xff\x7f",
    ],
    ids=["noise", "no body", "no hash", "a frame of gigabytes"],
)
def test_what_is_no_letter_costs_its_sender_the_stream(data: bytes) -> None:
    """The reason is counted, and the node goes on."""

    async def story() -> None:
        async with supervisor() as above, ring(2, above) as nodes, Liar() as liar:
            await liar.meet(nodes[0])
            liar.say(liar.stream, data)
            await until(lambda: sum(nodes[0].refusals.values()) > 0, "it is counted")
            await nodes[0].publish(TOPIC, b"on we go")
            await histories_equal(nodes, 1)

    run(story)


def _refusals(node: Node) -> dict[str, float]:
    """What the node's machine refused, by reason."""
    metrics = node.metrics()
    return {**metrics["rumormill_refused"], **metrics["rumormill_rejected"]}
