"""What belongs to a Pulsarcast topic, on real nodes: sub-topics, later versions, the meta topic."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pulsarcast_nodes import QUICK, SET

from live_nodes import run, take, take_events, until
from processes import Terminal, rumormill
from rumormill import LocalError, Node, SyncNode


@asynccontextmanager
async def author_and_reader() -> AsyncIterator[tuple[Node, Node]]:
    """Two nodes that know each other."""
    async with (
        Node(None, protocol="pulsarcast", parameters=QUICK) as author,
        Node(None, protocol="pulsarcast", parameters=QUICK) as reader,
    ):
        await reader.connect(author.tickets[0])
        yield author, reader


def test_a_recursive_subscription_takes_in_the_whole_tree() -> None:
    """Sub-topics of sub-topics too, each event with its own topic; closing it leaves them."""

    async def story() -> None:
        async with author_and_reader() as (author, reader):
            leaf = await author.create_topic("leaf")
            branch = await author.create_topic("branch", sub_topics={"leaf": leaf.name})
            root = await author.create_topic("root", sub_topics={"branch": branch.name})
            tree = await reader.topic_tree(root.name)
            assert [(each.depth, each.label, each.topic) for each in tree.branches] == [
                (1, "branch", branch.name),
                (2, "leaf", leaf.name),
            ]
            assert tree == await reader.topic(root.name).tree()
            events = await reader.subscribe(root.name, recursive=True, since_offset=0)
            everything = [root.name, branch.name, leaf.name]
            await until(lambda: events.topics == everything, "all topics are joined")
            for topic in (leaf, root, branch):
                await topic.publish(topic.name.encode())
            heard = await take_events(events, 3)
            assert sorted((event.topic, event.data) for event in heard) == sorted(
                (topic, topic.encode()) for topic in everything
            )
            assert (events.waiting, events.dropped, events.unreachable) == (0, 0, {})
            view = reader._driver.machine.view
            assert set(everything) <= set(view().subscriptions)
            events.close()
            assert set(everything) & set(view().subscriptions) == {root.name}
            assert await events.batch() == []

    run(story)


def test_a_subscriber_is_told_of_versions_and_follows_them() -> None:
    """Those of the author, also ones from before it came, and what new versions link."""

    async def story() -> None:
        async with author_and_reader() as (author, reader):
            first = await author.create_topic("news")
            second = await author.create_topic("news", parent=first.name)
            told = await reader.subscribe(first.name, tell_versions=True)
            follows = await reader.subscribe(first.name, follow_versions=True, recursive=True)
            for events in (told, follows):
                (event,) = await take_events(events, 1)
                version = reader.version_of(event)
                assert (event.via, version.topic, version.parent) == (
                    "version",
                    second.name,
                    first.name,
                )
            extra = await author.create_topic("extra")
            third = await author.create_topic(
                "news", parent=second.name, sub_topics={"extra": extra.name}
            )
            everything = [first.name, second.name, third.name, extra.name]
            await until(lambda: follows.topics == everything, "the third version is followed")
            versions = await reader.topic(first.name).versions()
            assert [each.topic for each in versions] == everything[:3]
            for topic in (first, third, extra):
                await topic.publish(topic.name.encode())
            heard = await take_events(follows, 4)
            assert [event.via for event in heard].count("version") == 1
            assert {event.topic for event in heard if not event.via} == {
                first.name,
                third.name,
                extra.name,
            }
            assert (await take_events(told, 2))[1].topic == first.name
            with pytest.raises(LocalError, match="announces no version"):
                reader.version_of(heard[-1] if not heard[-1].via else heard[-2])

    run(story)


def test_the_meta_topic_comes_and_goes_as_each_call_says() -> None:
    """`subscribe_to_meta` and `unsubscribe_from_meta`, for one topic and once."""

    async def story() -> None:
        async with author_and_reader() as (author, reader):
            topic = await author.create_topic("news")
            meta = (await reader.versions(topic.name))[0].meta
            view = reader._driver.machine.view

            def joined(*wanted: str | None) -> bool:
                return sorted(view().subscriptions) == sorted(filter(None, wanted))

            await reader.subscribe(topic.name, subscribe_to_meta=False)
            await until(lambda: reader.subscribers(topic.name), "it is in the tree")
            assert joined(topic.name)
            await reader.unsubscribe(topic.name)
            await reader.subscribe(topic.name)
            await until(lambda: joined(topic.name, meta), "the meta topic came along")
            await reader.unsubscribe(topic.name, unsubscribe_from_meta=False)
            assert joined(meta)
            async with await reader.subscribe(topic.name, follow=False, unsubscribe_from_meta=True):
                await until(lambda: reader.subscribers(topic.name), "it is back in the tree")
            assert joined()
            with pytest.raises(LocalError, match="announced in the meta topic alone"):
                await reader.subscribe(topic.name, subscribe_to_meta=False, follow_versions=True)

    run(story)


def test_a_sub_topic_that_nobody_has_costs_the_others_nothing() -> None:
    """It is named, and events of the rest come."""

    async def story() -> None:
        async with author_and_reader() as (author, reader):
            lone = Node(None, protocol="pulsarcast", parameters=QUICK)
            async with lone:  # of its topic only the author hears
                await lone.connect(author.tickets[0])
                lost = await lone.create_topic("lost")
                root = await author.create_topic("root", sub_topics={"lost": lost.name})
            events = await reader.subscribe(root.name, recursive=True)
            await until(lambda: reader.subscribers(root.name), "it is in the tree")
            await root.publish(b"all the same")
            assert await take(events, 1) == [b"all the same"]

    run(story)


@pytest.mark.parametrize(
    "wish",
    [
        {"recursive": True},
        {"tell_versions": True},
        {"follow_versions": True},
        {"subscribe_to_meta": False},
        {"unsubscribe_from_meta": False},
    ],
)
def test_other_protocols_have_no_such_thing(wish: dict[str, bool]) -> None:
    """One sentence that names the option."""
    (name,) = wish
    with SyncNode(None) as node:
        with pytest.raises(LocalError, match=f"{name}: topics of gossipsub have no such thing"):
            node.subscribe("news", **wish)  # type: ignore[arg-type]
        for call in (node.versions, node.topic_tree):
            with pytest.raises(LocalError, match="topics of gossipsub have no such thing"):
                call("news")


def test_versions_and_sub_topics_across_kill_9(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A reader that dies in the middle is told of, and given, what came while it was away."""
    homes = tmp_path_factory.mktemp("h")
    author, reader = homes / "a", homes / "b"
    node = ("node", "--protocol", "pulsarcast", *SET)

    def create(name: str, *options: str) -> str:
        done = rumormill("topics", "create", name, *options, "--home", author)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def say(topic: str, data: str) -> None:
        done = rumormill("pub", topic, data, "--home", author)
        assert done.returncode == 0, done.stderr

    def listens(home: Path, topic: str) -> Terminal:
        return Terminal(
            "sub", topic, "--recursive", "--follow-versions", "--all", "--home", home
        )  # fmt: skip

    with Terminal(*node, "--home", author) as a:
        joins = (*node, "--home", reader, "--join", a.prints()[0])
        sport = create("sport")
        news = create("news", "--sub-topic", f"sport={sport}")
        with Terminal(*joins) as b:
            b.prints()
            with listens(reader, news) as sub:
                say(sport, "goal")
                say(news, "rain")
                assert sorted(sub.prints(2)) == ["goal", "rain"]
                b.kill()
        weather = create("weather")
        later = create(
            "news", "--parent", news, "--sub-topic", f"sport={sport}",
            "--sub-topic", f"weather={weather}",
        )  # fmt: skip
        for topic, data in ((sport, "foul"), (later, "sun"), (weather, "warm")):
            say(topic, data)
        with Terminal(*joins) as b:
            b.prints()
            with listens(reader, news) as sub:
                assert sub.says("new version of news").endswith(later)
                assert sorted(sub.prints(5)) == ["foul", "goal", "rain", "sun", "warm"]
            drawn = rumormill("topics", "tree", later, "--home", reader)
            assert drawn.stdout.splitlines() == [
                f"{later} news",
                f"├─ sport {sport} sport",
                f"└─ weather {weather} weather",
            ]
            done = rumormill("topics", "tree", news, "--home", reader, "--json")
            shown = json.loads(done.stdout)
            assert (shown["topic"], shown["cut"]) == (news, False)
            assert [each["topic"] for each in shown["branches"]] == [sport]
            done = rumormill(
                "sub", news, "--no-meta", "--keep-meta", "--all", "--count", "1", "--home", reader
            )
            assert done.stdout == "rain\n"
        assert a.stop() == 0
    offline = rumormill("topics", "tree", later, "--home", author)
    assert offline.stdout == drawn.stdout


def test_what_is_told_of_a_topic_fills_no_buffer_beyond_its_bound() -> None:
    """News about a topic that stand in another one have no more room than its events."""

    async def main() -> None:
        async with Node(None) as node:
            events = await node.subscribe("news", buffer=2)
            await node.publish("news", b"1")
            (event,) = await take_events(events, 1)
            for _ in range(3):
                events.tell(event)
            assert (events.waiting, events.dropped) == (2, 1)

    run(main)
