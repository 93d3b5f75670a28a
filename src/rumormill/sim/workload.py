"""Workloads: a scenario's load turned into a plan of subscriptions and publications.

A plan is complete before a run begins, so that the same load meets every protocol that is compared.
Times are absolute virtual seconds, from the scenario's workload start on.

Topics of the kinds `fixed` (in turn), `poisson` (drawn alike) and `zipf` (drawn by rank) are
`topic-0`, `topic-1`, ...; publishers are drawn alike among those who may publish in the topic.
Where no publisher subscribes to a topic, any publisher serves; where all do, outsiders are refused.

The kind `reddit2007` plays 17,611 comments of 100 users in 23 topics in the order of their number;
the source has no times, so they are spaced by `rate` and `arrivals`. The payload is the event
object as compact JSON. With 100 peers, peer i plays user i + 1. With more, peer i subscribes like
peer i mod 100 and only the first hundred publish; with fewer, peer i plays every user whose number
from 0 is i modulo the peers, with all their subscriptions.
"""

import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence

import msgspec

from rumormill.core.errors import ConfigError
from rumormill.sim.scenario import Scenario, Workload
from rumormill.sim.shipped import shipped_bytes


class PlannedPublish(msgspec.Struct, frozen=True, gc=False):
    """One publication to come. Without `data` the payload is any `size` bytes."""

    at: float
    publisher: int
    topic: str
    size: int
    data: bytes | None = None


class Plan(msgspec.Struct, frozen=True):
    """What every peer subscribes to and what is published when, ordered by time."""

    topics: tuple[str, ...]
    subscriptions: list[tuple[str, ...]]
    publications: list[PlannedPublish]
    start: float
    end: float
    """When the run is over: the scenario's cool-down after the last publication."""

    @property
    def last_publication(self) -> float:
        """When the workload is over; its start when nothing is published."""
        return self.publications[-1].at if self.publications else self.start


class RedditEvent(msgspec.Struct, frozen=True, gc=False):
    """One comment: which user (0 to 99) wrote what to which topic."""

    user: int
    topic: str
    data: bytes


class RedditData(msgspec.Struct, frozen=True):
    """The Reddit 2007 workload as it was recorded."""

    topics: tuple[str, ...]
    subscriptions: tuple[tuple[str, ...], ...]
    events: tuple[RedditEvent, ...]


def build_plan(scenario: Scenario, rng: random.Random) -> Plan:
    """Plan the whole load of a validated scenario."""
    if scenario.workload.kind == "reddit2007":
        return _reddit_plan(scenario, rng)
    workload = scenario.workload
    topics = tuple(f"topic-{rank}" for rank in range(workload.topics))
    subscriptions = _subscriptions(workload, topics, scenario.peers, rng)
    publishers = _publishers_by_topic(workload, topics, subscriptions, rng)
    publications = []
    times = _times(workload, scenario.workload_start, rng)
    for rank, at in zip(_ranks(workload, rng), times, strict=False):
        publisher = rng.choice(publishers[topics[rank]])
        publications.append(PlannedPublish(at, publisher, topics[rank], workload.size))
    return _plan(scenario, topics, subscriptions, publications)


def _plan(
    scenario: Scenario,
    topics: tuple[str, ...],
    subscriptions: list[tuple[str, ...]],
    publications: list[PlannedPublish],
) -> Plan:
    start = scenario.workload_start
    last = publications[-1].at if publications else start
    return Plan(topics, subscriptions, publications, start, last + scenario.cool_down)


def _times(workload: Workload, start: float, rng: random.Random) -> Iterator[float]:
    """Publication times without end: equally spaced from the start, or as a Poisson process.

    Each time is there as often as a burst has publications.
    """
    burst = workload.burst
    if not workload.poisson:
        for count in itertools.count():
            yield start + count // burst * burst / workload.rate
    at = start
    while True:
        at += rng.expovariate(workload.rate / burst)
        yield from itertools.repeat(at, burst)


def _weights(workload: Workload) -> list[float]:
    exponent = workload.zipf_exponent if workload.kind == "zipf" else 0.0
    return [1.0 / (rank + 1) ** exponent for rank in range(workload.topics)]


def _ranks(workload: Workload, rng: random.Random) -> Iterator[int]:
    """The topic number of each publication."""
    if workload.kind == "fixed":
        yield from (count % workload.topics for count in range(workload.messages))
        return
    cumulative = list(itertools.accumulate(_weights(workload)))
    everything = range(workload.topics)
    for _ in range(workload.messages):
        yield rng.choices(everything, cum_weights=cumulative)[0]


def _subscriptions(
    workload: Workload, topics: tuple[str, ...], peers: int, rng: random.Random
) -> list[tuple[str, ...]]:
    """Each peer's topics in order of rank; popular topics are drawn more often by kind zipf."""
    wanted = workload.subscriptions_per_peer
    if wanted is None or wanted == len(topics):
        return [topics] * peers
    ranks = range(len(topics))
    weights = _weights(workload)
    chosen = []
    for _ in range(peers):
        if workload.kind == "zipf":
            # The smallest of exponential draws with rates w are a weighted sample without
            # replacement (Efraimidis and Spirakis, 2006).
            draws = [-math.log(1.0 - rng.random()) / weight for weight in weights]
            picked = sorted(ranks, key=draws.__getitem__)[:wanted]
        else:
            picked = rng.sample(ranks, wanted)
        chosen.append(tuple(topics[rank] for rank in sorted(picked)))
    return chosen


def _publishers_by_topic(
    workload: Workload,
    topics: tuple[str, ...],
    subscriptions: list[tuple[str, ...]],
    rng: random.Random,
) -> dict[str, Sequence[int]]:
    """Who may publish in each topic, by rising peer number."""
    peers = len(subscriptions)
    count = workload.publishers
    if isinstance(count, float):
        count = max(1, round(count * peers))
    publishers = range(peers) if count == peers else sorted(rng.sample(range(peers), count))
    if workload.publish_from == "anyone":
        return dict.fromkeys(topics, publishers)
    if all(mine is topics for mine in subscriptions):
        inside: dict[str, Sequence[int]] = dict.fromkeys(topics, publishers)
    else:
        members: dict[str, list[int]] = {topic: [] for topic in topics}
        for peer in publishers:
            for topic in subscriptions[peer]:
                members[topic].append(peer)
        inside = dict(members)
    if workload.publish_from == "subscribers":
        return {topic: inside[topic] or publishers for topic in topics}
    outside: dict[str, Sequence[int]] = {}
    for topic in topics:
        subscribed = dict.fromkeys(inside[topic])
        outside[topic] = [peer for peer in publishers if peer not in subscribed]
        if not outside[topic]:
            raise ConfigError(
                f"workload.publish_from: every publisher subscribes to {topic}, so that no "
                "outsider is left; lower subscriptions_per_peer, or use subscribers or anyone"
            )
    return outside


def _reddit_plan(scenario: Scenario, rng: random.Random) -> Plan:
    data = load_reddit()
    users = len(data.subscriptions)
    subscriptions = []
    for peer in range(scenario.peers):
        played = [peer % users] if scenario.peers >= users else range(peer, users, scenario.peers)
        merged = dict.fromkeys(
            itertools.chain.from_iterable(data.subscriptions[user] for user in played)
        )
        subscriptions.append(tuple(topic for topic in data.topics if topic in merged))
    times = _times(scenario.workload, scenario.workload_start, rng)
    publications = [
        PlannedPublish(at, event.user % scenario.peers, event.topic, len(event.data), event.data)
        for event, at in zip(data.events[: scenario.workload.limit], times, strict=False)
    ]
    return _plan(scenario, data.topics, subscriptions, publications)


@functools.cache
def load_reddit() -> RedditData:
    """Read the recorded workload, its events in the order of their number."""
    topics: list[str] = []
    subscriptions: dict[int, tuple[str, ...]] = {}
    events: dict[int, RedditEvent] = {}
    for line in shipped_bytes("reddit-2007-25k.jsonl.gz").splitlines():
        entry = msgspec.json.decode(line)
        if entry["type"] == "topic":
            topics.append(entry["name"])
            continue
        user = int(entry["node"].removeprefix("node-")) - 1
        subscriptions[user] = tuple(topic for topic in topics if topic in entry["subscriptions"])
        for event in entry["events"]:
            payload = msgspec.json.encode(event)
            events[event["internalId"]] = RedditEvent(user, event["topic"], payload)
    return RedditData(
        tuple(topics),
        tuple(subscriptions[user] for user in range(len(subscriptions))),
        tuple(events[number] for number in sorted(events)),
    )
