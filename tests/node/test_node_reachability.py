"""Nodes that find out whether they can be reached: peers dial back, and prove it."""

import pytest

from live_nodes import run, until
from rumormill.core.errors import LocalError
from rumormill.libp2p import autonat, reserving
from rumormill.libp2p.autonat import (
    DIAL_REQUEST,
    MAX_MESSAGE_BYTES,
    DataRequest,
    DataResponse,
    Dialled,
    DialRequest,
    DialResponse,
    Response,
    decode_message,
    encode_message,
)
from rumormill.libp2p.dialogue import begin
from rumormill.node.node import Node
from rumormill.wire.multiaddr import Multiaddr


@pytest.fixture(autouse=True)
def loopback_is_the_internet(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that these nodes have."""
    monkeypatch.setattr(autonat, "is_public", lambda host: host.startswith("127."))


def test_a_node_that_can_be_dialled_finds_out_and_says_so() -> None:
    """The peer dials it, the number comes, and nothing of it is left."""

    async def story() -> None:
        async with Node(None, members=False) as asker, Node(None, members=False) as peer:
            await asker.connect(peer.tickets[0])
            await until(lambda: asker._reach.autonat.proven, "the address is proven")
            own = Multiaddr.parse(asker.tickets[0].rpartition("/p2p/")[0])
            assert asker._reach.autonat.proven == [own]
            assert asker.reachability[0] == f"reachable at {own}: peers have dialled it"
            assert asker.reachability[1] == f"{own}: 1 of 1 peers could dial it"
            assert asker.metrics()["rumormill_reachable"][""] == 1
            await until(lambda: len(asker.peers) == 1, "the caller is gone")

    run(story)


def test_a_node_that_nobody_can_dial_says_so_and_uses_a_relay() -> None:
    """With a relay it is reached by that only, and says why."""

    async def story() -> None:
        async with (
            Node(None, members=False, announce=["/ip4/127.0.0.1/tcp/1"]) as asker,
            Node(None, members=False, be_relay=True) as peer,
        ):
            await asker.connect(peer.tickets[0])
            await until(lambda: asker.reachability, "there is a verdict")
            why = "because nobody could dial /ip4/127.0.0.1/tcp/1"
            assert asker.reachability[0].startswith(f"not reachable from elsewhere, {why};")
            assert asker.metrics()["rumormill_reachable"][""] == 0
        async with (
            Node(None, members=False, be_relay=True) as peer,
            Node(None, members=False, announce=["/ip4/127.0.0.1/tcp/1"], relays=["auto"]) as asker,
        ):
            await asker.connect(peer.tickets[0])
            by_relay = lambda: why in "".join(asker.reachability[:1])  # noqa: E731
            await until(lambda: asker._reach.reserving.places and by_relay(), "it has both")
            assert asker.reachability[0].startswith(f"reachable by relay only, {why}: at /ip4/")

    run(story)


def test_who_is_proven_needs_no_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` asks nobody then."""
    monkeypatch.setattr(reserving, "_LOOK", 0.01)
    looks: list[bool] = []

    def needed() -> bool:
        looks.append(False)
        return False

    async def story() -> None:
        async with (
            Node(None, members=False, be_relay=True) as peer,
            Node(None, members=False, relays=["auto"]) as asker,
        ):
            asker._reach.reserving._needed = needed
            await asker.connect(peer.tickets[0])
            await until(lambda: asker._reach.autonat.proven, "the address is proven")
            seen = len(looks)
            await until(lambda: len(looks) > seen + 3, "it has looked for relays")
            assert not asker._reach.reserving.places
            assert asker._reach.reserving.problems == {}

    run(story)


def test_a_verdict_without_the_number_is_not_believed() -> None:
    """A peer that says it has dialled and did not is counted."""

    async def story() -> None:
        async with Node(None, members=False) as asker, Node(None, members=False) as liar:

            async def lie(*_: object) -> Dialled:
                return Dialled.OK

            liar._reach.autonat._dial_back = lie  # type: ignore[method-assign]
            await asker.connect(liar.tickets[0])
            unproven = lambda: asker.refusals.get("autonat-unproven")  # noqa: E731
            await until(unproven, "the lie is found out")
            assert not asker._reach.autonat.proven
            assert asker._reach.autonat.answers == {}

    run(story)


async def request(node: Node, peer: Node, address: str, pays: int = 10**6) -> DialResponse:
    """Have a peer asked for a dial, and pay so much of what it costs."""
    dialogue = await begin(node._swarm.connections[peer.id], DIAL_REQUEST, MAX_MESSAGE_BYTES)
    dialogue.say(encode_message(DialRequest((Multiaddr.parse(address).encode(),), 7)))
    body = decode_message(await dialogue.read())
    if isinstance(body, DataRequest):
        for start in range(0, min(body.size, pays), 4096):
            dialogue.say(encode_message(DataResponse(bytes(min(4096, body.size - start)))))
        if pays < body.size:
            dialogue.say(encode_message(DialResponse(Response.OK)))
        body = decode_message(await dialogue.read())
    assert isinstance(body, DialResponse)
    dialogue.give_up()
    return body


def test_floods_of_requests_are_bounded_and_counted() -> None:
    """Whoever asks all the time is told no; others' hosts cost bytes before they are dialled."""

    async def story() -> None:
        async with Node(None, members=False) as asker, Node(None, members=False) as peer:
            await asker.connect(peer.tickets[0])
            here = "/ip4/127.0.0.1/tcp/1"
            answers = [await request(asker, peer, here) for _ in range(30)]
            dialled = [answer for answer in answers if answer.status is Response.OK]
            assert len(dialled) <= 5
            assert {answer.dialled for answer in dialled} == {Dialled.DIAL_ERROR}
            assert peer.refusals["autonat-too-often"] >= 25
            answer = await request(asker, peer, "/ip4/192.168.1.1/tcp/1")
            assert answer.status is Response.DIAL_REFUSED
            assert peer.refusals["autonat-no-public-address"] == 1

    run(story)


def test_another_host_is_dialled_by_who_pays() -> None:
    """In full, and before."""

    async def story() -> None:
        async with Node(None, members=False) as asker, Node(None, members=False) as peer:
            await asker.connect(peer.tickets[0])
            answer = await request(asker, peer, "/ip4/127.0.0.9/tcp/1")
            assert (answer.status, answer.dialled) == (Response.OK, Dialled.DIAL_ERROR)
            with pytest.raises(LocalError, match="ended"):
                await request(asker, peer, "/ip4/127.0.0.9/tcp/1", pays=20_000)
            assert peer.refusals["autonat-not-paid"] == 1

    run(story)
