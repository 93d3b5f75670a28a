"""Pulsarcast between real nodes: kill -9 of a topic's root and of others; nothing is lost.

Twenty nodes on the loopback, most of them several to a process. Every event that a survivor got a
receipt for is at every survivor, once: as its application was given it while the nodes run, and in
its log when they have ended, where the links show that nothing is missing before anything.
"""

import time
from functools import partial
from pathlib import Path

from processes import PATIENCE, Group, ask_all
from rumormill.log import EventLog
from rumormill.log.notes import note_keys, read_note
from rumormill.node.identity import SignatureVerifier
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.history.graph import HistoryVerifier
from rumormill.protocols.pulsarcast.tree.known_topics import NOTES, view_of_kept

SCRIPT = Path(__file__).with_name("pulsar_nodes.py")
GROUPS = 4
"""Processes beside the root's and the bystander's, whom everybody joins by."""


def wait_until_all_have(groups: list[Group], topic: str, wanted: set[str]) -> None:
    """Wait until every node's application was given what is wanted; nothing comes twice."""
    deadline = time.monotonic() + PATIENCE
    while True:
        given = ask_all(groups, f"look {topic}")
        for events in given:
            assert len(events) == len(set(events)), "given once"
        lacking = [len(wanted - set(events)) for events in given]
        if not any(lacking):
            return
        assert time.monotonic() < deadline, f"the nodes lack {lacking} of {len(wanted)} events"
        time.sleep(0.1)


def check_log(home: Path, topic: str, wanted: set[str]) -> None:
    """A home's log has the events, each verified, and none is missing before another."""
    with EventLog(home) as log:
        keys = note_keys(log, NOTES)
        view = view_of_kept(partial(read_note, log), keys, cids.parse(topic))
        assert view is not None
        kept = log.read(topic, 0, 10_000)
        verifier = HistoryVerifier(view.topic.cid, SignatureVerifier(), view.topic)
        for event in kept:
            verifier.check(event)
    report = verifier.report()
    assert wanted <= {event.id.hex() for event in kept}
    assert report.is_whole, report


def test_nothing_is_lost_with_the_root(tmp_path: Path) -> None:
    """Create, subscribe, publish from all, kill the root and four others, go on, come back."""
    processes: list[Group] = []

    def start(ticket: str, *names: str) -> Group:
        process = Group(SCRIPT, list(names), [str(tmp_path), ticket])
        processes.append(process)
        return process

    try:
        bystander = start("", "bystander")
        (ticket,) = bystander.answer()
        names = [[f"node-{group}-{n}" for n in range(5 - group % 2)] for group in range(GROUPS)]
        root = start(ticket, "root")
        groups = [start(ticket, *group) for group in names]
        for process in (root, *groups):
            process.answer()
        everybody = [bystander, root, *groups]
        assert sum(len(process.names) for process in everybody) == 20

        (topic,) = ask_all([root], "create news")
        ask_all(everybody, f"subscribe {topic}")
        published = {*ask_all(everybody, f"publish {topic} first")}
        published |= {*ask_all(everybody, f"publish {topic} second")}
        wait_until_all_have(everybody, topic, published)

        known = set(published)
        victims, survivors = [root, groups[-1]], [bystander, *groups[:-1]]
        for process in victims:
            process.kill()
        for text in ("third", "fourth", "fifth"):
            published |= {*ask_all(survivors, f"publish {topic} {text}")}
        wait_until_all_have(survivors, topic, published)

        root = start(ticket, "root")
        root.answer()
        ask_all([root], f"subscribe {topic}")
        published |= {*ask_all([*survivors, root], f"publish {topic} sixth")}
        wait_until_all_have(survivors, topic, published)
        wait_until_all_have([root], topic, published - known)
        for process in (*survivors, root):
            assert process.close() == 0
    finally:
        for process in processes:
            process.end()
    for process in (*survivors, root):
        for name in process.names:
            check_log(tmp_path / name, topic, published)
