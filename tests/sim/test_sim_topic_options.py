"""Topic options in scenarios: who may publish, requests, linking, sub-topics, versions."""

from typing import Any, ClassVar

import pytest
from sim_rig import Run

from rumormill.core.effects import FromOffset, Load
from rumormill.core.errors import ConfigError
from rumormill.core.trace import PublishMessage
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.sim.run import run_scenario
from rumormill.sim.scenario import Scenario
from rumormill.sim.simulation import Simulation
from rumormill.sim.topic_table import TopicTable
from rumormill.trace.entries import Batch

CANNOT = "may-not-publish"


def small(topic: dict[str, Any], **changes: Any) -> Scenario:
    """A dozen peers in three topics, of whom everybody publishes."""
    table = {
        "protocol": "pulsarcast",
        "peers": 12,
        "topology": {"degree": 5},
        "warm_up": "8s",
        "cool_down": "15s",
        "check_codec": True,
        "workload": {"topics": 3, "messages": 45, "rate": 5.0},
        "topic": topic,
        **changes,
    }
    return Scenario.from_dict(table)


def descriptors(run: Run, name: str) -> list[Any]:
    """What the author of a topic knows of each version of it, the oldest first."""
    simulation = run.simulation
    author = simulation.network.hosts[simulation.set_up.publishers[name][0]].machine
    named = [cids.parse(each) for each in simulation.set_up.versions[name]]
    return [author.feeds.open[each].descriptor for each in named]  # type: ignore[attr-defined]


def test_who_may_not_publish_and_may_not_ask_fails_and_that_is_counted() -> None:
    """Only authors publish: what the others were to publish is owed to everybody all the same, so
    that the ratio is what the share of the authors' publications is."""
    run = Run(small({"allowed_publishers": "author", "request_to_publish": False}), keep_trace=True)
    plan, authors = run.simulation.plan, run.simulation.set_up.publishers
    mine = sum(each.publisher == authors[each.topic][0] for each in plan.publications)
    summary = run.summary
    assert summary["failed_publications"] == {CANNOT: len(plan.publications) - mine}
    assert summary["published"] == mine + 3  # with the announcements of the topics
    assert summary["delivery_ratio"] == pytest.approx(
        (12 * mine + 3) / (12 * len(plan.publications) + 3)
    )


def test_who_may_ask_is_published_by_an_allowed_publisher() -> None:
    """Two peers of each topic may publish; everything is published, and by nobody else."""
    run = Run(small({"allowed_publishers": 2, "request_to_publish": True}), keep_trace=True)
    assert run.summary["failed_publications"] == {}
    assert run.summary["delivery_ratio"] == 1.0
    allowed = {
        version: run.simulation.set_up.publishers[name][:2]
        for name, versions in run.simulation.set_up.versions.items()
        for version in versions
    }
    made = [(peer, each.topic) for _, peer, each in run.trace(PublishMessage)]
    assert sum(topic in allowed for _, topic in made) == 45
    assert all(peer in allowed[topic] for peer, topic in made if topic in allowed)


@pytest.mark.parametrize(("linking", "linked"), [("last-seen", True), ("custom", False)])
def test_linking_is_as_the_topic_says(linking: str, linked: bool) -> None:
    """Events of a load name no parents, so under custom linking they have none."""
    run = Run(small({"linking": linking, "allowed_publishers": "anyone"}))
    simulation = run.simulation
    journal, (topic,) = simulation.network.hosts[0].journal, simulation.set_up.versions["topic-0"]
    assert journal is not None
    kept = journal.load(Load(1, topic, FromOffset()))
    assert kept is not None
    assert len(kept.events) == 15
    assert any(event.parents for event in kept.events) == linked


def test_sub_topics_are_a_tree() -> None:
    """With two below each, the first of five is above the next two, and the second above the rest:
    they exist before it, and it names them."""
    run = Run(small({"sub_topics": 2}, workload={"topics": 5, "messages": 10}))
    versions = run.simulation.set_up.versions
    below = {
        name: [f"topic-{number}" for number in numbers]
        for name, numbers in (("topic-0", (1, 2)), ("topic-1", (3, 4)), ("topic-2", ()))
    }
    for name, wanted in below.items():
        (made,) = descriptors(run, name)
        linked = {key: cids.text(cid) for key, cid in made.sub_topics.items() if key != "meta"}
        assert linked == {each: versions[each][0] for each in wanted}


def test_subscribers_follow_new_versions() -> None:
    """Two new versions of each topic, each linked to the one before; events go to the newest, and
    everybody gets all of them."""
    run = Run(small({"versions": 2}), keep_trace=True)
    assert run.summary["failed_publications"] == {}
    assert run.summary["delivery_ratio"] == 1.0
    for versions in run.simulation.set_up.versions.values():
        assert len(versions) == 3
        used = [each for _, _, each in run.trace(PublishMessage) if each.topic in versions]
        assert {each.topic for each in used} == set(versions)
    first, second, third = descriptors(run, "topic-0")
    assert (second.parent, third.parent) == (first.cid, second.cid)


def test_figures_name_every_topic_of_the_trace() -> None:
    """The scenario's name of each, in all versions, and those of announcements: for reports."""

    class Topics:
        seen: ClassVar[set[str]] = set()

        def observe(self, batch: Batch) -> None:
            self.seen |= {each.topic for _, _, each in batch if isinstance(each, PublishMessage)}

        def close(self) -> None:
            pass

    names = run_scenario(small({"versions": 1}), observer=Topics())["topic_names"]
    assert {names.get(topic) for topic in Topics.seen} == {
        *(f"{what}topic-{number}" for number in range(3) for what in ("", "versions of "))
    }


def test_options_go_with_protocols_that_create_topics() -> None:
    """Others refuse them, and are compared without."""
    scenario = small({"versions": 1, "request_to_publish": True})
    with pytest.raises(ConfigError, match="topic: has no meaning with gossipsub"):
        Simulation(scenario.changed({"protocol": "gossipsub"}))
    other = scenario.under("gossipsub")
    assert other.topic == TopicTable()
    assert run_scenario(other)["delivery_ratio"] == 1.0
    for key, value in (("versions", -1), ("sub_topics", -1), ("allowed_publishers", 0)):
        with pytest.raises(ConfigError, match=rf"topic\.{key}: must"):
            small({key: value})
