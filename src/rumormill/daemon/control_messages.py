"""What is said over a node's control socket, where and how: length-prefixed MessagePack.

A frame is four bytes of length, big-endian, and one record. The client asks, the service answers
each request with one record, in order; a `Subscribe` is answered with `Begun` and then with
`Events` until the client hangs up. One with a name is answered with `Begun`, and the client goes on
with `Take` and `Settle` (`control_consumers`). The length is checked before anything is read, on
both sides.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, Union

import msgspec

from rumormill.core.api import (
    ALONE,
    NO_OPTIONS,
    Completeness,
    FetchedHistory,
    GroupView,
    Health,
    PeerClock,
    PeerView,
    Reach,
    Receipt,
    TopicOptions,
    TopicTree,
)
from rumormill.core.errors import LocalError
from rumormill.core.event import Event, Head
from rumormill.dashboard.source import Look, Page
from rumormill.log.keeping import RetentionLine
from rumormill.log.model import Report, Retention, TopicExtent

VERSION: Final = 3
SOCKET_NAME: Final = "control.sock"

MAX_FRAME: Final = 8 << 20
"""Twice the largest event that the log takes."""

BATCH_BYTES: Final = 1 << 20
"""Payload in one batch, both directions, unless a single event is larger."""

BATCH_EVENTS: Final = 256
"""Events in one batch: they share one commit of the log, and a client waits for one answer."""


def socket_path(home: Path) -> Path:
    """Where the node of a home listens to commands."""
    return home / SOCKET_NAME


class ControlError(LocalError):
    """The daemon cannot be talked to, or refused; `code` names the kind for a program."""

    def __init__(self, sentence: str, code: str = "failed") -> None:
        super().__init__(sentence)
        self.code = code


class Request(msgspec.Struct, frozen=True):
    """What a client asks: one of the following."""


class Hello(Request, tag="hello", frozen=True):
    """The first request."""

    version: int = VERSION


class Join(Request, tag="join", frozen=True):
    """Connect to another node."""

    ticket: str


class Said(msgspec.Struct, frozen=True):
    """One message: its data, and its key, headers and content type if it has any."""

    data: bytes
    head: Head | None = None


class Publish(Request, tag="publish", frozen=True):
    """Publish messages in this order; `parents` are the events that each of them follows. With
    `copies`, one message, until so many other nodes have it, at most `timeout` seconds."""

    topic: str
    items: list[Said]
    parents: list[str] = []
    copies: int = 0
    timeout: float = 0.0


class Wait(Request, tag="wait", frozen=True):
    """Wait until so many peers subscribe to a topic."""

    topic: str
    peers: int
    timeout: float


class Subscribe(Request, tag="subscribe", frozen=True):
    """Send the events of a topic from now on, from an offset, or from a time; or those of all
    topics of a pattern, from now on or from offset 0."""

    topic: str
    offset: int | None = None
    since: float | None = None
    history: Literal["missed", "all", "none"] | None = None
    """What is fetched from other nodes (`Node.subscribe`)."""
    where: str | None = None
    """A filter on what events say (`core.where`)."""
    reach: Reach = ALONE
    """What is taken in besides the topic, likewise."""
    follow: bool = False
    """Whether the node stays in the topic when the last subscription has ended."""
    fetch_since: float | None = None
    """From when on what others have is fetched; `history` or this."""
    buffer: int = 1024
    overflow: str = "catch-up"
    """How many events may wait, and what happens when more come."""
    name: str = ""
    """Of a named subscription, which is answered with `Begun` and then with what is asked for."""
    ack_within: float | None = None
    """In how many seconds what that is given must be acknowledged."""


class Take(Request, tag="take", frozen=True):
    """Wait for events of the named subscription of this connection; `Given` answers."""

    most: int = 1


class Settle(Request, tag="settle", frozen=True):
    """Acknowledge events of the named subscription of this connection, or give them `back`;
    `Settled` answers."""

    offsets: list[int]
    back: bool = False


class ListGroups(Request, tag="groups", frozen=True):
    """List the named subscriptions."""


class ForgetGroup(Request, tag="forget-group", frozen=True):
    """Forget a named subscription."""

    topic: str
    name: str


class Sync(Request, tag="sync", frozen=True):
    """Compare a topic, or all that are followed, with every connected node now."""

    topic: str | None
    timeout: float | None


class ReadHistory(Request, tag="history", frozen=True):
    """Read a batch of events from the log; `offset` below 0 counts from the end.

    With `raw`, what is encrypted comes as it is, so that signatures can be checked.
    """

    topic: str
    offset: int = 0
    since: float | None = None
    limit: int = BATCH_EVENTS
    raw: bool = False


class Fetch(Request, tag="fetch", frozen=True):
    """Get an event by its name alone; the answer is `Events`, with one of them."""

    event: str
    timeout: float


class FetchHistory(Request, tag="fetch-history", frozen=True):
    """Get a topic's history beyond the log into the log (`Node.fetch_history`)."""

    topic: str
    timeout: float
    start: tuple[str, ...] = ()
    since: float = 0.0
    most: int = 0


class ListTopics(Request, tag="topics", frozen=True):
    """List the topics of the log and of the network."""


class CreateTopic(Request, tag="create-topic", frozen=True):
    """Make a topic, or join it where it needs no making."""

    name: str
    options: TopicOptions = NO_OPTIONS


class ShowTopic(Request, tag="show-topic", frozen=True):
    """Find out what is known of a topic that was created."""

    topic: str


class ShowTree(Request, tag="show-tree", frozen=True):
    """Find all sub-topics of a topic that was created."""

    topic: str


class Leave(Request, tag="leave", frozen=True):
    """Leave a topic, or the topics of a pattern, and end all subscriptions to it."""

    topic: str
    meta: bool | None = None


class ListPeers(Request, tag="peers", frozen=True):
    """List the connected peers."""


class Reload(Request, tag="reload", frozen=True):
    """Read the settings, and the files of topics' keys and policies, again."""


class Retain(Request, tag="retain", frozen=True):
    """Say what is kept of topics, by the node's rules or others; with `apply`, delete the rest."""

    topic: str | None = None
    rules: dict[str, Retention] | None = None
    apply: bool = False


class Compact(Request, tag="compact", frozen=True):
    """Give space that the log does not use back to the file system (`log.keeping.compact`)."""

    old: bool = False


class Mend(Request, tag="mend", frozen=True):
    """Repair the log, or have it take a backup or an exported file (`Node.repair` and so on)."""

    how: Literal["repair", "restore", "import"]
    path: str = ""
    replace: bool = False


class CompareClocks(Request, tag="compare-clocks", frozen=True):
    """Ask connected nodes for the time."""


class AskReach(Request, tag="ask-reach", frozen=True):
    """Ask what is known of who reaches the node."""


class Measure(Request, tag="measure", frozen=True):
    """Tell what the node counts, and how it is."""


class Watch(Request, tag="watch", frozen=True):
    """Show what a dashboard does: sections, a page of a topic's history, or an event's journey."""

    look: Look | None = None
    page: Page | None = None
    journey: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What the service says to it: one of the following."""


class Done(Answer, tag="done", frozen=True):
    """A request without a result was carried out."""


class Welcome(Answer, tag="welcome", frozen=True):
    """Who answers."""

    peer: str
    tickets: list[str]
    protocol: str
    network_ticket: str
    key_ids: dict[str, tuple[str, ...]] = {}
    version: int = VERSION


class Joined(Answer, tag="joined", frozen=True):
    """The answer to `Join`: who that node is."""

    peer: bytes


class Receipts(Answer, tag="receipts", frozen=True):
    """One receipt for each message."""

    receipts: list[Receipt]


class Begun(Answer, tag="begun", frozen=True):
    """A subscription holds; its first event will have at least this offset."""

    offset: int


class Events(Answer, tag="events", frozen=True):
    """Events in the order of their offsets; `lost` were dropped before them, by retention, and
    `unreadable` are encrypted, and the node has no key for them. Before them lies a `gap`, from an
    offset to before another, that a repair has recorded as lost."""

    events: list[Event]
    lost: int = 0
    unreadable: int = 0
    gap: tuple[int, int] | None = None


class Given(Answer, tag="given", frozen=True):
    """The answer to `Take`: events, none at the end; and how the named subscription stands, of
    which `lost` events were deleted by retention before they were handled."""

    events: list[Event]
    lost: int
    pending: int
    lag: int


class Settled(Answer, tag="settled", frozen=True):
    """The answer to `Settle`, when it is safe, or why it is not; and how things stand."""

    pending: int
    lag: int
    error: "Refused | None" = None


class GroupList(Answer, tag="group-list", frozen=True):
    """The answer to `ListGroups`."""

    groups: list[GroupView]


class TopicLine(TopicExtent, frozen=True):
    """A topic as `rumormill topics` shows it."""

    subscribed: bool = False
    peers: int = 0
    completeness: Completeness | None = None
    """Of a topic that a running node follows."""


class TopicList(Answer, tag="topic-list", frozen=True):
    """The answer to `ListTopics`; `left_out` did not fit."""

    topics: list[TopicLine]
    left_out: int = 0


class TopicCreated(Answer, tag="topic-created", frozen=True):
    """The answer to `CreateTopic`: the topic's name on the network."""

    topic: str


class TopicShown(Answer, tag="topic-shown", frozen=True):
    """The answer to `ShowTopic`, as `Node.describe_topic` gives it."""

    shown: dict[str, Any]


class TreeShown(Answer, tag="tree-shown", frozen=True):
    """The answer to `ShowTree`."""

    tree: TopicTree


class Synced(Answer, tag="synced", frozen=True):
    """The answer to `Sync`: how many nodes were asked and answered, and what they gave."""

    asked: int
    answered: int
    events: int


class HistoryFetched(Answer, tag="history-fetched", frozen=True):
    """The answer to `FetchHistory`."""

    fetched: FetchedHistory


class PeerList(Answer, tag="peer-list", frozen=True):
    """The answer to `ListPeers`."""

    peers: list[PeerView]


class Reloaded(Answer, tag="reloaded", frozen=True):
    """The answer to `Reload`: the settings that have changed, and those that wait for a restart."""

    changed: list[str] = []
    later: list[str] = []


class Retained(Answer, tag="retained", frozen=True):
    """The answer to `Retain`."""

    lines: list[RetentionLine]
    left_out: int = 0


class Compacted(Answer, tag="compacted", frozen=True):
    """The answer to `Compact`: how many bytes the file system has back."""

    freed: int


class Mended(Answer, tag="mended", frozen=True):
    """The answer to `Mend`: what the log has, or has got, and which offsets are empty now."""

    report: Report


class Clocks(Answer, tag="clocks", frozen=True):
    """The answer to `CompareClocks`: those of the peers who told."""

    clocks: list[PeerClock]


class ReachReport(Answer, tag="reach-report", frozen=True):
    """The answer to `AskReach`: sentences for people."""

    sentences: list[str]


class Measured(Answer, tag="measured", frozen=True):
    """The answer to `Measure` (`Node.metrics`, `Node.health`)."""

    metrics: dict[str, dict[str, float]]
    health: Health


class Watched(Answer, tag="watched", frozen=True):
    """The answer to `Watch`, in JSON."""

    found: bytes


class Refused(Answer, tag="refused", frozen=True):
    """The request failed; the sentence is for people (`control_errors`)."""

    sentence: str
    code: str
    place: tuple[str, int, int] | None = None


_encoder = msgspec.msgpack.Encoder(enc_hook=bytes)  # ids of peers are a kind of bytes
_decode_request = msgspec.msgpack.Decoder(Union[tuple(Request.__subclasses__())]).decode  # noqa: UP007
_decode_answer = msgspec.msgpack.Decoder(Union[tuple(Answer.__subclasses__())]).decode  # noqa: UP007


def encode(record: Request | Answer) -> bytes:
    """A record as a frame."""
    try:
        body = _encoder.encode(record)
    except (TypeError, ValueError, OverflowError) as error:  # of text that is none, among others
        raise ControlError(f"this cannot be said to a node: {error}", "usage") from None
    if len(body) > MAX_FRAME:
        raise ControlError(
            f"a request or answer of {len(body)} bytes is over the limit of {MAX_FRAME}",
            "too-large",
        )
    return len(body).to_bytes(4) + body


async def _read(
    reader: asyncio.StreamReader, decode: Callable[[bytes], Any], complaint: str
) -> Any:
    try:
        size = int.from_bytes(await reader.readexactly(4))
        if size > MAX_FRAME:
            raise ControlError(f"a frame of {size} bytes is over {MAX_FRAME}", "too-large")
        return decode(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, OSError):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ControlError(f"{complaint}: {error}", "not-understood") from None


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None when the client has hung up."""
    found: Request | None = await _read(reader, _decode_request, "not a request")
    return found


async def read_answer(reader: asyncio.StreamReader) -> Answer | None:
    """The next answer; None when the service has hung up."""
    found: Answer | None = await _read(reader, _decode_answer, "the daemon's answer is not one")
    return found
