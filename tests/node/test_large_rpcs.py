"""Large RPCs: one that holds thousands of messages is not worked through in one piece."""

import asyncio
import itertools
import secrets
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hostile_peer import MESHSUB, HostilePeer

from live_nodes import run, until
from rumormill import Node
from rumormill.core.errors import DecodeError
from rumormill.libp2p import turns
from rumormill.node.incoming import Incoming
from rumormill.overlay.hyparview.messages import Kind, Membership
from rumormill.overlay.patricia import Prefix
from rumormill.protocols.pubsub.codec import decode_rpc, encode_rpc
from rumormill.protocols.pubsub.messages import Control, Message, Rpc, SubOpts
from rumormill.protocols.pubsub.split import parts_of
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import rpc as pulsarcast
from rumormill.protocols.pulsarcast.format.additions import Events, Fetch
from rumormill.protocols.pulsarcast.format.descriptors import EventDescriptor
from rumormill.protocols.pulsarcast.format.signing import SignedEvent
from rumormill.protocols.radius import messages as radius
from rumormill.protocols.radius.messages import Interest, Relay, Spread
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


def test_the_parts_of_a_frame_of_radius_gossip_hold_as_many_words() -> None:
    """Its signatures may be of the longest RSA keys: four hundred took a fifth of a second."""
    interests = tuple(Spread(Interest(b"me", f"{number}", 1, 1), 1) for number in range(PART + 1))
    letters = tuple(radius.Publication(b"me", "news", number) for number in range(2 * PART))
    relays, beat = tuple(Relay(each, 1) for each in letters[:PART]), (Membership(Kind.BEAT),)
    parts = radius.parts_of(radius.Frame(interests, relays, letters, beat))
    sizes = [len((*each.interests, *each.publications, *each.direct)) for each in parts]
    assert sizes == [PART, 1, PART, PART, PART]
    assert sum((each.interests for each in parts), ()) == interests
    assert sum((each.publications for each in parts), ()) == relays
    assert sum((each.direct for each in parts), ()) == letters
    assert [each.membership for each in parts] == [()] * 4 + [beat]
    few = radius.Frame(interests[:PART], membership=beat)
    assert [*radius.parts_of(few)] == [few]


def test_the_parts_of_old_events_of_pulsarcast_say_at_the_end_what_is_missing() -> None:
    topic = cids.of(b"topic")
    written = EventDescriptor(topic, b"me", b"", "2020-01-01T00:00:00.000Z", b"me")
    made = tuple(SignedEvent(written) for _ in range(2 * PART + 1))
    many = Events(topic, made, missing=(topic,), start=1000, end=2000)
    beside = Fetch(topic)
    first, *parts = pulsarcast.parts_of(pulsarcast.addition(many, beside))
    assert first.additions == (beside,)
    found = [each for part in parts for each in part.additions if isinstance(each, Events)]
    assert [len(each.events) for each in found] == [PART, PART, 1]
    assert [each.range_start for each in found] == [None, None, 1000]
    assert [(each.missing, each.end) for each in found] == [((), 0), ((), 0), ((topic,), 2000)]
    few = pulsarcast.addition(Events(topic, made[:PART]), beside)
    assert [*pulsarcast.parts_of(few)] == [few]


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
            await until(lambda: any(mallory.heard.values()), "its own stream is open")
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
            await until(lambda: any(mallory.heard.values()), "its own stream is open")
            good = frame(encode_rpc(Rpc(publish=(mallory.message("news", b"good", 1),))))
            mallory.open(MESHSUB, good + frame(b"\xff" * (64 << 10)))
            async with asyncio.timeout(20):
                assert (await anext(events)).data == b"good"
            await until(lambda: alice.refusals.get("bad-varint"), "and then it is refused")

    run(story)


class Gate:
    """A channel that takes what it is given, once it is open."""

    max_frame, open = 1 << 20, False

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.kept = 0

    def receive(self, stream: Any, arrived: Sequence[Any]) -> int:
        self.taken += arrived if self.open else ()
        return len(arrived) if self.open else 0

    def parts(self, framed: bytes) -> list[Any]:
        return [*parts_of(decode_rpc(framed))]

    def pace(self, stream: Any) -> None:
        """As fast as can be."""

    def note_part(self, stream: Any, size: int, *, anew: bool) -> None:
        self.kept = size


def test_a_large_rpc_that_came_too_early_is_cut_when_it_is_read() -> None:
    """Before our own stream is open it is kept as it came; what is no RPC is refused at once."""
    gate, carrier = Gate(), SimpleNamespace(connection=SimpleNamespace(active=False))
    incoming, stream = Incoming(gate), cast("Any", carrier)
    made = tuple(Message("news", secrets.token_bytes(300)) for _ in range(2 * PART))
    rpc = encode_rpc(Rpc(publish=made))
    incoming.on_data(stream, frame(rpc))
    assert (gate.taken, gate.kept, incoming.unread) == ([], len(rpc), False)
    with pytest.raises(DecodeError):
        incoming.on_data(stream, frame(b"\xff" * 20))
    gate.open = True
    assert incoming.unread
    incoming.on_data(stream, b"")
    assert [len(each.publish) for each in gate.taken] == [PART, PART]
    assert (gate.kept, incoming.unread) == (0, False)
