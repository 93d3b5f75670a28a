"""Plans: who subscribes, who publishes what and when, with sums that can be checked."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.core.errors import ConfigError
from rumormill.sim.scenario import Scenario, Workload
from rumormill.sim.workload import Plan, build_plan, load_reddit


def planned(workload: Workload, peers: int = 100, seed: int = 1, **rest: float) -> Plan:
    scenario = Scenario(peers=peers, workload=workload, **rest)
    scenario.validate()
    return build_plan(scenario, random.Random(seed))


@given(
    st.sampled_from(["fixed", "poisson", "zipf"]),
    st.integers(2, 40),
    st.integers(1, 12),
    st.integers(0, 60),
    st.sampled_from(["subscribers", "anyone"]),
    st.one_of(st.just(1.0), st.integers(1, 2), st.floats(0.01, 1.0)),
    st.data(),
)
def test_plans_are_complete_and_ordered(
    kind: str,
    peers: int,
    topics: int,
    messages: int,
    publish_from: str,
    publishers: float,
    data: st.DataObject,
) -> None:
    """All messages are planned in order of time; all names and numbers exist; sums agree."""
    wanted = data.draw(st.one_of(st.none(), st.integers(0, topics)))
    workload = Workload(
        kind=kind,
        topics=topics,
        messages=messages,
        publish_from=publish_from,
        publishers=publishers,
        subscriptions_per_peer=wanted,
    )
    plan = planned(workload, peers)
    assert len(plan.publications) == messages
    assert len(plan.subscriptions) == peers
    assert all(len(mine) == len(set(mine)) for mine in plan.subscriptions)
    per_peer = topics if wanted is None else wanted
    assert {len(mine) for mine in plan.subscriptions} == {per_peer}
    times = [event.at for event in plan.publications]
    assert times == sorted(times)
    assert plan.start <= min(times, default=plan.start)
    assert plan.end == plan.last_publication + 10.0
    assert {event.topic for event in plan.publications} <= set(plan.topics)
    assert all(0 <= event.publisher < peers for event in plan.publications)
    most = publishers if isinstance(publishers, int) else max(1, round(publishers * peers))
    assert len({event.publisher for event in plan.publications}) <= most
    assert plan == planned(workload, peers)


def deliveries(plan: Plan, *, own: bool = False) -> int:
    """Pairs of a publication and a subscriber; a publisher's own copy counts with `own`."""
    subscribers = Counter(topic for mine in plan.subscriptions for topic in mine)
    return sum(
        subscribers[event.topic] - (not own and event.topic in plan.subscriptions[event.publisher])
        for event in plan.publications
    )


def test_the_default_plan_expects_every_message_at_all_others() -> None:
    """60 messages to 99 others each."""
    plan = planned(Workload())
    assert deliveries(plan) == 60 * 99
    assert plan.topics == ("topic-0",)


def test_fixed_rate_is_equally_spaced_and_takes_topics_in_turn() -> None:
    """Ten per second start with the workload, a tenth of a second apart."""
    plan = planned(Workload(topics=3, messages=7, rate=10.0), warm_up=5.0, join_interval=0.0)
    assert [event.at for event in plan.publications] == [5.0 + place / 10 for place in range(7)]
    assert [event.topic[-1] for event in plan.publications] == list("0120120")


def test_a_burst_is_published_at_once() -> None:
    """The rate stays what it is: bursts of three, ten messages a second, 0.3 s apart."""
    plan = planned(
        Workload(messages=7, rate=10.0, burst=3), warm_up=0.0, join_interval=0.0, peers=2
    )
    assert [event.at for event in plan.publications] == pytest.approx([0.0] * 3 + [0.3] * 3 + [0.6])
    drawn = planned(Workload(kind="poisson", messages=6000, rate=10.0, burst=3), peers=2)
    times = [event.at for event in drawn.publications]
    assert times[0::3] == times[1::3] == times[2::3]
    assert times[-1] - times[0] == pytest.approx(600, rel=0.1)


def test_poisson_arrivals_have_the_rate_and_the_spread() -> None:
    """Gaps have mean 1 / rate and, being exponential, the same deviation."""
    plan = planned(Workload(kind="poisson", messages=20_000, rate=4.0), peers=2)
    gaps = [later.at - sooner.at for sooner, later in pairwise(plan.publications)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.25, rel=0.03)
    assert spread == pytest.approx(0.25, rel=0.05)


def test_zipf_topics_fall_with_their_rank() -> None:
    """With exponent 1, topic r gets 1 / r of what the first gets: publications and subscribers."""
    plan = planned(Workload(kind="zipf", topics=5, messages=20_000), peers=2)
    count = Counter(event.topic for event in plan.publications)
    for rank in range(1, 5):
        ratio = count["topic-0"] / count[f"topic-{rank}"]
        assert ratio == pytest.approx(rank + 1, rel=0.1)
    one_each = planned(
        Workload(kind="zipf", topics=5, messages=0, subscriptions_per_peer=1), peers=10_000
    )
    members = Counter(mine[0] for mine in one_each.subscriptions)
    for rank in range(1, 5):
        ratio = members["topic-0"] / members[f"topic-{rank}"]
        assert ratio == pytest.approx(rank + 1, rel=0.1)


def test_zipf_arrivals_may_be_fixed() -> None:
    """The arrival process is chosen apart from the topics."""
    plan = planned(
        Workload(kind="zipf", messages=5, arrivals="fixed", rate=2.0), warm_up=0.0, join_interval=0
    )
    assert [event.at for event in plan.publications] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_publishers_may_be_subscribers_or_outsiders() -> None:
    """Subscribers publish in their own topics, outsiders never do."""
    inside = Workload(kind="poisson", topics=4, messages=200, subscriptions_per_peer=2)
    plan = planned(inside)
    assert all(event.topic in plan.subscriptions[event.publisher] for event in plan.publications)
    outside = msgspec.structs.replace(inside, publish_from="outsiders")
    plan = planned(outside)
    assert not any(
        event.topic in plan.subscriptions[event.publisher] for event in plan.publications
    )
    with pytest.raises(ConfigError, match=r"workload\.publish_from: every publisher subscribes to"):
        planned(msgspec.structs.replace(outside, subscriptions_per_peer=None))


def test_reddit_has_the_counted_sizes() -> None:
    """17,611 events, 23 topics, 762 subscriptions, payloads of 70 to 83 bytes, 79.0 on average."""
    data = load_reddit()
    assert (len(data.events), len(data.topics), len(data.subscriptions)) == (17_611, 23, 100)
    assert sum(map(len, data.subscriptions)) == 762
    assert {len(mine) for mine in data.subscriptions} == set(range(5, 12))
    sizes = [len(event.data) for event in data.events]
    assert (min(sizes), max(sizes)) == (70, 83)
    assert round(sum(sizes) / len(sizes), 1) == 79.0
    per_user = Counter(event.user for event in data.events)
    assert (min(per_user.values()), max(per_user.values())) == (137, 235)
    per_topic = Counter(event.topic for event in data.events)
    assert [per_topic[name] for name in ("reddit.com", "politics", "es")] == [10_559, 3_195, 1]


def test_reddit_plan_expects_the_counted_deliveries() -> None:
    """On 100 peers: 1,734,851 with the publishers' own copies, 1,717,240 without."""
    plan = planned(Workload(kind="reddit2007", rate=100.0))
    assert deliveries(plan, own=True) == 1_734_851
    assert deliveries(plan) == 1_717_240
    numbers = [json.loads(event.data or b"")["internalId"] for event in plan.publications]
    assert numbers == list(range(17_611))
    assert all(event.size == len(event.data or b"") for event in plan.publications)


def test_reddit_plan_may_be_cut() -> None:
    """A limit plays the first events only."""
    plan = planned(Workload(kind="reddit2007", limit=10))
    assert [event.data for event in plan.publications] == [
        event.data for event in load_reddit().events[:10]
    ]


def test_reddit_on_more_peers_repeats_the_subscribers() -> None:
    """On 200 peers each topic has twice the subscribers and the same events."""
    workload = Workload(kind="reddit2007")
    exact, double = planned(workload), planned(workload, peers=200)
    assert double.subscriptions == exact.subscriptions * 2
    assert max(event.publisher for event in double.publications) == 99
    assert deliveries(double, own=True) == 2 * 1_734_851


def test_reddit_on_fewer_peers_folds_the_users() -> None:
    """On 30 peers, peer 5 is users 5, 35, 65 and 95; every publisher still subscribes."""
    plan = planned(Workload(kind="reddit2007"), peers=30)
    data = load_reddit()
    united = {topic for user in (5, 35, 65, 95) for topic in data.subscriptions[user]}
    assert set(plan.subscriptions[5]) == united
    assert all(event.topic in plan.subscriptions[event.publisher] for event in plan.publications)
    assert [event.publisher for event in plan.publications] == [
        event.user % 30 for event in data.events
    ]


FINGERPRINT = """
import hashlib, random
from rumormill.sim.faults import expand_faults
from rumormill.sim.latency import build_bandwidth, parse_latency
from rumormill.sim.churn import Churn
from rumormill.sim.scenario import Fault, Scenario, Topology, Workload
from rumormill.sim.topology import build_topology
from rumormill.sim.workload import build_plan

rng = random.Random(42)
digest = hashlib.sha256()
load = Workload(kind="zipf", topics=20, subscriptions_per_peer=5, messages=300, publishers=0.5)
faults = (Fault(kind="partition", at=1.0, groups=3, duration=2.0),
          Fault(kind="crash", at=2.0, fraction=0.2, duration=3.0))
scenario = Scenario(peers=200, workload=load, churn=Churn(rate=60.0, downtime=5.0), faults=faults)
for kind in ("random-regular", "ring-random", "complete"):
    digest.update(repr(build_topology(Topology(kind=kind, degree=7), 200, rng)).encode())
for spec in ("uniform:1ms-9ms", "normal:9ms,1ms", "regions", "planetlab"):
    model = parse_latency(spec, 200, rng)
    digest.update(repr([model(a, 199 - a) for a in range(200)]).encode())
digest.update(repr(build_bandwidth("regions", 200, rng)).encode())
plan = build_plan(scenario, rng)
digest.update(repr(plan).encode())
digest.update(repr(expand_faults(scenario, plan, rng)).encode())
reddit = Scenario(workload=Workload(kind="reddit2007", limit=500))
digest.update(repr(build_plan(reddit, rng)).encode())
digest.update(repr(scenario.to_dict()).encode())
print(digest.hexdigest())
"""


def test_everything_is_the_same_under_any_hash_seed() -> None:
    """Two processes with different hash seeds draw the same networks, plans and faults."""
    prints = [
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "4242")
    ]
    assert len(prints[0].strip()) == 64
    assert prints[0] == prints[1]
