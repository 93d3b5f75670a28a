"""The program whose disk fails and whose power is cut: it opens a log, says what is in it, appends.

Arguments: the store's directory, a word that no other life of it uses, a seed, how many appends,
and how it ends (`close` or `die`). The same arguments make the same calls in the same order. A line
on stdout is written after the fact that it states:

    refused TEXT            the log says that it is damaged
    unopened TYPE TEXT      it could not be opened for another reason
    unread TYPE TEXT        it could not be read
    has TOPIC OFFSET ID     an event that was there when it was opened
    ready
    kept TOPIC OFFSET ID    the receipt of an append
    failed TYPE TEXT        an append failed; after a full disk the program goes on
    counts JSON             the writer's counters, in the end
    closed
"""

import contextlib
import os
import random
import signal
import sys

import msgspec

from rumormill.core.event import Event
from rumormill.log import CorruptLogError, DiskFullError, EventLog, StoreConfig, StoreError

TOPICS = ("news", "weather")
CONFIG = StoreConfig(checkpoint_pages=40, heads_sync_commits=4)


def say(*words: object) -> None:
    """Write one line at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def opened(home: str) -> EventLog:
    """The log; the program ends where there is none to be had."""
    try:
        return EventLog(home, CONFIG)
    except CorruptLogError as error:
        say("refused", error)
    except StoreError as error:
        say("unopened", type(error).__name__, error)
    sys.exit(0)


def append(log: EventLog, word: str, number: int, rng: random.Random) -> bool:
    """Append a few events; return whether the log still works."""
    events = [
        Event(
            rng.choice(TOPICS),
            rng.randbytes(rng.choice((10, 1000, 20_000))),
            b"author",
            f"{word}.{number}.{place}".encode(),
            received=float(number),
        )
        for place in range(rng.randint(1, 3))
    ]
    try:
        results = log.append(events).result()
    except StoreError as error:
        say("failed", type(error).__name__, error)
        return isinstance(error, DiskFullError)
    for event, result in zip(events, results, strict=True):
        say("kept", event.topic, result.offset, event.id.decode())
    return True


def main() -> None:
    """Live once."""
    home, word, seed, count, end = sys.argv[1:]
    rng = random.Random(f"{seed} {word}")
    log = opened(home)
    try:
        if not log.verify().ok:
            say("refused", log.verify().findings)
        for info in log.topics():
            for chunk in log.chunks(info.name):
                for event in chunk:
                    say("has", info.name, event.offset, event.id.decode())
    except StoreError as error:
        say("unread", type(error).__name__, error)
        sys.exit(0)
    say("ready")
    reading = contextlib.ExitStack()
    for number in range(int(count)):
        if not append(log, word, number, rng):
            break
        if rng.random() < 0.2:  # a reader that stays makes the next checkpoint stop half-way
            reading.close()
            with contextlib.suppress(StoreError):
                reading.enter_context(log.snapshot())
        elif rng.random() < 0.3:
            reading.close()
        if rng.random() < 0.3:
            with contextlib.suppress(StoreError), log.histories():
                pass  # they are indexed now
    reading.close()
    say("counts", msgspec.json.encode(log.counters, enc_hook=lambda times: times.count).decode())
    if end == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    log.close()
    say("closed")


if __name__ == "__main__":
    main()
