"""Retention by itself: every minute, what is beyond a topic's rule is deleted from the log.

What was deleted does not come back: the log knows how far it has deleted, sync asks for nothing
before that, and what somebody brings all the same is not kept again.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Final

from rumormill.core.errors import ConfigError
from rumormill.core.ids import Topic
from rumormill.log.errors import StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.model import Retention

EVERY: Final = 60.0
"""Seconds between two looks; our choice: rules speak of hours and gigabytes."""

ALL_TOPICS: Final = ""
"""Stands for the topics that have no rule of their own."""

_log = logging.getLogger("rumormill.log")


def rules_of(retain: Retention | Mapping[Topic, Retention] | None) -> dict[Topic, Retention]:
    """The rules by topic, that of all others under `ALL_TOPICS`; checked."""
    if retain is None:
        return {}
    rules = {ALL_TOPICS: retain} if isinstance(retain, Retention) else dict(retain)
    for topic, rule in rules.items():
        if not isinstance(rule, Retention):
            raise ConfigError(
                f"retain: {rule!r} is not a Retention, such as Retention(max_events=1000)"
            )
        try:
            rule.validate()
        except ConfigError as error:
            raise ConfigError(f"retain {topic!r}: {error}" if topic else str(error)) from None
    return rules


def rule_for(rules: Mapping[Topic, Retention], topic: Topic) -> Retention | None:
    """The rule of a topic, if it has one."""
    return rules.get(topic) or rules.get(ALL_TOPICS)


def delete_what_is_beyond(log: EventLog, rules: Mapping[Topic, Retention]) -> dict[Topic, int]:
    """Apply the rules once; return how many events went, by topic."""
    found = {extent.name: rule_for(rules, extent.name) for extent in log.topics()}
    policies = {topic: rule for topic, rule in found.items() if rule is not None}
    deleted = log.retain(policies, time.time())
    return {topic: count for topic, count in deleted.items() if count}


async def keep_retaining(log: EventLog, rules: Mapping[Topic, Retention]) -> None:
    """Apply the rules now and every minute."""
    while rules:
        try:
            deleted = await asyncio.to_thread(delete_what_is_beyond, log, rules)
        except StoreError as error:
            _log.warning("nothing is deleted now: %s", error)
        else:
            for topic, count in deleted.items():
                _log.info("topic %r: %d events are beyond its rule and deleted", topic, count)
        await asyncio.sleep(EVERY)
