"""Large RPCs: one that holds thousands of messages is not worked through in one piece."""

import asyncio
import itertools
import secrets

import pytest
from hostile_peer import MESHSUB, HostilePeer

from live_nodes import run, until
from rumormill import Node
from rumormill.libp2p import turns
from rumormill.overlay.patricia import Prefix
from rumormill.protocols.pubsub.codec import encode_rpc
from rumormill.protocols.pubsub.messages import Control, Message, Rpc, SubOpts
from rumormill.protocols.pubsub.split import parts_of
from rumormill.protocols.skipring import messages as skipring
from rumormill.protocols.skipring.envelope import Publication
from rumormill.protocols.skipring.messages import PublishBundle, PublishNew, Want
from rumormill.wire.frames import frame

MANY = 1000
PART = 64


def test_the_parts_of_an_rpc_mean_the_same_one_after_the_other() -> None:
    messages = tuple(Message("news", secrets.token_bytes(8)) for _ in range(2 * PART + 1))
    subscriptions, control = (SubOpts(True, "news"),), Control(graft=("news",))
    first, second, third = parts_of(Rpc(subscriptions, messages, control))
    assert (first.subscriptions, first.control) == (subscriptions, None), "heeded before messages"
    assert (second.subscriptions, second.control) == ((), None)
    assert (third.subscriptions, third.control) == ((), control), "and control behind them"
    assert first.publish + second.publish + third.publish == messages
    small = Rpc(subscriptions, messages[:PART], control)
    assert [*parts_of(small)] == [small]


def test_the_parts_of_a_bundle_are_bundles_and_the_last_says_what_is_left() -> None:
    """None of them is so small that it would be flooded on."""
    made = tuple(Publication("news", b"me", number, b"") for number in range(1024))
    rest = (Want(Prefix(0, 1)),)
    parts = skipring.parts_of(PublishBundle("news", made[:1000], rest))
    assert [len(each.carried) for each in parts] == [250] * 4
    assert [each.rest for each in parts if isinstance(each, PublishBundle)] == [(), (), (), rest]
    assert sum((each.carried for each in parts), ()) == made[:1000]
    few = skipring.parts_of(PublishBundle("news", made[:257]))
    assert [len(each.carried) for each in few] == [128, 129]
    for whole in (PublishBundle("news", made[:256], rest), PublishNew("news", made[0])):
        assert [*skipring.parts_of(whole)] == [whole]


def test_others_have_their_turn_in_the_middle_of_a_large_rpc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However short a turn is, all of it is taken in the end, once and in order."""
    for length in ("TURN", "LONG_TURN", "LEAST_TURN"):
        monkeypatch.setattr(turns, length, -1.0)

    async def story() -> None:
        async with Node(None) as alice, HostilePeer() as mallory:
            events = await alice.subscribe("news", since_offset=0)
            await mallory.connect(alice)
            mallory.hello()
            await until(lambda: alice.peers, "they know each other")
            journal, steps = alice._journal, [0]
            messages = [mallory.message("news", b"%d" % n, n) for n in range(MANY)]
            mallory.open(MESHSUB, frame(encode_rpc(Rpc(publish=tuple(messages)))))
            while journal.taken < MANY:
                await asyncio.sleep(0)
                steps.append(journal.taken)
            assert max(b - a for a, b in itertools.pairwise(steps)) == PART
            assert [(await anext(events)).data for _ in range(MANY)] == [
                b"%d" % n for n in range(MANY)
            ]

    run(story)


def test_what_is_wrong_in_a_large_rpc_costs_nothing_that_came_before_it() -> None:
    async def story() -> None:
        async with Node(None) as alice, HostilePeer() as mallory:
            events = await alice.subscribe("news")
            await mallory.connect(alice)
            mallory.hello()
            await until(lambda: alice.peers, "they know each other")
            good = frame(encode_rpc(Rpc(publish=(mallory.message("news", b"good", 1),))))
            mallory.open(MESHSUB, good + frame(b"\xff" * (64 << 10)))
            assert (await anext(events)).data == b"good"
            await until(lambda: alice.refusals.get("bad-varint"), "and then it is refused")

    run(story)
