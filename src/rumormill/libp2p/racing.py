"""Several ways to one aim, begun one after another; the first that works ends the others.

A peer has several addresses, and from here some lead nowhere: each would hold a dial until its
timeout. So the next is tried when one has failed, or has not worked for a moment (RFC 8305, section
5, has the same for the two families of IP).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

HEAD_START: Final = 0.25
"""Seconds: RFC 8305's choice."""


async def race(
    ways: Iterable[Callable[[], Awaitable[T | str]]], head_start: float = HEAD_START
) -> T | list[str]:
    """Try ways until one works; one that does not says why, and if none does, all that is told."""
    waiting = list(ways)
    running: dict[asyncio.Future[T | str], None] = {}
    failures: list[str] = []
    try:
        while waiting or running:
            if waiting:
                running[asyncio.ensure_future(waiting.pop(0)())] = None
            done, _ = await asyncio.wait(
                running,
                timeout=head_start if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for way in done:
                del running[way]
                result = way.result()
                if not isinstance(result, str):
                    return result
                failures.append(result)
    finally:
        for way in running:
            way.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return failures


def why(error: BaseException) -> str:
    """Why a connection could not be made, for people."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
