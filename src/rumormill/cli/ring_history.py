"""`rumormill history verify` of a skip ring's topic: names, signatures, and the hash over all."""

import argparse
import json
from collections.abc import AsyncIterator

from rumormill.cli.grammar import DATA_LOSS, USAGE, CommandError
from rumormill.core.event import Event
from rumormill.node.identity import SignatureVerifier
from rumormill.overlay.patricia import PatriciaTrie
from rumormill.protocols.skipring.envelope import check_event, is_publication


async def verify_ring_history(
    batches: AsyncIterator[list[Event]], topic: str, options: argparse.Namespace
) -> int:
    """Check every publication of a topic, and print how many there are and their root hash.

    Two homes with the same root hash have the same history, in whatever order it came.
    """
    trie = PatriciaTrie()
    verifier = SignatureVerifier()
    faults: list[int] = []
    others = 0
    async for batch in batches:
        for event in batch:
            if not is_publication(event):
                others += 1
            elif check_event(event, verifier):
                trie.insert(event.id)
            else:
                faults.append(event.offset)
    if not len(trie) and not faults:
        raise CommandError(
            f"{topic[:60]} is not a Pulsarcast topic, whose name is a CID such as zdpu…, and the"
            " log has no publications of a skip ring in it",
            USAGE,
        )
    root = trie.root_hash.hex()
    if options.json:
        shown = {
            "topic": topic,
            "publications": len(trie),
            "root_hash": root,
            "faults": faults,
            "others": others,
        }
        print(json.dumps(shown))
    else:
        print(f"{len(trie)} publications, root hash {root}")
        for offset in faults:
            print(f"offset {offset}: not signed by its author")
        if others:
            print(f"{others} events of other protocols were passed over")
    return DATA_LOSS if faults else 0
