"""Subscription filters: which topics count, and how many."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumormill.protocols.pubsub.messages import SubOpts
from rumormill.protocols.pubsub.subscription_filter import (
    SubscriptionLimit,
    TopicAllowList,
    TopicPattern,
)

YES = [SubOpts(True, "test1"), SubOpts(True, "test2"), SubOpts(True, "test3")]


@pytest.mark.parametrize(
    "wanted",
    [
        TopicAllowList(["test1", "test2"]),
        TopicPattern("test[12]"),
        TopicPattern(re.compile("test[12]")),
    ],
)
def test_basic_subscription_filter(wanted):
    """A list and a pattern let their topics through; a limit refuses an RPC with too many."""
    assert [wanted.allows(sub.topic) for sub in YES] == [True, True, False]
    assert wanted.filter(YES) == YES[:2]
    limit = SubscriptionLimit(wanted, 2)
    assert limit.filter(YES) == []
    assert limit.refused == 1
    assert limit.filter(YES[1:]) == YES[1:2]
    assert limit.refused == 1
    assert [limit.allows(sub.topic) for sub in YES] == [True, True, False]


def test_subscription_filter_deduplication():
    """Repetitions count once; a subscription and its end cancel out."""
    subs = [
        SubOpts(True, "test1"),
        SubOpts(True, "test1"),
        SubOpts(True, "test2"),
        SubOpts(False, "test2"),
        SubOpts(True, "test3"),
    ]
    assert TopicAllowList(["test1", "test2"]).filter(subs) == [SubOpts(True, "test1")]


def test_a_pattern_matches_the_whole_topic():
    """A forgotten anchor opens no door, and an overlong topic is not even read."""
    wanted = TopicPattern("test.*")
    assert wanted.allows("test1")
    assert not wanted.allows("xtest1")
    assert not wanted.allows("test" + "x" * 1024)


@given(st.lists(st.builds(SubOpts, st.booleans(), st.sampled_from(["a", "b", "c", "d"]))))
def test_each_topic_comes_out_at_most_once_and_in_order(subs):
    """Whatever an RPC repeats, one decision per topic is left, and none for other topics."""
    heeded = TopicAllowList(["a", "b", "c"]).filter(subs)
    topics = [sub.topic for sub in heeded]
    assert len(topics) == len(dict.fromkeys(topics))
    assert "d" not in topics
    assert all(sub in subs for sub in heeded)
