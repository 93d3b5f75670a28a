"""What the application thinks of an event: validators, one per topic.

A validator is a function or a coroutine function. Whatever it does, the node lives: one that
raises, or answers anything but accept, ignore or reject, has rejected the event, and is counted.
How many coroutines may run at a time is the protocol's limit (`max_pending_validations`).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Validated, Verdict
from rumormill.node.callbacks import Callbacks

TopicValidator: TypeAlias = Callable[[Event, PeerId], Verdict | Awaitable[Verdict]]
"""Judges an event of a topic, given the peer that brought it; it may be a coroutine function."""

_FINAL = (Verdict.ACCEPT, Verdict.IGNORE, Verdict.REJECT)


class Validators:
    """The validators of a node and the verdicts that are still awaited."""

    def __init__(self, answer: Callable[[Validated], None], callbacks: Callbacks) -> None:
        self._answer = answer
        self._callbacks = callbacks
        self._now: dict[Topic, TopicValidator] = {}
        self._later: dict[Topic, TopicValidator] = {}
        self._awaited: dict[asyncio.Task[None], None] = {}

    def set(self, topic: Topic, validator: TopicValidator | None) -> None:
        """Let a function judge the events of a topic; None removes it."""
        removed = (self._now.pop(topic, None), self._later.pop(topic, None))
        for old in removed:
            if old is not None:
                self._callbacks.forget(old)
        if validator is None:
            return
        call = type(validator).__call__
        later = inspect.iscoroutinefunction(validator) or inspect.iscoroutinefunction(call)
        (self._later if later else self._now)[topic] = validator

    def judge(self, event: Event, peer: PeerId) -> Verdict:
        """Give the verdict, or defer it to a coroutine."""
        validator = self._now.get(event.topic)
        if validator is None:
            return Verdict.DEFER if event.topic in self._later else Verdict.ACCEPT
        try:
            return self._checked(validator, validator(event, peer))
        except Exception as error:  # noqa: BLE001 (the application's own)
            return self._failed(validator, error)

    def begin(self, event: Event, peer: PeerId) -> None:
        """Await the verdict of a coroutine."""
        task = asyncio.ensure_future(self._judge_later(event, peer))
        self._awaited[task] = None
        task.add_done_callback(lambda done: self._awaited.pop(done, None))

    async def _judge_later(self, event: Event, peer: PeerId) -> None:
        validator = self._later.get(event.topic)
        verdict = Verdict.ACCEPT
        if validator is not None:
            try:
                judged = validator(event, peer)
                answer = await judged if inspect.isawaitable(judged) else judged
                verdict = self._checked(validator, answer)
            except Exception as error:  # noqa: BLE001 (as above)
                verdict = self._failed(validator, error)
        self._answer(Validated(event.id, verdict))

    def _checked(self, validator: TopicValidator, answer: object) -> Verdict:
        if isinstance(answer, Verdict) and answer in _FINAL:
            return answer
        return self._failed(validator, TypeError(f"a validator returned {answer!r}, no verdict"))

    def _failed(self, validator: TopicValidator, error: Exception) -> Verdict:
        self._callbacks.failed(validator, error, "the event is rejected")
        return Verdict.REJECT

    def close(self) -> None:
        """Give up the verdicts that are still awaited."""
        for task in list(self._awaited):
            task.cancel()
