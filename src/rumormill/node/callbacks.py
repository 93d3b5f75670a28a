"""The application's own functions inside a node: it lives, whatever they do.

A function that raises, or answers with something else than it should, has given the most careful
answer there is: the default id, no opinion, no interest, a rejected event. That is counted, and
logged once.

Validators judge the events of a topic each, behind the topic's keys and policy; they are functions
or coroutine functions. How many coroutines may run at a time is the protocol's limit
(`max_pending_validations`).
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from rumormill.core.errors import LocalError
from rumormill.core.event import Event
from rumormill.core.ids import PeerId, Topic
from rumormill.core.inputs import Validated, Verdict
from rumormill.node.topic_access import TopicAccess
from rumormill.protocols.registry import Hooks, ProtocolSpec

_log = logging.getLogger(__name__)


TopicValidator: TypeAlias = Callable[[Event, PeerId], Verdict | Awaitable[Verdict]]
"""Judges an event of a topic, given the peer that brought it; it may be a coroutine function."""


def _id(answer: object) -> bytes:
    if isinstance(answer, bytes):
        return answer
    raise TypeError(f"message_id returned {answer!r}, not bytes")


_READERS: Final[dict[str, tuple[Callable[[Any], object], object, str]]] = {
    "message_id": (_id, b"", "the message has its default id"),
    "application_score": (float, 0.0, "the peer's score is 0"),
    "subscription_filter": (bool, False, "the topic is refused"),
    "peer_filter": (bool, False, "the peer is refused"),
}
"""How the answers of functions are read, and what counts instead where one fails."""


class Callbacks:
    """The functions that an application gave, and how often they and its validators failed."""

    def __init__(self, *functions: Callable[..., object] | None) -> None:
        """Take the functions in the order of `_READERS`, None where there is none."""
        self.failures = 0
        self._functions = dict(zip(_READERS, functions, strict=True))
        self._complained: dict[Callable[..., object], None] = {}

    def hooks(self, spec: ProtocolSpec, **others: Any) -> Hooks:
        """The functions for a protocol's machine, and what else it gets."""
        for name, function in self._functions.items():
            if function is not None:
                if name not in spec.takes:
                    raise LocalError(f"{name}: {spec.name} has no use for it")
                others[name] = self._guarded(function, *_READERS[name])
        return Hooks(**others)

    def _guarded(
        self,
        function: Callable[..., object],
        read: Callable[[Any], object],
        otherwise: object,
        so: str,
    ) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            try:
                return read(function(*arguments))
            except Exception as error:  # noqa: BLE001 (the application's own)
                self.failed(function, error, so)
                return otherwise

        return call

    def failed(self, function: Callable[..., object], error: Exception, so: str) -> None:
        """Count a failure; log the first of each function, so that peers cannot fill the log."""
        self.failures += 1
        if function not in self._complained:
            self._complained[function] = None
            _log.error("a function of the application failed: %s", so, exc_info=error)

    def forget(self, function: Callable[..., object]) -> None:
        """A function is used no longer."""
        self._complained.pop(function, None)


class Validators:
    """The validators of a node and the verdicts that are still awaited."""

    def __init__(self, callbacks: Callbacks, access: TopicAccess) -> None:
        self.answer: Callable[[Validated], None] = lambda _: None
        """Takes a verdict that was awaited."""
        self._callbacks = callbacks
        self._access = access
        self._now: dict[Topic, TopicValidator] = {}
        self._later: dict[Topic, TopicValidator] = {}
        self._awaited: dict[asyncio.Task[None], None] = {}

    def set(self, topic: Topic, validator: TopicValidator | None) -> None:
        """Let a function judge the events of a topic; None removes it."""
        if validator is not None and not callable(validator):
            raise LocalError(
                f"validator: give a function of an event and a peer, or None, not {validator!r}"
            )
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
        if not self._access.admits(event, peer):
            return Verdict.REJECT
        validator = self._now.get(event.topic)
        if validator is None:
            return Verdict.DEFER if event.topic in self._later else Verdict.ACCEPT
        try:
            return self._checked(validator, validator(self._access.shown(event), peer))
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
                judged = validator(self._access.shown(event), peer)
                answer = await judged if inspect.isawaitable(judged) else judged
                verdict = self._checked(validator, answer)
            except Exception as error:  # noqa: BLE001 (as above)
                verdict = self._failed(validator, error)
        self.answer(Validated(event.id, verdict))

    def _checked(self, validator: TopicValidator, answer: object) -> Verdict:
        if isinstance(answer, Verdict) and answer is not Verdict.DEFER:
            return answer
        told = f"a validator returned {answer!r}: give back Verdict.ACCEPT, REJECT or IGNORE"
        return self._failed(validator, TypeError(told))

    def _failed(self, validator: TopicValidator, error: Exception) -> Verdict:
        self._callbacks.failed(validator, error, "the event is rejected")
        return Verdict.REJECT

    def close(self) -> None:
        """Give up the verdicts that are still awaited."""
        for task in list(self._awaited):
            task.cancel()
