"""`rumormill history --graph` and `history verify`: what stored events prove about each other.

Pulsarcast's events link to those before them; of a skip ring's, one hash stands for all.
"""

import argparse
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from rumormill.cli.grammar import DATA_LOSS, FAILURE, USAGE, CommandError
from rumormill.core.errors import DecodeError, LimitError
from rumormill.core.event import Event
from rumormill.node.identity import SignatureVerifier
from rumormill.overlay.patricia import PatriciaTrie
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format import dates
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.history.graph import (
    EventGraph,
    HistoryReport,
    HistoryVerifier,
    draw,
)
from rumormill.protocols.skipring import envelope
from rumormill.wire.keys import PeerId

_SHOWN_PAYLOAD: Final = 40
"""Characters of a payload beside an event: what is left of a line of 100."""

Batches = AsyncIterator[list[Event]]


async def draw_history(batches: Batches, *, whole: bool) -> int:
    """Print the graph of the events; `whole` says that they begin with the first one kept."""
    graph = EventGraph()
    labels: dict[bytes, str] = {}
    try:
        async for batch in batches:
            for event in batch:
                if graph.add_event(event):
                    labels[event.id] = _label(event)
        absent = "missing" if whole else "before what is shown"
        for line in draw(graph, lambda cid: labels.get(cid) or f"{_short(cid)} {absent}"):
            print(line)
    except LimitError as error:
        raise CommandError(f"{error}; choose fewer with --offset, --since or --count") from None
    return 0


def parse_name(topic: str) -> bytes | None:
    """The CID that a Pulsarcast topic's name is; None for any other name."""
    try:
        return cids.parse(topic)
    except DecodeError:
        return None


async def verify_history(
    batches: Batches,
    topic: bytes,
    descriptor: TopicDescriptor | None,
    options: argparse.Namespace,
) -> int:
    """Check every event of a topic, and print what was found.

    Who was allowed to publish is checked where the topic's descriptor is known.
    """
    verifier = HistoryVerifier(topic, SignatureVerifier(), descriptor)
    try:
        async for batch in batches:
            for event in batch:
                verifier.check(event)
    except LimitError as error:
        raise CommandError(str(error), FAILURE) from None
    report = verifier.report()
    if not report.events:
        raise CommandError(f"the log has no events of {cids.text(topic)}", FAILURE)
    if options.json:
        permissions = "unknown" if descriptor is None else "checked"
        print(json.dumps({**_report_json(topic, report), "permissions": permissions}))
    else:
        for line in _report_lines(report, descriptor):
            print(line)
    return 0 if report.is_whole else DATA_LOSS


async def verify_ring_history(batches: Batches, topic: str, options: argparse.Namespace) -> int:
    """Check every publication of a topic, and print how many there are and their root hash.

    Two homes with the same root hash have the same history, in whatever order it came.
    """
    trie = PatriciaTrie()
    verifier = SignatureVerifier()
    faults: list[int] = []
    others = 0
    async for batch in batches:
        for event in batch:
            if not envelope.is_publication(event):
                others += 1
            elif envelope.check_event(event, verifier):
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


def _short(cid: bytes) -> str:
    return cids.text(cid) if cids.is_cid(cid) else cid.hex()


def _label(event: Event) -> str:
    when = dates.iso_at(event.created if event.created is not None else event.received)
    author = str(PeerId(event.author))[-8:]
    text = event.data.decode("utf-8", "replace")
    shown = "".join(mark if mark.isprintable() else "·" for mark in text[:_SHOWN_PAYLOAD])
    return f"{_short(event.id)} {when} …{author} {shown}{'…' if len(text) > _SHOWN_PAYLOAD else ''}"


def _texts(found: Iterable[bytes]) -> list[str]:
    return [cids.text(cid) for cid in found]


def _report_json(topic: bytes, report: HistoryReport) -> dict[str, Any]:
    return {
        "topic": cids.text(topic),
        "events": report.events,
        "whole": report.is_whole,
        "chain": report.is_chain,
        "heads": _texts(report.heads),
        "roots": _texts(report.roots),
        "gaps": [
            {"cid": cids.text(gap.cid), "needed_by": _texts(gap.needed_by)} for gap in report.gaps
        ],
        "forks": [
            {
                "cid": None if fork.cid is None else cids.text(fork.cid),
                "children": _texts(fork.children),
            }
            for fork in report.forks
        ],
        "faults": [{"id": _short(fault.cid), "reason": fault.reason} for fault in report.faults],
        "unsigned": report.unsigned,
    }


def _report_lines(report: HistoryReport, descriptor: TopicDescriptor | None) -> list[str]:
    shape = "one chain" if report.is_chain else f"{len(report.forks)} forks"
    lines = [f"{report.events} events, {len(report.heads)} heads, {shape}"]
    lines += [f"head {text}" for text in _texts(report.heads)]
    for gap in report.gaps:
        lines.append(f"missing {cids.text(gap.cid)}, parent of {', '.join(_texts(gap.needed_by))}")
    lines += [f"bad {_short(fault.cid)}: {fault.reason}" for fault in report.faults]
    if report.unsigned:
        lines.append(f"{report.unsigned} events are unsigned: their authors cannot be checked")
    if descriptor is None:
        lines.append("the topic's descriptor is not known here: permissions were not checked")
    lines.append("whole" if report.is_whole else "not whole")
    return lines
