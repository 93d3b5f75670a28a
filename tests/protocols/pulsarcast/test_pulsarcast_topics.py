"""Topics: meta topics, versions, sub-topics, and who may publish."""

import pytest
from pulsarcast_rig import Lone, World, delivered, publication, refusals

from rumormill.core.api import TopicTree
from rumormill.core.effects import KeepNote, Outcome, Published
from rumormill.core.event import Event, Note
from rumormill.core.inputs import Command, Publish, Received, Subscribe, Unsubscribe
from rumormill.core.trace import FailPublish, Refuse
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import (
    BrowseTopic,
    BrowseTree,
    CreateTopic,
    DescribeTopic,
    ListVersions,
    ShowTopic,
    TopicView,
)
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dag_cbor, dates, rpc
from rumormill.protocols.pulsarcast.format.descriptors import (
    META,
    EventDescriptor,
    TopicDescriptor,
    meta_topic,
)
from rumormill.protocols.pulsarcast.format.signing import sign_event
from rumormill.protocols.pulsarcast.tree.known_topics import NOTES, note_of, view_of_kept
from rumormill.protocols.pulsarcast.tree.sub_topics import MOST_BRANCHES, announced, tree_of
from rumormill.sim.identity import SimulatedIdentity
from rumormill.sim.network import peer_id


def descriptor(world: World, topic: str, asker: int = 0) -> TopicDescriptor:
    """A topic's descriptor, as a peer finds it."""
    found = world.command(asker, ShowTopic(topic=topic)).result
    assert isinstance(found, TopicDescriptor)
    return found


def test_a_topic_begins_with_its_meta_topic() -> None:
    """`meta-<name>` is linked under `#`.meta; its author may publish there, others may ask."""
    world = World(6)
    topic = descriptor(world, world.create(0), asker=4)
    assert topic.meta is not None
    meta = descriptor(world, cids.text(topic.meta), asker=4)
    assert meta.name == "meta-news"
    assert meta.allowed_publishers == (peer_id(0),)
    assert meta.request_to_publish == ()
    assert topic.allowed_publishers == (peer_id(0),)


def test_creating_subscribes_to_both_and_announces_the_topic_in_the_meta_topic() -> None:
    """The meta topic's first event is the descriptor itself."""
    world = World(4)
    topic = descriptor(world, world.create(0))
    assert topic.meta is not None
    assert list(world.machine(0).membership.subscriptions) == [topic.meta, topic.cid]
    (announced,) = world.events[0]
    assert announced.topic == cids.text(topic.meta)
    assert announced.data == topic.dag()


def test_a_version_keeps_the_meta_topic_and_reaches_its_subscribers() -> None:
    """The old version is linked as parent, and everybody learns of the new one."""
    world = World(8)
    first = world.create(0)
    world.subscribe(first, *range(1, 8))
    second = world.create(0, parent=first, allowed_publishers=None)
    old, new = descriptor(world, first), descriptor(world, second)
    assert (new.parent, new.meta) == (old.cid, old.meta)
    for index in range(1, 8):
        assert world.events[index][-1].data == new.dag()
        outcome = world.command(index, ListVersions(topic=first))
        assert outcome.result == [old, new]


def test_somebody_elses_version_is_announced_by_request() -> None:
    """Who may not publish in the meta topic asks its author, as for any event."""
    world = World(6)
    first = world.create(0)
    world.subscribe(first, *range(1, 6))
    second = world.create(3, parent=first)
    new = descriptor(world, second, asker=3)
    assert new.author == peer_id(3)
    for index in range(6):
        assert world.events[index][-1].data == new.dag()


def test_sub_topics_can_be_browsed() -> None:
    """They are linked by name, and the meta topic is one of them."""
    world = World(6)
    sport = world.create(1, "sport")
    news = world.create(0, "news", sub_topics={"sport": sport})
    found = world.command(4, BrowseTopic(topic=news), wait=6.0).result
    assert isinstance(found, dict)
    assert sorted(found) == [META, "sport"]
    assert cids.text(found["sport"].cid) == sport
    assert found[META].name == "meta-news"


def test_a_topic_with_unknown_links_is_not_created() -> None:
    """Sub-topics and parents must exist."""
    world = World(4)
    nowhere = cids.text(cids.of(b"nowhere"))
    outcome = world.command(0, CreateTopic(name="x", sub_topics={"a": nowhere}), wait=20.0)
    assert outcome.error.endswith("(no-such-topic)")
    outcome = world.command(0, CreateTopic(name="x", parent=nowhere), wait=20.0)
    assert outcome.error.endswith("(no-such-topic)")


@pytest.mark.parametrize("wish", [{"name": ""}, {"name": "x" * 2000}])
def test_impossible_names_are_refused(wish: dict[str, str]) -> None:
    """With a sentence, not with an exception."""
    world = World(2)
    assert "bytes" in world.command(0, CreateTopic(**wish)).error


def test_the_meta_topic_comes_and_goes_with_the_topic_unless_told_otherwise() -> None:
    """`subscribeToMeta` and `unsubscribeFromMeta`."""
    world = World(5)
    topic = world.create(0)
    meta = descriptor(world, topic).meta
    assert meta is not None
    subscriptions = world.machine(1).membership.subscriptions
    world.host(1).handle(Subscribe(topic))
    world.run(3.0)
    assert meta in subscriptions
    world.host(1).handle(Unsubscribe(topic))
    world.run(1.0)
    assert not subscriptions
    world.host(1).handle(Subscribe(topic, meta=False))
    world.run(3.0)
    assert list(subscriptions) == [cids.parse(topic)]
    world.host(1).handle(Subscribe(topic, meta=True))  # a wish that comes later counts
    world.run(3.0)
    assert list(subscriptions) == [cids.parse(topic), meta]
    world.host(1).handle(Unsubscribe(topic, meta=False))
    world.run(3.0)
    assert list(subscriptions) == [meta]


def test_the_meta_topic_stays_while_another_version_is_subscribed_to() -> None:
    """Versions share it."""
    world = World(4)
    first = world.create(0)
    second = world.create(0, parent=first)
    meta = descriptor(world, first).meta
    world.subscribe(first, 2)
    world.subscribe(second, 2)
    world.unsubscribe(first, 2)
    assert meta in world.machine(2).membership.subscriptions
    world.unsubscribe(second, 2)
    assert not world.machine(2).membership.subscriptions


def test_who_may_neither_publish_nor_ask_is_told_so() -> None:
    """Also by the plain `Publish`, whose outcome says why."""
    world = World(4)
    topic = world.create(0, request_to_publish=None)
    world.subscribe(topic, 1)
    assert world.say(1, topic, b"x").error.endswith("(may-not-publish)")
    receipts: list[Published] = []
    world.host(1).receipts = receipts
    world.publish(topic, 1, b"x")
    assert [(each.event, each.error) for each in receipts] == [
        (None, reasons.sentence("may-not-publish"))
    ]
    assert [each.reason for _, each in world.traced(FailPublish)] == ["may-not-publish"] * 2


def test_the_default_of_who_may_publish_is_a_parameter() -> None:
    """`default_publishers`: everybody, or the author alone."""
    assert Lone(0, default_publishers="anyone").create().allowed_publishers is None
    assert Lone(0, default_publishers="author").create().allowed_publishers == (peer_id(0),)


def test_the_same_text_twice_is_two_events() -> None:
    """Every event has a date of its own, in the same millisecond too."""
    lone = Lone(0, default_publishers="anyone")
    topic = cids.text(lone.create().cid)
    effects = lone.feed(Publish(topic, b"x")) + lone.feed(Publish(topic, b"x"))
    published = [each.event for each in effects if isinstance(each, Published)]
    assert len({event.id for event in published}) == 2
    assert published[1].parents == (published[0].id,)


def test_a_topic_is_described_with_its_sub_topics_and_versions() -> None:
    """By a peer that knows nothing of it yet; what is lost is said to be."""
    world = World(8)
    lost = cids.text(cids.of(b"nobody has this"))
    first = world.create(0)
    second = world.create(0, parent=first, sub_topics={"first": first})
    view = world.command(5, DescribeTopic(topic=second)).result
    assert isinstance(view, TopicView)
    assert [cids.text(each.cid) for each in view.versions] == [first, second]
    assert {name: each.name for name, each in view.sub_topics.items() if each is not None} == {
        "first": "news",
        "meta": "meta-news",
    }
    assert world.command(5, DescribeTopic(topic=lost), wait=30.0).error.endswith("(no-such-topic)")


def test_a_topic_that_appears_late_is_found_by_who_waits_for_it() -> None:
    """Somebody asks for it just before its author is there to have it."""
    world = World(4)
    late = meta_topic("late", peer_id(1), "2026-01-01T00:00:00.000Z")
    asked: list[Outcome] = []
    world.host(3).command(ShowTopic(topic=cids.text(late.cid)), asked.append)
    world.run(0.7)
    assert asked == []
    world.machine(1).topics.offer(late, world.now, world.host(1).effects)
    world.host(1).carry_out()
    world.run(5.0)
    assert [outcome.error for outcome in asked] == [""]


def test_descriptors_are_kept_and_come_back_without_the_network() -> None:
    """Of topics that were created or subscribed to; a relay keeps none."""
    world = World(6)
    topic = world.create(0)
    world.subscribe(topic, 4)
    kept = [index for index in range(6) if kept_view(world, index, topic) is not None]
    assert kept == [0, 4]
    alone = Lone()
    for note in world.journal(4)._notes.values():
        alone.journal.append(KeepNote(note))
    effects = alone.feed(Command(1, ShowTopic(topic=topic)))
    (found,) = [effect.result for effect in effects if isinstance(effect, Outcome)]
    assert isinstance(found, TopicDescriptor)
    assert cids.text(found.cid) == topic


def kept_view(world: World, index: int, topic: str) -> TopicView | None:
    """What a peer's log alone knows of a topic."""
    notes = {note.key: note.value for note in world.journal(index)._notes.values()}
    keys = [key for key in notes if key.startswith(NOTES)]
    return view_of_kept(notes.get, keys, cids.parse(topic))


def test_what_a_log_has_kept_is_a_view_of_the_topic() -> None:
    """With its versions and its sub-topics, as far as they are kept too."""
    world = World(4)
    first = world.create(0)
    world.subscribe(first, 2)
    second = world.create(0, parent=first, sub_topics={"old": first})
    view = kept_view(world, 2, second)
    assert view is not None
    assert [cids.text(each.cid) for each in view.versions] == [first, second]
    assert view.sub_topics["old"] == view.versions[0]
    assert kept_view(world, 1, second) is None


def test_topics_are_no_events() -> None:
    """A log has the events of topics, and the topics themselves as notes."""
    world = World(3)
    topic = world.create(0)
    world.publish(topic, 0, b"x")
    meta = descriptor(world, topic).meta
    assert meta is not None
    assert sorted(world.journal(0)._topics) == sorted([topic, cids.text(meta)])


@pytest.mark.parametrize("value", [b"", b"1234567", bytes(8), bytes(8) + b"\xa0", None])
def test_a_note_that_is_not_what_its_key_says_is_no_topic(value: bytes | None) -> None:
    """Damaged, or another's: the topic is looked for elsewhere."""
    lone = Lone()
    topic, other = Lone(1).create("one"), Lone(2).create("two")
    key = NOTES + cids.text(topic.cid)
    wrong = note_of(other, 1.0).value if value is None else value
    lone.journal.append(KeepNote(Note(key, wrong)))
    lone.feed(Command(1, ShowTopic(topic=cids.text(topic.cid))))
    assert lone.machine.topics.get(topic.cid) is None
    assert topic.cid in lone.machine._fetcher


def test_a_tree_of_sub_topics_is_found_link_by_link() -> None:
    """Sorted by label; a topic that is linked twice is gone into once; the meta topic is left
    out."""
    world = World(6)
    leaf = world.create(0, name="leaf")
    left = world.create(1, name="left", sub_topics={"end": leaf})
    right = world.create(2, name="right", sub_topics={"also": left})
    root = world.create(3, name="root", sub_topics={"r": right, "l": left})
    tree = world.command(5, BrowseTree(topic=root), wait=20.0).result
    assert isinstance(tree, TopicTree)
    assert (tree.root.topic, tree.root.name, tree.cut) == (root, "root", False)
    assert [(each.depth, each.label, each.topic, each.again) for each in tree.branches] == [
        (1, "l", left, False),
        (2, "end", leaf, False),
        (1, "r", right, False),
        (2, "also", left, True),
    ]
    assert [each.name for each in tree.branches] == ["left", "leaf", "right", "left"]
    unknown = cids.text(cids.of(b"nothing"))
    assert world.command(5, BrowseTree(topic=unknown), wait=20.0).error.endswith("(no-such-topic)")


def test_a_tree_is_bounded_and_names_what_is_lost() -> None:
    """So many links are listed; a diamond of diamonds costs no more than it has topics."""
    made: dict[bytes, TopicDescriptor] = {}

    def topic(name: str, **links: bytes) -> TopicDescriptor:
        found = TopicDescriptor(name, b"author", "1970-01-01T00:00:00.000Z", None, links)
        made[found.cid] = found
        return found

    below = topic("bottom", lost=cids.of(b"lost"))
    for level in range(200):
        below = topic(f"{level}", a=below.cid, b=below.cid)
    tree = tree_of(below, made.get)
    assert (len(tree.branches), tree.cut) == (401, False)
    assert [each.name for each in tree.branches if each.label == "lost"] == [None]
    many = topic("many", **{f"{number}": cids.of(b"%d" % number) for number in range(2000)})
    tree = tree_of(many, made.get)
    assert (len(tree.branches), tree.cut) == (MOST_BRANCHES, True)


def test_a_version_counts_only_if_its_author_announces_it() -> None:
    """Anybody may ask to publish in a meta topic; a descriptor names its author and proves
    nothing."""
    world = World(4)
    first = world.create(0)
    old = descriptor(world, first)
    assert old.meta is not None
    meta = cids.text(old.meta)
    world.subscribe(meta, 1)
    forged = TopicDescriptor(
        "news", old.author, "1980-01-01T00:00:00.000Z", old.cid, {META: old.meta}
    )
    world.publish(meta, 2, forged.dag())
    assert world.data(1, meta) == [forged.dag()]
    second = world.create(0, parent=first)
    versions = world.command(1, ListVersions(topic=first)).result
    assert isinstance(versions, list)
    assert [cids.text(each.cid) for each in versions] == [first, second]
    refused = [each.reason for _, each in world.traced(Refuse)]
    assert reasons.NOT_ITS_AUTHOR in refused
    event = world.events[1][-2]
    assert announced(event) is None
    found = announced(world.events[1][-1])
    assert found is not None
    assert (found.topic, found.parent) == (second, first)
    news = Event(meta, b"no descriptor", peer_id(0), b"id")
    assert announced(news) is None


def test_new_topic_is_understood_and_proves_nothing() -> None:
    """What a peer tells of is at hand for who wants it; it is no version of another topic, and does
    not push out what is there."""
    lone = Lone(0, max_descriptors=3)
    mine = lone.create()
    assert mine.meta is not None
    forged = TopicDescriptor(
        "news", mine.author, "1980-01-01T00:00:00.000Z", mine.cid, {META: mine.meta}
    )
    lone.meet(peer_id(1))

    def told(topic: TopicDescriptor) -> list[str]:
        message = rpc.RpcMessage(rpc.Operation.NEW_TOPIC, forged.created, topic)
        return refusals(lone.feed(Received(peer_id(1), rpc.Rpc((message,)))))

    assert told(forged) == []
    assert lone.machine.topics.get(forged.cid) == forged
    effects = lone.feed(Command(1, ListVersions(topic=cids.text(mine.cid))))
    (versions,) = [each.result for each in effects if isinstance(each, Outcome)]
    assert versions == [mine]
    another = TopicDescriptor("more", peer_id(1), forged.created)
    assert told(another) == [reasons.WAITING_FULL]
    assert lone.machine.topics.get(another.cid) is None
    later = TopicDescriptor("later", b"a", forged.created, protocol_version="/pulsarcast/2.0.0")
    assert told(later) == [reasons.OTHER_VERSION]


def test_events_of_a_later_protocol_are_not_acted_upon() -> None:
    """Their version says that they may mean something else."""
    lone = Lone(0)
    topic = lone.create(allowed_publishers=None)
    lone.meet(peer_id(1))
    created = dates.iso_at(lone.now)
    for version, reasons_given in (
        ("/pulsarcast/1.4.0", []),
        ("/pulsarcast/2.0.0", ["other-version"]),
    ):
        event = EventDescriptor(
            topic.cid, peer_id(1), b"x", created, peer_id(1), None, version,
            dag_cbor.encode({"name": "weather"}),
        )  # fmt: skip
        signed = sign_event(event, SimulatedIdentity(peer_id(1)))
        effects = lone.receive(peer_id(1), publication(signed))
        assert refusals(effects) == reasons_given
        assert delivered(effects) == ([] if reasons_given else [b"x"])
