"""Who may write and read in topics, seen by those who may not, in every protocol.

Three live nodes: Alice publishes, Bob reads, and Rita between them has neither key nor policy, or
is the one who is kept out. What passes between them is recorded inside of noise, and the files of
their homes are read byte by byte; each record is compared with that of an open topic, so that one
that is deaf does not pass for secrecy.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from live_nodes import run, take, take_events, until
from rumormill.core.errors import ConfigError, LocalError
from rumormill.core.event import Event
from rumormill.core.inputs import Verdict
from rumormill.daemon.control_service import NodeService
from rumormill.libp2p.noise import NoiseSession
from rumormill.node.identity import (
    create_policy,
    create_topic_key,
    load_topic_keys,
    rotate_topic_key,
)
from rumormill.node.node import Node
from rumormill.node.policy import NOT_A_PUBLISHER, sign_policy
from rumormill.node.subscription import Subscription
from rumormill.node.sync import SyncNode
from rumormill.wire.keys import PrivateKey
from rumormill.wire.topic_cipher import (
    BAD_CIPHERTEXT,
    NO_TOPIC_KEY,
    NONCE_BYTES,
    NOT_ENCRYPTED,
    is_encrypted,
    key_id_of,
)

SECRET = b"the content that relays must not see"
HEADS: dict[str, Any] = {
    "key": "the-key-that-relays-must-not-see",
    "headers": {"the-header-that-relays-must-not-see": "nor-its-content"},
}
HIDDEN = (SECRET, b"key-that-relays", b"header-that-relays", b"nor-its-content")
OWNER = PrivateKey(b"o" * 32)
OPTIONS: dict[str, dict[str, Any]] = {
    "floodsub": {},
    "gossipsub": {"parameters": {"heartbeat_interval": 0.1}},
    "pulsarcast": {
        "preset": "open",
        "parameters": {
            "kademlia.bootstrap_delay": 0.1,
            "subscribe_retry_delay": 0.2,
            "rendezvous_interval": 0.5,
        },
    },
    "radius": {"parameters": {"hyparview.shuffle_interval": 0.2}},
    "skipring": {"parameters": {"interval": 0.1}},
}
every_protocol = pytest.mark.parametrize("protocol", OPTIONS)


class Trio:
    """Alice, Rita and Bob, who follow a topic."""

    def __init__(self, topic: str, nodes: list[Node], events: list[Subscription]) -> None:
        self.topic = topic
        self.alice, self.rita, self.bob = nodes
        self.heard_by_alice, self.heard_by_rita, self.heard_by_bob = events


@contextlib.asynccontextmanager
async def trio(protocol: str, homes: Path | None = None) -> AsyncIterator[Trio]:
    """Three nodes that are connected through Rita, and whose topic carries events already."""
    async with contextlib.AsyncExitStack() as stack:
        options = dict(OPTIONS[protocol])
        if protocol == "skipring":
            above = Node(None, protocol=protocol, supervises=True, **options)
            await stack.enter_async_context(above)
            options["supervisors"] = above.tickets
        names = ("alice", "rita", "bob")
        places = [None if homes is None else homes / name for name in names]
        nodes = [
            await stack.enter_async_context(Node(place, protocol=protocol, **options))
            for place in places
        ]
        alice, rita, bob = nodes
        if protocol != "skipring":
            await alice.connect(rita.tickets[0])
            await bob.connect(rita.tickets[0])
        topic = (await alice.create_topic("orders")).name
        events = [await node.subscribe(topic) for node in nodes]
        for node in nodes:
            await node.wait_until_ready(topic)
        if protocol.endswith("sub"):
            await rita.wait_until_ready(topic, peers=2)
        if protocol == "gossipsub":
            await until(lambda: [mesh_size(node, topic) for node in nodes] == [1, 2, 1], "meshes")
        for node in nodes:  # nobody is asked before everybody hears everybody
            await node.publish(topic, b"hello")
        for each in events:
            assert await take(each, 3) == [b"hello"] * 3
        yield Trio(topic, nodes, events)


def mesh_size(node: Node, topic: str) -> float:
    return node.metrics()["mesh_peer_counts"].get(topic, 0)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "orders.key"
    create_topic_key(path)
    return path


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> bytearray:
    """Everything that any connection is about to encrypt, as whoever is at its other end reads."""
    heard = bytearray()
    encrypt = NoiseSession.encrypt

    def recorded(session: NoiseSession, plaintext: bytes) -> bytes:
        heard.extend(plaintext)
        return encrypt(session, plaintext)

    monkeypatch.setattr(NoiseSession, "encrypt", recorded)
    return heard


def stored(homes: Path) -> bytes:
    """The content of all files below a directory."""
    return b"".join(path.read_bytes() for path in homes.rglob("*") if path.is_file())


def counted(node: Node, metric: str, reason: str) -> float:
    return node.metrics()[metric].get(reason, 0)


def unread(node: Node, reason: str) -> float:
    """How many events were not handed out for a reason."""
    return counted(node, "rumormill_undelivered", reason)


def refused(reason: str, *nodes: Node) -> float:
    """How much that peers brought was refused for a reason."""
    return sum(counted(node, "rumormill_refused", reason) for node in nodes)


def rejected(*nodes: Node) -> float:
    """How many messages were rejected, which is held against who brought them."""
    return sum(sum(node.metrics()["rumormill_rejected"].values()) for node in nodes)


# Encrypted topics.


@every_protocol
@pytest.mark.parametrize("encrypted", [False, True], ids=["open", "encrypted"])
def test_a_relay_reads_nothing(
    protocol: str, encrypted: bool, key: Path, tap: bytearray, tmp_path: Path
) -> None:
    """Neither on the wire nor in any file; it keeps the event, hands out nothing, and counts."""
    homes = tmp_path / "homes"

    async def story() -> None:
        async with trio(protocol, homes) as made:
            if encrypted:
                made.alice.access.set_keys(made.topic, key)
                made.bob.access.set_keys(made.topic, key)
            await made.alice.publish(made.topic, SECRET, **HEADS)
            (heard,) = await take_events(made.heard_by_bob, 1)
            assert (heard.data, heard.headers) == (SECRET, HEADS["headers"])
            assert heard.key == HEADS["key"].encode()
            assert await take(made.heard_by_alice, 1) == [SECRET]
            if not encrypted:
                assert await take(made.heard_by_rita, 1) == [SECRET]
                return
            await until(lambda: unread(made.rita, NO_TOPIC_KEY) == 1, "the relay has it")
            assert not made.heard_by_rita.waiting
            assert [each.data for each in await made.rita.history(made.topic)] == [b"hello"] * 3
            assert is_encrypted(made.rita.log.read(made.topic, 3, 1)[0].data)
            (last,) = await made.bob.history(made.topic, since_offset=3)
            assert last.data == SECRET
            again = await made.bob.subscribe(made.topic, since_offset=3)
            assert await take(again, 1) == [SECRET]

    run(story)
    for hidden in HIDDEN:
        assert (hidden in tap) is not encrypted
        assert (hidden in stored(homes)) is not encrypted


@every_protocol
def test_a_request_that_is_secret_has_a_reply_that_is(
    protocol: str, key: Path, tap: bytearray, tmp_path: Path
) -> None:
    """Replies are under the key of the topic in which was asked, whatever topic they travel in:
    neither the wire nor the files of three homes have what Bob answers."""
    homes = tmp_path / "homes"

    async def answer(bob: Node, requests: Subscription) -> None:
        async for request in requests:
            if request.reply_to:
                await bob.reply(request, SECRET, **HEADS)

    async def story() -> None:
        async with trio(protocol, homes) as made:
            for node in (made.alice, made.bob):
                node.access.set_keys(made.topic, key)
            answering = asyncio.ensure_future(answer(made.bob, made.heard_by_bob))
            reply = await made.alice.request(made.topic, SECRET, timeout=300, **HEADS)
            assert (reply.data, reply.author) == (SECRET, made.bob.id)
            assert reply.key == HEADS["key"].encode()
            answering.cancel()

    run(story)
    for hidden in HIDDEN:
        assert hidden not in tap
        assert hidden not in stored(homes)


def test_replies_may_have_keys_of_their_own(key: Path, tmp_path: Path) -> None:
    own = tmp_path / "replies.key"
    create_topic_key(own)

    async def story() -> None:
        keys = {"orders": key, "orders/replies": own}
        async with Node(None, topic_keys=keys) as node:
            for topic, file in (
                ("orders", key),
                ("orders/replies", own),
                ("orders/replies/replies", own),
            ):
                await node.publish(topic, SECRET)
                (kept,) = node.log.read(topic, 0, 1)
                assert key_id_of(kept.data) in load_topic_keys(file).ids
                assert [each.data for each in await node.history(topic)] == [SECRET]
            await node.publish("others/replies", b"in clear")
            assert node.log.read("others/replies", 0, 1)[0].data == b"in clear"

    run(story)


@every_protocol
def test_what_is_in_clear_or_forged_is_refused(
    protocol: str, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By everybody who has the key and meets it, before it is kept or passed on: clear text,
    another author's ciphertext, and ciphertext that was changed. Each is counted."""

    async def story() -> None:
        async with trio(protocol) as made:
            rita, bob, topic = made.rita, made.bob, made.topic
            members = (made.alice, bob)
            for node in members:
                node.access.set_keys(topic, key)
            await made.alice.publish(topic, SECRET)
            assert await take(made.heard_by_bob, 1) == [SECRET]
            await until(lambda: unread(rita, NO_TOPIC_KEY) == 1, "Rita has the ciphertext")
            copied = rita.log.read(topic, 3, 1)[0].data
            tampered = copied[:-1] + bytes([copied[-1] ^ 1])
            monkeypatch.setattr(rita.access, "prepared", lambda _, data: data)
            for data in (b"in clear", copied, tampered):
                await rita.publish(topic, data)
            await until(lambda: refused(BAD_CIPHERTEXT, *members) >= 2, "the forged are refused")
            assert refused(NOT_ENCRYPTED, *members) >= 1
            assert rejected(*members) >= 3
            for node in members:
                info = node.log.topic(topic)
                assert info is not None
                assert info.next_offset == 4
            assert not made.heard_by_bob.waiting

    run(story)


def test_a_key_that_comes_later_reads_what_was_kept(key: Path, tmp_path: Path) -> None:
    """Rotation: Bob has the old key only, keeps what he cannot read yet, and reads it with both."""
    renewed = tmp_path / "renewed.key"
    shutil.copy(key, renewed)
    rotate_topic_key(renewed)

    async def story() -> None:
        async with trio("gossipsub") as made:
            made.bob.access.set_keys(made.topic, key)
            made.alice.access.set_keys(made.topic, key)
            await made.alice.publish(made.topic, b"under the old key")
            made.alice.access.set_keys(made.topic, renewed)
            await made.alice.publish(made.topic, b"under the new key")
            assert await take(made.heard_by_bob, 1) == [b"under the old key"]
            await until(
                lambda: unread(made.bob, NO_TOPIC_KEY) == 1, "Bob keeps what he cannot read"
            )
            made.bob.access.set_keys(made.topic, renewed)
            await made.alice.publish(made.topic, b"and one more")
            assert await take(made.heard_by_bob, 1) == [b"and one more"]
            late = await made.bob.history(made.topic, since_offset=3)
            assert [each.data for each in late] == [
                b"under the old key", b"under the new key", b"and one more",
            ]  # fmt: skip
            assert not made.bob.metrics()["rumormill_rejected"]
            hidden = await made.bob.history(made.topic)
            assert [each.offset for each in hidden] == [3, 4, 5]
            assert unread(made.bob, NOT_ENCRYPTED) == 3

    run(story)


def test_files_are_read_again_all_or_none(key: Path, tmp_path: Path) -> None:
    """A later policy and a new key are followed at once; where a file is spoilt nothing changes."""
    policy = tmp_path / "orders.policy"

    def spoil(*, back: bool = False) -> None:
        content = key.read_text()
        key.write_text(f"/{content}" if back else content[1:])

    def allow(*publishers: bytes, version: int) -> None:
        policy.write_bytes(sign_policy(OWNER, "orders", publishers, version, 0))

    async def story() -> None:
        async with Node(None, topic_keys={"orders": key}) as node:
            allow(node.id, version=1)
            node.access.add_policy(policy)
            await node.create_topic("orders")
            await node.publish("orders", b"first")
            rotate_topic_key(key)
            node.access.reload()
            await node.publish("orders", b"second")
            used = [key_id_of(each.data) for each in node.log.read("orders", 0, 2)]
            assert used == [*reversed(load_topic_keys(key).ids)]
            assert [each.data for each in await node.history("orders")] == [b"first", b"second"]
            allow(bytes(OWNER.peer_id), version=2)
            spoil()
            with pytest.raises(LocalError, match=str(key)):
                node.access.reload()
            await node.publish("orders", b"third")
            spoil(back=True)
            node.access.reload()
            with pytest.raises(LocalError, match="does not let this node publish"):
                await node.publish("orders", b"fourth")
            allow(node.id, version=1)
            node.access.reload()
            with pytest.raises(LocalError, match="version 2"):
                await node.publish("orders", b"an earlier version replaces nothing")

    run(story)


def test_a_key_is_rotated_where_a_link_leads(key: Path, tmp_path: Path) -> None:
    """Who uses the file by its own name has the new key too."""
    link = tmp_path / "elsewhere" / "linked.key"
    link.parent.mkdir()
    link.symlink_to(key)
    before = load_topic_keys(key).ids
    rotated = rotate_topic_key(link).ids
    assert rotated[1:] == before
    assert load_topic_keys(key).ids == load_topic_keys(link).ids == rotated
    assert link.is_symlink()
    assert [*link.parent.iterdir()] == [link]


def test_many_that_cannot_be_read_do_not_stop_a_reader(key: Path) -> None:
    """A subscription that catches up from the log, and a history with a limit, pass over them."""

    async def story() -> None:
        async with Node(None) as node:
            await node.create_topic("orders")
            node.access.set_keys("orders", key)
            await node.publish_many("orders", [b"hidden"] * 600)
            node.access.set_keys("orders", None)
            await node.publish("orders", b"in clear")
            events = await node.subscribe("orders", since_offset=0)
            assert await take(events, 1) == [b"in clear"]
            (found,) = await node.history("orders", limit=1)
            assert found.offset == 600
            service = NodeService(node, "gossipsub")
            batch = await service.history("orders", limit=10)
            assert [each.offset for each in batch.events] == [600]
            assert batch.unreadable == 600
            raw = await service.history("orders", limit=10, raw=True)
            assert [is_encrypted(each.data) for each in raw.events] == [True] * 10

    run(story)


def test_scripts_have_keys_too(key: Path) -> None:
    with SyncNode(None) as node:
        node.access.set_keys("orders", key)
        node.publish("orders", SECRET)
        assert [each.data for each in node.history("orders")] == [SECRET]
        node.access.set_keys("orders", None)
        assert node.history("orders") == []


def test_a_validator_sees_clear_text(key: Path) -> None:
    """What it can judge; without the key, what travels."""

    async def story() -> None:
        async with trio("gossipsub") as made:
            seen: dict[str, bytes] = {}

            def now(event: Event, _: bytes) -> Verdict:
                seen["rita"] = event.data
                return Verdict.ACCEPT

            async def later(event: Event, _: bytes) -> Verdict:
                seen["bob"] = event.data
                return Verdict.ACCEPT

            made.rita.set_validator(made.topic, now)
            made.bob.set_validator(made.topic, later)
            made.alice.access.set_keys(made.topic, key)
            made.bob.access.set_keys(made.topic, key)
            await made.alice.publish(made.topic, SECRET)
            assert await take(made.heard_by_bob, 1) == [SECRET]
            assert seen["bob"] == SECRET
            assert is_encrypted(seen["rita"])

    run(story)


@every_protocol
def test_nobody_is_to_blame_for_what_a_validator_ignores(protocol: str) -> None:
    """Alice says more than a node would forgive; Bob's validator drops it without blame, and Bob
    hears what she says when it does no more."""
    many = 400

    async def story() -> None:
        async with trio(protocol) as made:
            alice, bob, topic = made.alice, made.bob, made.topic
            bob.set_validator(topic, lambda _event, _peer: Verdict.IGNORE)
            for _ in range(many // 50):
                await alice.publish_many(topic, [b"ignored"] * 50)

            def cut_off() -> bool:
                return any(reason.startswith("cut-off") for reason in bob.refusals)

            await until(lambda: rejected(bob) >= many or cut_off(), "all of it is dropped")
            assert not cut_off()
            bob.set_validator(topic, None)
            await alice.publish(topic, b"heard")
            while await take(made.heard_by_bob, 1) != [b"heard"]:
                pass

    run(story)


def test_a_node_begins_with_its_keys(key: Path, tmp_path: Path) -> None:
    """Those that it is told of, read when it starts; and what looks encrypted is not published."""

    async def story() -> None:
        async with Node(tmp_path / "home", topic_keys={"orders": key}) as node:
            await node.create_topic("orders")
            await node.publish("orders", SECRET)
            hidden = node.log.read("orders", 0, 1)[0].data
            keys = load_topic_keys(key)
            assert keys.decrypt(hidden, "orders", node.id) == SECRET
            assert keys.encrypt(SECRET, "orders", node.id, bytes(NONCE_BYTES)) != hidden
            with pytest.raises(LocalError, match="begins like an encrypted payload"):
                await node.publish("other", hidden)
        async with Node(tmp_path / "home") as node:
            assert await node.history("orders") == []
            assert unread(node, NO_TOPIC_KEY) == 1

    run(story)
    with pytest.raises(LocalError, match="there is no topic's key file"):
        run(Node(None, topic_keys={"orders": tmp_path / "none"}).start)
    key.chmod(0o644)
    with pytest.raises(LocalError, match="can be read by others"):
        run(Node(None, topic_keys={"orders": key}).start)


def test_authors_must_be_proven(key: Path, tmp_path: Path) -> None:
    """Where nobody signs, nothing binds a ciphertext or a policy to its author: refused."""
    rule = signed(tmp_path / "rule", "orders", bytes(OWNER.peer_id))
    for protocol, parameters in (
        ("gossipsub", {"sign_policy": "strict-no-sign"}),
        ("pulsarcast", {"require_signatures": False}),
    ):
        for given in ({"topic_keys": {"orders": key}}, {"policies": [rule]}):
            node = Node(None, protocol=protocol, parameters=parameters, **given)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="events prove no author"):
                run(node.start)


# Policies.


def signed(
    path: Path, topic: str, *publishers: bytes, version: int = 1, owner: PrivateKey = OWNER
) -> Path:
    create_policy(path, sign_policy(owner, topic, publishers, version, 0))
    return path


@every_protocol
def test_outsiders_are_refused_at_every_hop(protocol: str, tmp_path: Path) -> None:
    """Alice and Bob follow the policy, Rita does not: what she says reaches neither, and is
    counted; what she passes on does."""

    async def story() -> None:
        async with trio(protocol, tmp_path / "homes") as made:
            alice, rita, bob = made.alice, made.rita, made.bob
            rule = signed(tmp_path / "rule", made.topic, alice.id, bob.id)
            for node in (alice, bob):
                node.access.add_policy(rule)
            await rita.publish(made.topic, b"by an outsider")
            await until(lambda: refused(NOT_A_PUBLISHER, alice, bob) >= 1, "it is refused")
            assert rejected(alice, bob) >= 1
            await alice.publish(made.topic, b"by a publisher")
            assert await take(made.heard_by_bob, 1) == [b"by a publisher"]
            for node in (alice, bob):
                said = [each.data for each in await node.history(made.topic)]
                assert said == [*[b"hello"] * 3, b"by a publisher"]
            rita.access.add_policy(rule)
            with pytest.raises(LocalError, match="does not let this node publish"):
                await rita.publish(made.topic, b"by an outsider again")

    run(story)
    assert b"by an outsider again" not in stored(tmp_path / "homes")


@pytest.mark.parametrize("protocol", ["floodsub", "gossipsub"])
def test_a_relay_with_the_policy_passes_no_outsider_on(protocol: str, tmp_path: Path) -> None:
    """Bob knows of no policy, and hears of nothing that Rita has refused."""

    async def story() -> None:
        async with trio(protocol) as made:
            made.rita.access.add_policy(signed(tmp_path / "rule", made.topic, made.bob.id))
            await made.alice.publish(made.topic, b"by an outsider")
            await until(lambda: refused(NOT_A_PUBLISHER, made.rita) == 1, "the relay refuses it")
            both = signed(tmp_path / "both", made.topic, made.bob.id, made.alice.id, version=2)
            made.rita.access.add_policy(both)
            await made.alice.publish(made.topic, b"by a publisher")
            assert await take(made.heard_by_bob, 1) == [b"by a publisher"]

    run(story)


@every_protocol
def test_what_is_fetched_later_is_asked_too(protocol: str, tmp_path: Path) -> None:
    """Sync, or the protocol's own repair, brings Dora what was said before she came, but for what
    an outsider said, which nobody there refused."""

    async def story() -> None:
        async with trio(protocol) as made:
            alice, rita, topic = made.alice, made.rita, made.topic
            await alice.publish(topic, b"by a publisher")
            assert await take(made.heard_by_rita, 1) == [b"by a publisher"]
            await rita.publish(topic, b"by an outsider")
            publishers = [node.id for node in (alice, rita, made.bob)]
            everybody = signed(tmp_path / "everybody", topic, *publishers)
            rule = signed(tmp_path / "rule", topic, alice.id, made.bob.id, version=2)
            for policy, expected in ((everybody, 5), (rule, 3)):
                options = dict(OPTIONS[protocol], policies=[policy])
                if protocol == "skipring":
                    options["supervisors"] = rita._supervisors
                async with Node(None, protocol=protocol, **options) as dora:
                    if protocol != "skipring":
                        await dora.connect(rita.tickets[0])
                    events = await dora.subscribe(topic, history="all")
                    said = await take(events, expected)
                    assert (b"by an outsider" in said) == (policy == everybody)
                    if policy == rule:
                        await until(lambda d=dora: refused(NOT_A_PUBLISHER, d) >= 2, "refused")
                        assert len(await dora.history(topic)) == expected

    run(story)


@pytest.mark.parametrize("protocol", ["floodsub", "gossipsub", "radius"])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_one_version_refused_is_asked_for_by_a_later_one(
    protocol: str, restarted: bool, tmp_path: Path
) -> None:
    """Dora's first policy does not name Rita; that she refused Rita's event counts as having it, as
    long as she has no other policy, be it in this life or the next."""

    async def story() -> None:
        async with trio(protocol) as made:
            alice, rita, bob, topic = made.alice, made.rita, made.bob, made.topic
            first = signed(tmp_path / "1", topic, alice.id, bob.id)
            later = signed(tmp_path / "2", topic, alice.id, bob.id, rita.id, version=2)
            home, options = tmp_path / "dora", OPTIONS[protocol]
            async with Node(home, protocol=protocol, policies=[first], **options) as dora:
                await dora.connect(alice.tickets[0])
                events = await dora.subscribe(topic, history="all")
                assert await take(events, 2) == [b"hello"] * 2
                await until(lambda: refused(NOT_A_PUBLISHER, dora) == 1, "the third is refused")
                await until(lambda: not dora._journal.reader._disregarded, "it is known")
                if not restarted:
                    dora.access.add_policy(later)
                    assert await take(events, 1) == [b"hello"]
            if restarted:
                async with Node(home, protocol=protocol, policies=[later], **options) as dora:
                    await dora.connect(alice.tickets[0])
                    events = await dora.subscribe(topic, since_offset=2)
                    assert await take(events, 1) == [b"hello"]
                    assert refused(NOT_A_PUBLISHER, dora) == 0
            async with Node(home, protocol=protocol, policies=[later], **options) as dora:
                said = await dora.history(topic)
                assert [each.data for each in said] == [b"hello"] * 3

    run(story)


@every_protocol
def test_who_keeps_what_was_said_before_the_policy_is_not_to_blame(
    protocol: str, tmp_path: Path
) -> None:
    """Rita is barred when she has said much, which Alice and Bob keep. Dora, who comes later,
    refuses it, and goes on with those who gave it: it was nobody's fault."""
    many = 250  # Pulsarcast cuts off for ten that are refused, a node for two hundred

    async def story() -> None:
        async with trio(protocol) as made:
            alice, rita, bob, topic = made.alice, made.rita, made.bob, made.topic
            await rita.publish_many(topic, [b"by one who is barred later"] * many)
            for heard in (made.heard_by_alice, made.heard_by_bob):
                assert len(await take(heard, many)) == many
            rule = signed(tmp_path / "rule", topic, alice.id, bob.id)
            options = dict(OPTIONS[protocol], policies=[rule])
            for node in (alice, bob):
                node.access.add_policy(rule)
            if protocol == "skipring":
                options["supervisors"] = rita._supervisors
            async with Node(None, protocol=protocol, **options) as dora:

                def cut_off() -> bool:
                    return any(reason.startswith("cut-off") for reason in dora.refusals)

                if protocol != "skipring":
                    await dora.connect(alice.tickets[0])
                events = await dora.subscribe(topic, history="all")
                await until(
                    lambda: refused(NOT_A_PUBLISHER, dora) >= many or cut_off(), "it is refused"
                )
                assert not cut_off()
                await alice.publish(topic, b"by a publisher")
                assert sorted(await take(events, 3)) == [b"by a publisher", b"hello", b"hello"]
                assert not cut_off()

    run(story)


@every_protocol
def test_an_outsider_who_goes_on_is_cut_off(protocol: str, tmp_path: Path) -> None:
    """Whoever brings what is refused pays for it, until it is disconnected."""

    async def story() -> None:
        async with trio(protocol) as made:
            bob, rita = made.bob, made.rita
            bob.access.add_policy(signed(tmp_path / "rule", made.topic, bob.id))
            while not any(reason.startswith("cut-off") for reason in bob.refusals):
                await rita.publish_many(made.topic, [b"by an outsider"] * 50)
            assert [each.data for each in await bob.history(made.topic)] == [b"hello"] * 3

    run(story)


def test_nobody_publishes_for_an_outsider_who_asks(tmp_path: Path) -> None:
    """A Pulsarcast topic in which Alice alone publishes, and others ask her to."""

    async def story() -> None:
        options = OPTIONS["pulsarcast"]
        async with (
            Node(None, protocol="pulsarcast", **options) as alice,
            Node(None, protocol="pulsarcast", **options) as rita,
        ):
            await rita.connect(alice.tickets[0])
            made = await alice.create_topic(
                "orders", allowed_publishers=["author"], request_to_publish=True
            )
            topic = made.name
            await rita.subscribe(topic)
            await rita.wait_until_ready(topic)
            assert (await rita.publish(topic, b"granted")).requested
            alice.access.add_policy(signed(tmp_path / "rule", topic, alice.id))
            with pytest.raises(LocalError, match="validation-failed"):
                await rita.publish(topic, b"refused")
            assert refused(NOT_A_PUBLISHER, alice) == 1
            assert [each.data for each in await alice.history(topic)] == [b"granted"]

    run(story)


def test_what_is_fetched_by_its_name_is_asked_too(key: Path, tmp_path: Path) -> None:
    """An outsider's event, and one in clear in an encrypted topic, are not handed out by a node
    that does not even follow the topic."""

    async def story() -> None:
        async with trio("pulsarcast") as made:
            alice, rita, topic = made.alice, made.rita, made.topic
            said = await rita.publish(topic, b"by an outsider")
            assert await take(made.heard_by_alice, 1) == [b"by an outsider"]
            options = OPTIONS["pulsarcast"]
            async with Node(None, protocol="pulsarcast", **options) as dora:
                await dora.connect(alice.tickets[0])
                assert (await dora.fetch(said.id, timeout=300)).data == b"by an outsider"
                dora.access.set_keys(topic, key)
                with pytest.raises(LocalError, match="refuses the event"):
                    await dora.fetch(said.id, timeout=300)
                dora.access.set_keys(topic, None)
                dora.access.add_policy(signed(tmp_path / "rule", topic, alice.id))
                with pytest.raises(LocalError, match="refuses the event"):
                    await dora.fetch(said.id, timeout=300)
                assert refused(NOT_A_PUBLISHER, dora) == refused(NOT_ENCRYPTED, dora) == 1

    run(story)


def test_a_later_version_of_the_same_owner_counts(tmp_path: Path) -> None:
    """In whatever order they are given; nobody else's counts, and nothing unsigned."""
    other = PrivateKey(b"x" * 32)

    async def story() -> None:
        async with Node(None) as node:
            closed = signed(tmp_path / "1", "orders", bytes(OWNER.peer_id))
            opened = signed(tmp_path / "2", "orders", node.id, version=2)
            foreign = signed(tmp_path / "3", "orders", node.id, version=3, owner=other)
            node.access.add_policy(closed)
            with pytest.raises(LocalError, match="does not let this node publish"):
                await node.publish("orders", b"too early")
            with pytest.raises(LocalError, match="policies of two owners"):
                node.access.add_policy(foreign)
            forged = tmp_path / "4"
            forged.write_bytes(opened.read_bytes()[:-1] + b"\xff")  # no signature ends so
            with pytest.raises(LocalError, match="cannot be used: bad-signature"):
                node.access.add_policy(forged)
            node.access.add_policy(opened)
            node.access.add_policy(closed)
            assert (await node.publish("orders", b"now")).offset == 0
        with pytest.raises(LocalError, match="policies of two owners"):
            await Node(None, policies=[closed, foreign]).start()

    run(story)
