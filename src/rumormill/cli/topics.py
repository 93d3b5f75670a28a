"""`rumormill topics`: list them, create one, show what is known of one, draw what lies below it.

A topic that is created belongs to the home's identity, so it is made by the node that runs in the
home, or by one that runs in it for as long as that takes. What a home knows of its topics is in its
log, so that it can be shown without a node.
"""

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from rumormill.cli.grammar import FAILURE, USAGE, CommandError
from rumormill.cli.logs import begin
from rumormill.cli.printing import plain
from rumormill.cli.session import open_session, run_async, running_node
from rumormill.cli.settings import Resolved
from rumormill.core.api import TopicOptions, TopicTree
from rumormill.core.errors import LocalError
from rumormill.daemon.control_messages import TopicList
from rumormill.daemon.control_service import NodeService, Service, list_topics
from rumormill.log.errors import StoreError
from rumormill.log.event_log import EventLog
from rumormill.log.notes import note_keys, read_note
from rumormill.node.topics import topic_options
from rumormill.protocols.pulsarcast.commands import TopicView, cid_of
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.descriptors import TopicDescriptor
from rumormill.protocols.pulsarcast.format.readable import readable_view, topic_from_readable
from rumormill.protocols.pulsarcast.tree.known_topics import NOTES, view_of_kept
from rumormill.protocols.pulsarcast.tree.sub_topics import tree_of
from rumormill.wire.keys import PeerId

_Found = TypeVar("_Found")
_FOR_CREATE: Final = {
    "allow": "--allow",
    "request_to_publish": "--[no-]request-to-publish",
    "requester": "--requester",
    "linking": "--linking",
    "sub_topics": "--sub-topic",
    "parent": "--parent",
}


def run_topics(options: argparse.Namespace) -> int:
    """Do what was typed behind `topics`."""
    resolved = begin(options)
    action, subject = options.action or "list", options.subject
    if action != "create":
        for key, flag in _FOR_CREATE.items():
            if getattr(options, key) is not None:
                raise CommandError(f"{flag} belongs to `topics create`", USAGE)
    if action == "list":
        if subject is not None:
            raise CommandError(f"topics list takes no {subject!r}; did you mean show?", USAGE)
        return run_async(_list(resolved, as_json=options.json))
    if subject is None:
        wanted = "the name of the new topic" if action == "create" else "the CID of a topic"
        raise CommandError(f"topics {action} needs {wanted}", USAGE)
    resolved.check_topic(subject)
    if action == "create":
        wishes = _wishes(options)
        return run_async(_create(resolved, subject, wishes, as_json=options.json))
    if action == "tree":
        return run_async(_tree(resolved, subject, as_json=options.json))
    return run_async(_show(resolved, subject, as_json=options.json))


async def _list(resolved: Resolved, *, as_json: bool) -> int:
    found: TopicList
    async with running_node(resolved) as client:
        if client is not None:
            found = await client.topics()
        else:
            with EventLog(resolved.home, read_only=True) as log:
                found = list_topics(log.topics(), None)
    for line in found.topics:
        if as_json:
            print(msgspec.json.encode(line).decode())
        else:
            events = line.next_offset - line.first_offset
            print(f"{plain(line.name)}\t{events} events\t{line.size} bytes\t{line.peers} peers")
    if found.left_out:
        raise CommandError(f"{found.left_out} more topics are not shown", FAILURE)
    return 0


# Creating.


def _wishes(options: argparse.Namespace) -> TopicOptions:
    """Read the options of a new topic; a mistake names the flag."""
    asks: Any = options.request_to_publish
    if options.requester is not None:
        if asks is False:
            raise CommandError("--requester and --no-request-to-publish contradict", USAGE)
        asks = options.requester
    sub_topics = {}
    for typed in options.sub_topics or ():
        name, equals, cid = typed.partition("=")
        if not equals or not name or not cid:
            raise CommandError(f"--sub-topic {typed!r} is not of the form NAME=CID", USAGE)
        if name in sub_topics:
            raise CommandError(f"--sub-topic {name} is given twice", USAGE)
        sub_topics[name] = cid
    try:
        return topic_options(options.allow, asks, options.linking, sub_topics, options.parent)
    except LocalError as error:
        raise CommandError(_by_flag(str(error)), USAGE) from None


def _by_flag(sentence: str) -> str:
    """A sentence that begins with an option's name in Python, with the flag's name instead."""
    key, colon, rest = sentence.partition(": ")
    flags = {"allowed_publishers": "--allow", "request_to_publish": "--requester"}
    return f"{flags.get(key, f'--{key}')}{colon}{rest}"


async def _create(resolved: Resolved, name: str, wishes: TopicOptions, *, as_json: bool) -> int:
    async with _home_service(resolved) as service:
        topic = await service.create_topic(name, wishes)
        protocol = (await service.welcome()).protocol
    if as_json:
        print(json.dumps({"topic": topic, "name": name, "protocol": protocol}))
    else:
        print(topic)
    return 0


@contextlib.asynccontextmanager
async def _home_service(resolved: Resolved) -> AsyncIterator[Service]:
    """The node that runs in the home, or one that runs in it until the command is done."""
    from rumormill.protocols.registry import protocol

    async with running_node(resolved, joins=True) as client:
        if client is not None:
            yield client
            return
    chosen = resolved.text("protocol")
    if protocol(chosen).topics is None:
        raise CommandError(
            f"topics of {chosen} need no creating: they exist where nodes join them; choose"
            " --protocol pulsarcast, or start a node with --topic",
            USAGE,
        )
    async with resolved.node(resolved.home) as node:
        for ticket in resolved.texts("join"):
            await node.connect(ticket)
        yield NodeService(node, chosen)


# Showing.


async def _show(resolved: Resolved, topic: str, *, as_json: bool) -> int:
    shown = await _known(resolved, topic, readable_view, lambda service: service.show_topic)
    if as_json:
        print(json.dumps(shown, ensure_ascii=False))
    else:
        for line in _lines(shown):
            print(line)
    return 0


async def _tree(resolved: Resolved, topic: str, *, as_json: bool) -> int:
    def kept(view: TopicView) -> TopicTree:
        def get(cid: bytes) -> TopicDescriptor | None:
            found = _kept_view(resolved, cid)
            return None if found is None else found.topic

        return tree_of(view.topic, get)

    tree = await _known(resolved, topic, kept, lambda service: service.show_tree)
    if as_json:
        print(json.dumps(_tree_json(tree), ensure_ascii=False))
    else:
        for line in _drawn(tree):
            print(plain(line))
    if tree.cut:
        raise CommandError("there are more sub-topics than are shown")
    return 0


def _tree_json(tree: TopicTree) -> dict[str, Any]:
    root = {**msgspec.to_builtins(tree.root), "author": str(PeerId(tree.root.author))}
    return {**root, "branches": msgspec.to_builtins(tree.branches), "cut": tree.cut}


def _drawn(tree: TopicTree) -> Iterator[str]:
    """The lines of a tree: each branch with the label of its link, its CID and its name."""
    yield f"{tree.root.topic} {tree.root.name}"
    more: list[bool] = []  # whether a further branch comes at each depth, read from the end
    lines: list[str] = []
    for branch in reversed(tree.branches):
        more += [False] * (branch.depth + 1 - len(more))
        del more[branch.depth + 1 :]
        bars = "".join("│  " if below else "   " for below in more[1 : branch.depth])
        corner = "├─ " if more[branch.depth] else "└─ "
        more[branch.depth] = True
        known = "as above" if branch.again else branch.name or "not to be found"
        lines.append(f"{bars}{corner}{branch.label} {branch.topic} {known}")
    yield from reversed(lines)


async def _known(
    resolved: Resolved,
    topic: str,
    kept: Callable[[TopicView], _Found],
    ask: Callable[[Service], Callable[[str], Awaitable[_Found]]],
) -> _Found:
    """What the running node, the home's log, or the nodes of --join know of a topic."""
    try:
        cid = cid_of(topic)
    except LocalError as error:
        raise CommandError(str(error), USAGE) from None
    name = cids.text(cid)
    async with running_node(resolved, joins=True) as client:
        if client is not None:
            return await ask(client)(name)
    view = await asyncio.to_thread(_kept_view, resolved, cid)
    if view is not None:
        return await asyncio.to_thread(kept, view)
    if not resolved.texts("join"):
        raise CommandError(
            f"{resolved.home} has not kept the topic {name} and no node runs there; start one, or"
            " give --join TICKET"
        )
    async with open_session(resolved) as session:
        return await ask(session.service)(name)


def _kept_view(resolved: Resolved, cid: bytes) -> TopicView | None:
    """What the home's log alone knows of a topic: it keeps topics as notes."""
    if not resolved.home.exists():
        return None
    try:
        with EventLog(resolved.home, read_only=True) as log:
            return view_of_kept(partial(read_note, log), note_keys(log, NOTES), cid)
    except StoreError:
        return None


async def find_descriptor(resolved: Resolved, cid: bytes) -> TopicDescriptor | None:
    """A topic's descriptor, from the home's log or else from the node that runs there."""
    view = await asyncio.to_thread(_kept_view, resolved, cid)
    if view is not None:
        return view.topic
    async with running_node(resolved) as client:
        if client is None:
            return None
        try:
            found = topic_from_readable((await client.show_topic(cids.text(cid)))["readable"])
        except LocalError:
            return None
    return found if found.cid == cid else None


def _lines(shown: dict[str, Any]) -> list[str]:
    readable = shown["readable"]
    metadata = readable["metadata"]
    lines = [
        f"topic\t{shown['cid']}",
        f"name\t{plain(readable['name'])}",
        f"author\t{readable['author']}",
        f"created\t{metadata['created']}",
        f"linking\t{metadata['eventLinking'].lower().replace('_', '-')}",
    ]
    allowed, asks = metadata["allowedPublishers"], metadata["requestToPublish"]
    if allowed is False:
        lines.append("publisher\tanyone")
    lines += [f"publisher\t{peer}" for peer in allowed or ()]
    if isinstance(asks, bool):
        lines.append(f"requester\t{'anyone' if asks else 'nobody'}")
    else:
        lines += [f"requester\t{peer}" for peer in asks]
    for name, each in shown["sub_topics"].items():
        found = plain(each["name"] or "not to be found")
        lines.append(f"sub-topic\t{plain(name)}\t{each['cid']}\t{found}")
    for each in shown["versions"]:
        this = "\tthis one" if each["cid"] == shown["cid"] else ""
        lines.append(f"version\t{each['cid']}\t{each['created']}{this}")
    return lines
