"""What it costs two subscribers to find out where their histories differ, and what a trie costs.

    python bench/trie.py [--publications N] [--quick]

Two subscribers hold the same publications but for d of them, half missing here and half there. They
exchange the protocol's own messages, encoded, until their root hashes are equal; everything that
was sent is counted, the missing publications included ("sent", which is more than d where chains
that run at the same time find the same difference). Beside it stands what sending all
publications, or only all of their keys, would take. Then: the rates of the trie as ratios to
a plain dict with the same keys, in processor time and in turns, so that a busy machine matters
little.
"""

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from rumormill.core.effects import Append, ById, Effects, Load, Mail
from rumormill.core.event import Event
from rumormill.core.inputs import Loaded
from rumormill.overlay.patricia import PatriciaTrie
from rumormill.protocols.skipring.config import PublicationConfig
from rumormill.protocols.skipring.envelope import Author, Publication
from rumormill.protocols.skipring.messages import (
    CheckAndPublish,
    CheckTrie,
    PublishBundle,
    decode_letter,
    encode_letter,
)
from rumormill.protocols.skipring.publications import Publications
from rumormill.protocols.skipring.reads import Answer, Reads
from rumormill.sim.identity import SimulatedIdentity

TOPIC = "bench"
PAYLOAD = 256
"""Bytes of data in each publication."""


class Side:
    """One of the two subscribers, whose log is a table; it is its own ring, without neighbours."""

    def __init__(self, peer: bytes, publications: list[Publication]) -> None:
        self.peer = peer
        self.neighbours: dict[bytes, None] = {}
        self.table: dict[bytes, Event] = {}
        self.reads = Reads()
        config = PublicationConfig(flooding=False)
        identity, chance = SimulatedIdentity(peer), random.Random(peer)
        self.own = Publications(TOPIC, identity, config, chance, ring=self, reads=self.reads)
        self.own.whole = True
        for publication in publications:
            self.table[publication.id] = publication.to_event()
            self.own.trie.insert(publication.id)

    def begin(self, other: "Side") -> list[bytes]:
        """Begin a chain."""
        return self.do(lambda effects: self.own.check_neighbour([other.peer], effects))

    def do(self, action: Callable[[Effects], object]) -> list[bytes]:
        """Carry an action out; return the messages that it sends, encoded."""
        effects: Effects = []
        action(effects)
        letters = []
        for effect in effects:
            if isinstance(effect, Mail):
                letters.append(encode_letter(effect.message))  # type: ignore[arg-type]
            elif isinstance(effect, Append):
                self.table[effect.event.id] = effect.event
                self.own.stored(effect.event.id)
            elif isinstance(effect, Load) and isinstance(effect.query, ById):
                found = [self.table[key] for key in effect.query.ids]
                letters += self.send(Loaded(effect.number, tuple(found)))
        return letters

    def send(self, event: Loaded) -> list[bytes]:
        """Send what was read."""
        answer = self.reads.loaded(event, [])
        assert isinstance(answer, Answer)
        return self.do(lambda effects: self.own.send(answer, event, effects))


class Cost:
    """What an exchange took."""

    def __init__(self) -> None:
        self.messages = self.bytes = self.nodes = self.publications = self.rounds = 0
        self.bodies = 0
        """Bytes of the publications themselves."""

    def count(self, data: bytes) -> None:
        letter = decode_letter(data)
        self.messages += 1
        self.bytes += len(data)
        if isinstance(letter, CheckTrie | CheckAndPublish):
            self.nodes += len(letter.nodes)
        elif isinstance(letter, PublishBundle):
            self.publications += len(letter.publications)
            self.bodies += sum(each.size for each in letter.publications)


def reconcile(one: Side, other: Side) -> Cost:
    """Let the two take turns to begin until nothing differs any more."""
    cost = Cost()
    while one.own.root_hash != other.own.root_hash:
        cost.rounds += 1
        for starter, answerer in ((one, other), (other, one)):
            here, there = starter, answerer
            waiting = starter.begin(answerer)
            while waiting:
                answers = []
                for data in waiting:
                    cost.count(data)
                    letter = decode_letter(data)
                    answers += there.do(
                        lambda effects, here=here, there=there, letter=letter: there.own.receive(
                            here.peer, letter, effects
                        )
                    )
                waiting, here, there = answers, there, here
    return cost


def composed(count: int) -> list[Publication]:
    chance = random.Random(2)
    author = Author(SimulatedIdentity(b"author"))
    author.start(1.7e9)
    return [
        author.compose(TOPIC, chance.randbytes(PAYLOAD), 1.7e9 + number) for number in range(count)
    ]


def show_exchanges(publications: list[Publication], differing: list[int]) -> None:
    count = len(publications)
    everything = sum(publication.size + 4 for publication in publications)
    print(f"{count:,} publications of {PAYLOAD} bytes of data; all of them: {everything:,} bytes")
    print(
        f"{'d':>7}{'sent':>8}{'rounds':>8}{'messages':>10}{'nodes':>9}{'/(d log2 n)':>13}"
        f"{'bytes':>12}{'of all':>10}{'of all keys':>13}"
    )
    chance = random.Random(3)
    for d in differing:
        missing = {each.id for each in chance.sample(publications, d)}
        half = set(sorted(missing)[::2])
        one = Side(b"one", [each for each in publications if each.id not in half])
        other = Side(b"other", [each for each in publications if each.id not in missing - half])
        cost = reconcile(one, other)
        assert len(one.own.trie) == len(other.own.trie) == count
        per = cost.nodes / (d * math.log2(count)) if d else 0.0
        print(
            f"{d:>7,}{cost.publications:>8,}{cost.rounds:>8}{cost.messages:>10,}{cost.nodes:>9,}{per:>13.2f}"
            f"{cost.bytes:>12,}{cost.bytes / everything:>10.3%}{cost.bytes / (32 * count):>13.2%}"
        )


def microseconds(calls: dict[str, Callable[[], object]], count: int, rounds: int) -> dict[str, str]:
    """Median time of each call per item, in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append((time.process_time() - start) / count * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def show_rates(keys: list[bytes], rounds: int) -> None:
    def fill_dict() -> dict[bytes, None]:
        table: dict[bytes, None] = {}
        for key in keys:
            table[key] = None
        return table

    def fill_trie() -> PatriciaTrie:
        trie = PatriciaTrie()
        insert = trie.insert
        for key in keys:
            insert(key)
        return trie

    table, trie = fill_dict(), fill_trie()

    def look_up(held: dict[bytes, None] | PatriciaTrie) -> int:
        return sum([key in held for key in keys])

    found = microseconds(
        {
            "dict insert": fill_dict,
            "trie insert": fill_trie,
            "dict lookup": lambda: look_up(table),
            "trie lookup": lambda: look_up(trie),
            "hash": lambda: fill_trie().root_hash,
        },
        len(keys),
        rounds,
    )
    found["hash"] -= found["trie insert"]
    print(f"\n{'per key':24}{'trie µs':>10}{'dict µs':>10}{'ratio':>8}{'trie per s':>14}")
    for name in ("insert", "lookup"):
        mine, plain = found[f"trie {name}"], found[f"dict {name}"]
        print(f"{name:24}{mine:10.2f}{plain:10.2f}{mine / plain:8.1f}{1e6 / mine:14,.0f}")
    print(f"{'hashing all, from none':24}{found['hash']:10.2f}")
    fresh = [bytes((*key[:31], key[31] ^ 1)) for key in keys[:1000]]

    def insert_and_hash() -> None:
        for key in fresh:
            trie.insert(key)
            assert trie.root_hash

    assert trie.root_hash
    start = time.process_time()
    insert_and_hash()
    print(f"{'insert and root hash':24}{(time.process_time() - start) / len(fresh) * 1e6:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--publications", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the publications")
    chosen = parser.parse_args()
    count = chosen.publications // 10 if chosen.quick else chosen.publications
    publications = composed(count)
    differing = [d for d in (1, 10, 100, 1000) if d <= count // 10]
    show_exchanges(publications, differing)
    show_rates([publication.id for publication in publications], 3)


if __name__ == "__main__":
    main()
