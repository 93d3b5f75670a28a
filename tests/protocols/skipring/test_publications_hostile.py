"""Malicious and corrupt messages about publications: refused, counted, and others go on."""

import random

import msgspec
from publication_rig import TOPIC, Ring, Subscriber

from rumormill.overlay.patricia import EVERYTHING, HASH_BYTES, Prefix, Summary
from rumormill.protocols.skipring.config import PublicationConfig
from rumormill.protocols.skipring.envelope import Publication, named
from rumormill.protocols.skipring.messages import (
    CheckAndPublish,
    CheckTrie,
    PublishBundle,
    PublishNew,
    Want,
)

SILENT = PublicationConfig(flooding=False)
LIAR = b"liar"


def lie(label: Prefix = EVERYTHING) -> Summary:
    return Summary(label, b"\x01" * HASH_BYTES)


def forged(publication: Publication, **changes: object) -> Publication:
    return named(msgspec.structs.replace(publication, **changes))


def test_forged_publications_are_refused_and_counted() -> None:
    """Another author, another text, another topic, no signature: nothing of it is kept or sent."""
    one, author = Subscriber(1, PublicationConfig()), Subscriber(2, SILENT)
    one.ring = [b"near"]
    true = author.publish(b"true")
    forgeries = (
        forged(true, data=b"false"),
        forged(true, author=one.id),
        forged(true, seqno=true.seqno + 1),
        forged(true, created=true.created + 1),
        forged(true, signature=b""),
        forged(true, signature=bytes(64)),
        forged(true, topic="other"),
    )
    for forgery in forgeries:
        assert one.receive(LIAR, PublishNew(TOPIC, forgery)) == []
        assert one.receive(LIAR, PublishBundle(TOPIC, (forgery,), (Want(EVERYTHING),))) == []
    assert one.keys == []
    assert one.delivered == []
    assert one.refusals == {"invalid signature": 12, "wrong-topic": 2}
    one.receive(LIAR, PublishNew(TOPIC, true))
    assert one.keys == [true.id], "a false copy does not block the true one"


def test_a_forger_is_soon_not_even_checked() -> None:
    """Checking signatures is the dearest work; one peer can ask for little of it at a time."""
    one, author = Subscriber(1, PublicationConfig(forgeries_per_interval=3)), Subscriber(2, SILENT)
    checked = []
    verify = one.identity.verify

    class Counting:
        peer, public_key, sign = one.identity.peer, b"", one.identity.sign

        def verify(self, *arguments) -> bool:
            checked.append(arguments)
            return verify(*arguments)

    one.own._identity = Counting()
    true = author.publish(b"true")
    false = tuple(forged(true, seqno=number) for number in range(1000, 1050))
    one.receive(LIAR, PublishBundle(TOPIC, false))
    assert len(checked) == 3
    assert one.refusals["too-many-forgeries"] == 47
    one.receive(b"honest", PublishNew(TOPIC, true))
    assert one.keys == [true.id]
    one.timeout()
    one.receive(LIAR, PublishBundle(TOPIC, false[:1]))
    assert len(checked) == 5, "the next interval is a new chance"


def test_an_endless_chain_is_cut_off_and_counted() -> None:
    """A peer that finds every hash different gets so many answers per interval and no more."""
    config = PublicationConfig(flooding=False, nodes_per_interval=500)
    one = Subscriber(1, config)
    for number in range(64):
        one.publish(b"%d" % number)
    answered = messages = 0
    letter = CheckTrie(TOPIC, (lie(),))
    for _ in range(2000):
        messages += 1
        answers = one.receive(LIAR, letter)
        answered += bool(answers)
        nodes = [Summary(node.label, lie().hash) for each in answers for node in each.nodes]
        letter = CheckTrie(TOPIC, tuple(nodes[:256]) or (lie(),))
    assert answered <= 500
    assert one.refusals["too-many-checks"] >= messages - 500
    assert one.receive(b"honest", CheckTrie(TOPIC, (lie(),))) != [], "others are served"
    one.timeout()
    assert one.receive(LIAR, CheckTrie(TOPIC, (lie(),))) != []


def test_the_answer_to_one_message_is_bounded() -> None:
    """Whatever is asked: one message of checks and one bundle, neither beyond its limits."""
    config = PublicationConfig(flooding=False, nodes_per_message=8, publications_per_message=4)
    one = Subscriber(1, config)
    for number in range(300):
        one.publish(bytes(100) + b"%d" % number)
    nodes = tuple(lie(Prefix.parse(f"{number:03b}")) for number in range(8))
    wants = tuple(Want(Prefix.parse(f"{number:03b}")) for number in range(8))
    answers = one.receive(LIAR, CheckAndPublish(TOPIC, nodes, wants))
    bundles = [each for each in answers if isinstance(each, PublishBundle)]
    checks = [each for each in answers if not isinstance(each, PublishBundle)]
    assert len(bundles) == 1
    assert len(bundles[0].publications) == 4
    assert len(bundles[0].rest) == 8
    assert len(checks) == 1
    assert len(checks[0].nodes) == 8


def test_asking_for_everything_again_and_again_is_limited() -> None:
    """What a peer may be sent between two timeouts is counted in bytes."""
    config = PublicationConfig(flooding=False, bytes_per_interval=5000)
    one = Subscriber(1, config)
    for number in range(10):
        one.publish(bytes(100) + b"%d" % number)
    everything = CheckAndPublish(TOPIC, (), (Want(EVERYTHING),))
    served = sum(bool(one.receive(LIAR, everything)) for _ in range(50))
    assert served <= 3
    assert one.refusals == {"too-many-bytes-asked-for": 50 - served}
    assert one.receive(b"honest", everything)


def test_a_promise_of_more_is_followed_only_while_it_pays() -> None:
    """A bundle that brings nothing new ends the chain, whatever it says is left."""
    one, author = Subscriber(1, SILENT), Subscriber(2, SILENT)
    publication = author.publish(b"true")
    bundle = PublishBundle(TOPIC, (publication,), (Want(EVERYTHING),))
    assert len(one.receive(LIAR, bundle)) == 1
    for _ in range(10):
        assert one.receive(LIAR, bundle) == []
    assert one.receive(LIAR, PublishBundle(TOPIC, (), (Want(EVERYTHING),))) == []


def test_a_crowd_of_peers_cannot_fill_the_table() -> None:
    """What is remembered of peers is bounded; further ones wait for the next interval."""
    one = Subscriber(1, PublicationConfig(flooding=False, peers_per_interval=5))
    one.publish(b"something")
    for number in range(50):
        one.receive(b"sybil %d" % number, CheckTrie(TOPIC, (lie(),)))
    assert len(one.own._used) == 5
    assert one.refusals == {"too-many-peers": 45}


def test_honest_subscribers_converge_beside_a_liar() -> None:
    """A member that answers everything with lies and forgeries stops nobody else."""
    chance = random.Random(7)
    ring = Ring(6, 7, PublicationConfig(flooding=False, nodes_per_interval=2000))
    liar, honest = ring.members[0], ring.members[1:]
    for number in range(40):
        chance.choice(honest).publish(b"%d" % number)
    for near in (honest[0], honest[-1]):
        near.ring = [honest[-1].id if near is honest[0] else honest[0].id, *near.ring]
    true = honest[0].publish(b"last")

    def lies(sender: bytes, message: object) -> list[object]:
        labels = [EVERYTHING, Prefix.parse("01"), Prefix.parse("1" * chance.randrange(1, 256))]
        liar.outbox += [
            (sender, CheckTrie(TOPIC, tuple(lie(label) for label in labels))),
            (sender, PublishBundle(TOPIC, (forged(true, data=chance.randbytes(8)),))),
        ]
        if len(liar.outbox) > 20:
            liar.outbox.clear()
        return []

    liar.receive = lies  # type: ignore[method-assign]
    for _ in range(60_000):
        ring.step()
        if len({member.own.root_hash for member in honest}) == 1:
            break
    assert len({member.own.root_hash for member in honest}) == 1
    assert all(len(member.keys) == 41 for member in honest)
    assert sum(member.refusals.get("invalid signature", 0) for member in honest) > 0
