"""Letters on real sockets: sent without a connection, kept in order, given back when in vain."""

import asyncio
import contextlib
import secrets
from typing import Any

import pytest
from parlour import PARLOUR, Saying, act, guest, tell_where

from live_nodes import run, until
from rumormill.core.effects import Connect, Disconnect, Learn, Mail, Send
from rumormill.core.inputs import ConnectFailed, PeerConnected, PeerDisconnected, SendDropped
from rumormill.core.inputs import Received as Got
from rumormill.libp2p.address_book import MAX_HINTED_PEERS, MAX_HINTS, AddressBook
from rumormill.node.channel import NOT_SPOKEN
from rumormill.node.config import NodeConfig
from rumormill.node.node import Node
from rumormill.node.pending_sends import NOT_REACHED, OURSELVES, TOO_MANY_PENDING
from rumormill.wire.keys import PrivateKey
from rumormill.wire.multiaddr import Endpoint, Multiaddr

QUICK = NodeConfig(keep_alive_interval=0.1, idle_timeout=1.0, stream_retry_first=0.05)


def parlour(**options: Any) -> Node:
    """A node in memory that speaks the test protocol."""
    return Node(None, protocol=PARLOUR, **options)


def somebody() -> bytes:
    """The id of a peer that does not exist."""
    return bytes(PrivateKey(secrets.token_bytes(32)).peer_id)


def sayings(node: Node) -> list[bytes]:
    """What a node was told, in order."""
    said = []
    for item in guest(node).heard(Got):
        assert isinstance(item.message, Saying)
        said.append(item.message.data)
    return said


def letters(peer: bytes, count: int) -> list[Mail]:
    """Numbered letters to one peer."""
    return [Mail(peer, Saying(b"%d" % number)) for number in range(count)]


def waiting(node: Node) -> int:
    """Letters that wait."""
    driver: Any = node._driver
    return len(driver.pending_sends)


async def closed_port() -> int:
    """A port on which nobody listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


def test_letters_dial_their_peer_and_arrive_in_order() -> None:
    """Before the connection, during it and after it: one connection, one order."""

    async def story() -> None:
        async with parlour() as ann, parlour() as bob:
            tell_where(ann, bob)
            act(ann, *letters(bob.id, 100))
            assert waiting(ann) == 100
            await until(lambda: len(sayings(bob)) >= 10, "some letters arrived")
            act(ann, Mail(bob.id, Saying(b"last")))
            await until(lambda: len(sayings(bob)) == 101, "all letters arrived")
            assert sayings(bob) == [*(b"%d" % number for number in range(100)), b"last"]
            assert waiting(ann) == 0
            assert len(guest(ann).heard(PeerConnected)) == 1
            assert guest(ann).heard(SendDropped) == []

    run(story)


def test_letters_to_a_dead_peer_come_back() -> None:
    """No address, an address where nobody listens, and ourselves: each letter is given back."""

    async def story() -> None:
        async with parlour() as ann:
            nobody, dead = somebody(), somebody()
            where = Multiaddr.tcp("127.0.0.1", await closed_port()).encode()
            act(ann, Learn(dead, (where,)))
            act(ann, *letters(nobody, 3), *letters(dead, 3), *letters(ann.id, 1))
            await until(lambda: len(guest(ann).heard(SendDropped)) == 7, "all came back")
            dropped = guest(ann).heard(SendDropped)
            of_dead = [drop for drop in dropped if drop.peer == dead]
            assert [drop.message for drop in of_dead] == [Saying(b"%d" % n) for n in range(3)]
            assert all("cannot reach" in drop.reason for drop in of_dead)
            of_nobody = [drop for drop in dropped if drop.peer == nobody]
            assert all("no address is known" in drop.reason for drop in of_nobody)
            assert [drop.reason for drop in dropped if drop.peer == ann.id] == [OURSELVES]
            assert ann.refusals["dial-failed"] == 2
            assert waiting(ann) == 0

    run(story)


@pytest.mark.parametrize(
    ("limit", "fits"),
    [
        ({"pending_per_peer": 5}, 5),
        ({"pending_bytes_per_peer": 1000}, 9),
        ({"pending_total": 7}, 7),
        ({"pending_bytes_total": 1000}, 9),
    ],
)
def test_letters_that_do_not_fit_come_back_at_once(limit: dict[str, int], fits: int) -> None:
    """By count and by bytes, of one peer and in all; those that fit are sent."""

    async def story() -> None:
        async with parlour(config=NodeConfig(**limit)) as ann, parlour() as bob:
            tell_where(ann, bob)
            act(ann, *(Mail(bob.id, Saying(b"%03d" % n + bytes(97))) for n in range(20)))
            assert waiting(ann) == fits
            await until(lambda: len(sayings(bob)) == fits, "those that fit arrived")
            dropped = guest(ann).heard(SendDropped)
            assert {drop.reason for drop in dropped} == {TOO_MANY_PENDING}
            assert len(dropped) == 20 - fits
            assert ann.refusals["too-many-pending-sends"] == 20 - fits

    run(story)


def test_letters_to_a_peer_that_never_shakes_hands_come_back_in_time() -> None:
    """A silent listener holds nothing for longer than `pending_timeout`."""

    async def story() -> None:
        held: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(lambda _, out: held.append(out), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with parlour(config=NodeConfig(pending_timeout=0.2)) as ann:
            silent = somebody()
            act(ann, Learn(silent, (Multiaddr.tcp("127.0.0.1", port).encode(),)))
            act(ann, *letters(silent, 2))
            await until(lambda: len(guest(ann).heard(SendDropped)) == 2, "both came back")
            assert {drop.reason for drop in guest(ann).heard(SendDropped)} == {NOT_REACHED}
        for out in held:
            out.close()
        server.close()
        await server.wait_closed()

    run(story)


def test_a_peer_of_another_protocol_refuses_letters_and_connections() -> None:
    """Reached, but not spoken to: both are told, also when it is known already."""

    async def story() -> None:
        async with parlour() as ann, Node(None) as gossip:
            tell_where(ann, gossip)
            for _ in range(2):
                guest(ann).inputs.clear()
                act(ann, Mail(gossip.id, Saying(b"hello")), Connect(gossip.id))
                await until(lambda: len(guest(ann).inputs) == 2, "both were told")
                assert {item.reason for item in guest(ann).heard(SendDropped)} == {NOT_SPOKEN}
                assert guest(ann).heard(ConnectFailed) == [ConnectFailed(gossip.id, NOT_SPOKEN)]

    run(story)


def test_a_connection_for_letters_is_closed_when_idle() -> None:
    """Nothing passes: it goes. The next letter opens another."""

    async def story() -> None:
        async with parlour(config=QUICK) as ann, parlour() as bob:
            tell_where(ann, bob)
            act(ann, Mail(bob.id, Saying(b"one")))
            await until(lambda: guest(bob).heard(PeerDisconnected), "it was closed")
            assert sayings(bob) == [b"one"]
            act(ann, Mail(bob.id, Saying(b"two")))
            await until(lambda: sayings(bob) == [b"one", b"two"], "the next letter came")

    run(story)


@pytest.mark.parametrize("wish", ["machine", "user"])
def test_a_connection_that_is_wanted_stays(wish: str) -> None:
    """`Connect` and `Node.connect` make a connection for letters one that lasts."""

    async def story() -> None:
        async with parlour(config=QUICK) as ann, parlour() as bob:
            tell_where(ann, bob)
            act(ann, Mail(bob.id, Saying(b"one")))
            await until(lambda: sayings(bob), "the letter came")
            if wish == "machine":
                act(ann, Connect(bob.id))
            else:
                await ann.connect(bob.tickets[0], keep=False)
            swarm: Any = ann._swarm
            connection = swarm.connections[bob.id]
            began = connection.last_used
            await until(lambda: connection.last_used > began + 1.2, "it outlived the timeout")
            assert swarm.connections[bob.id] is connection

    run(story)


def test_traffic_keeps_a_connection_for_letters_open() -> None:
    """What a machine sends or gets counts, whoever opened the connection."""

    async def story() -> None:
        async with parlour(config=QUICK) as ann, parlour() as bob:
            tell_where(ann, bob)
            act(ann, Mail(bob.id, Saying(b"one")))
            await until(lambda: sayings(bob), "the letter came")
            loop = asyncio.get_running_loop()
            end = loop.time() + 1.5
            while loop.time() < end:
                act(bob, Send(ann.id, Saying(b"still here")))
                await asyncio.sleep(0.02)
            assert guest(ann).heard(PeerDisconnected) == []

    run(story)


def test_a_machine_can_end_a_connection_for_letters() -> None:
    """`Disconnect` closes it at once; a letter to a peer that closed it opens another."""

    async def story() -> None:
        async with parlour() as ann, parlour() as bob:
            tell_where(ann, bob)
            act(ann, Mail(bob.id, Saying(b"one")))
            await until(lambda: sayings(bob), "the letter came")
            act(bob, Disconnect(ann.id, "enough"))
            await until(lambda: guest(ann).heard(PeerDisconnected), "ann was told")
            act(ann, Mail(bob.id, Saying(b"two")))
            await until(lambda: len(sayings(bob)) == 2, "the second came")

    run(story)


def test_connect_tells_of_success_and_failure() -> None:
    """One of both follows, once; a bad record fails too."""

    async def story() -> None:
        async with parlour() as ann, parlour() as bob:
            tell_where(ann, bob)
            nobody = somebody()
            act(ann, Connect(bob.id), Connect(nobody), Connect(nobody, b"no record"))
            await until(lambda: guest(ann).heard(PeerConnected), "bob is connected")
            await until(lambda: guest(ann).heard(ConnectFailed), "nobody is not")
            act(ann, Connect(bob.id))
            act(ann, Mail(bob.id, Saying(b"and talks")))
            await until(lambda: sayings(bob), "bob hears")
            assert len(guest(ann).heard(PeerConnected)) == 1
            assert [failed.peer for failed in guest(ann).heard(ConnectFailed)] == [nobody]

    run(story)


def test_many_letters_to_many_dead_peers_need_no_task_each() -> None:
    """Dials are bounded in number and the others wait; every letter comes back."""

    async def story() -> None:
        config = NodeConfig(max_pending_dials=4, max_waiting_dials=50)
        async with parlour(config=config) as ann:
            port = await closed_port()
            where = Multiaddr.tcp("127.0.0.1", port).encode()
            peers = [somebody() for _ in range(60)]
            before = len(asyncio.all_tasks())
            for peer in peers:
                act(ann, Learn(peer, (where,)), *letters(peer, 5))
            assert len(asyncio.all_tasks()) <= before + 2 * 4
            await until(lambda: len(guest(ann).heard(SendDropped)) == 300, "all came back")
            assert ann.refusals["too-many-dials"] == 6

    run(story)


def test_idle_connections_for_letters_make_room_for_new_ones() -> None:
    """More peers are written to than there are places; all letters arrive."""

    async def story() -> None:
        config = NodeConfig(max_connections=4, keep_alive_interval=0.02, close_timeout=0.5)
        async with parlour(config=config) as ann, contextlib.AsyncExitStack() as stack:
            for _ in range(10):
                bob = await stack.enter_async_context(parlour())
                tell_where(ann, bob)
                act(ann, Mail(bob.id, Saying(b"hello")))
                await until(lambda: sayings(bob), "the letter came")  # noqa: B023
                swarm: Any = ann._swarm
                connection = swarm.connections[bob.id]
                await until(lambda: not connection.active, "the connection is idle")  # noqa: B023
            assert guest(ann).heard(SendDropped) == []

    run(story)


# Addresses.


def test_a_node_names_where_it_and_others_are() -> None:
    """Its own listen addresses, and for others what they said of themselves."""

    async def story() -> None:
        async with parlour() as ann, parlour() as bob:
            await ann.connect(bob.tickets[0])
            await until(lambda: guest(ann).hooks.addresses(bob.id), "bob said where he is")
            own = [str(Multiaddr.decode(each)) for each in guest(bob).hooks.addresses(bob.id)]
            assert own == [ticket.rpartition("/p2p/")[0] for ticket in bob.tickets]
            assert list(guest(ann).hooks.addresses(bob.id)) == list(
                guest(bob).hooks.addresses(bob.id)
            )
            assert list(guest(ann).hooks.addresses(somebody())) == []

    run(story)


def test_a_node_that_listens_everywhere_names_an_address_that_others_can_dial() -> None:
    """In its own words, and in those of a peer that learnt them by identify."""

    async def story() -> None:
        async with parlour(listen="/ip4/0.0.0.0/tcp/0") as ann, parlour() as bob:
            told = guest(ann).hooks.addresses(ann.id)
            assert "0.0.0.0" not in str(Multiaddr.decode(told[0]))
            await bob.connect(ann.tickets[0])
            await until(lambda: guest(ann).heard(PeerConnected), "they met")
            await until(lambda: guest(bob).hooks.addresses(ann.id) == told, "bob knows")

    run(story)


def test_a_hint_is_tried_last_and_pushes_out_nothing() -> None:
    """What the user and the peer itself said stands before what others say."""
    book = AddressBook()
    book.give(b"peer", Endpoint("given", 1))
    book.learn(b"peer", [Endpoint("learnt", 2)])
    book.hint(b"peer", [Endpoint(f"hint{n}", 3) for n in range(10)])
    assert book.endpoints(b"peer")[:2] == [Endpoint("given", 1), Endpoint("learnt", 2)]
    assert len(book.endpoints(b"peer")) == 2 + MAX_HINTS
    for number in range(2 * MAX_HINTED_PEERS):
        book.hint(number.to_bytes(4), [Endpoint("liar", 4)])
    assert book.endpoints(b"peer") == [Endpoint("given", 1), Endpoint("learnt", 2)]
    assert book.forgotten == MAX_HINTED_PEERS + 1
    book.hint(b"peer", [Endpoint("again", 5)])
    book.hint(b"peer", [])
    assert book.endpoints(b"peer")[-1] == Endpoint("again", 5)


def test_bad_addresses_are_not_learnt() -> None:
    """Garbage, wildcards, our own id: nothing comes of them; good ones beside them count."""

    async def story() -> None:
        async with parlour() as ann:
            peer = somebody()
            good = Multiaddr.tcp("192.0.2.1", 4001).encode()
            wild = Multiaddr.tcp("0.0.0.0", 4001).encode()
            act(ann, Learn(peer, (b"", b"\xff\xff", wild, good)), Learn(ann.id, (good,)))
            assert list(guest(ann).hooks.addresses(peer)) == [good]
            assert good not in guest(ann).hooks.addresses(ann.id)

    run(story)
