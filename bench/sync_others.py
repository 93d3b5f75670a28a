"""What the same differences cost otherwise: the skip ring's trie, and sending everything.

The trie is run as in `bench/trie.py`: the skip ring's own messages, encoded, between two tries of
which one lacks something; publications are counted apart. It is keyed by hashes, so a stretch of
time is as scattered in it as anything.
"""

import random
import time

from trie import Side, composed, reconcile


def bench_others(events: int) -> None:
    """All differences in turn."""
    publications = composed(events)
    everything = sum(each.size + 4 for each in publications)
    print(f"the skip ring's trie, {events:,} publications, bytes without them")
    print(f"  {'':24}{'bytes':>12}{'messages':>10}{'both, ms':>10}")
    chance = random.Random(1)
    other = Side(b"other", publications)
    assert other.own.root_hash  # hashed once, as a log's sums are
    for missing in (0, 1, min(1000, events // 20), events // 10):
        lacking = {each.id for each in chance.sample(publications, missing)}
        one = Side(b"one", [each for each in publications if each.id not in lacking])
        assert one.own.root_hash
        began = time.process_time()
        cost = reconcile(one, other)
        spent = time.process_time() - began
        print(
            f"  {f'{missing:,} missing':24}{cost.bytes - cost.bodies:12,}{cost.messages:10,}"
            f"{1000 * spent:10.1f}",
            flush=True,
        )
        assert one.own.root_hash == other.own.root_hash
    print(f"  {'everything, for nothing':24}{everything:12,}")
