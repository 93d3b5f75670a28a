"""Topics of a node: made, entered, published in and left, and the peers that supervise them.

What an application says about a new topic is read, checked and carried out here. The supervised
skip ring has supervisors, which every peer must know: a ticket names one and where it is reached;
the protocol's configuration names the peers, the address book keeps the addresses. Who publishes
there is a member of the topic, whom others count on until it takes its leave.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from rumormill.core.api import (
    ANYONE,
    AUTHOR,
    LINKINGS,
    Linking,
    Publishers,
    Reach,
    TopicOptions,
    TopicTree,
    TopicVersion,
)
from rumormill.core.config import Config
from rumormill.core.errors import ConfigError, DecodeError, LimitError, LocalError
from rumormill.core.event import Event
from rumormill.core.ids import MessageId, PeerId, Topic
from rumormill.core.inputs import Subscribe, Unsubscribe
from rumormill.core.patterns import check_plain
from rumormill.libp2p.address_book import AddressBook
from rumormill.log.model import StoreConfig, check_topic
from rumormill.node.config import parsed_ticket
from rumormill.node.driver import Driver
from rumormill.node.subscription import Subscription
from rumormill.protocols.registry import ProtocolSpec, Servers, TopicMaking
from rumormill.wire.keys import PeerId as ReadablePeerId

Who: TypeAlias = str | PeerId
"""A peer: its id as people write it, or the bytes of it."""


def topic_options(
    allowed_publishers: Iterable[Who] | Literal["anyone"] | None = None,
    request_to_publish: bool | Iterable[Who] | None = None,
    linking: str | None = None,
    sub_topics: Mapping[str, Topic] | None = None,
    parent: Topic | None = None,
) -> TopicOptions:
    """Read options as people write them (see `core.topics.TopicOptions`)."""
    chosen: Linking | None = None
    if linking is not None:
        if linking not in LINKINGS:
            raise ConfigError(f"linking: {linking!r} is not one of {', '.join(LINKINGS)}")
        chosen = linking
    asks = request_to_publish
    if asks is not None and not isinstance(asks, bool):
        asks = tuple(dict.fromkeys(_peer(each, "request_to_publish") for each in _list(asks)))
        if not asks:
            asks = False  # a list of nobody, where the wire format would mean everybody
    return TopicOptions(
        allowed_publishers=_publishers(allowed_publishers),
        request_to_publish=asks,
        linking=chosen,
        sub_topics=dict(sub_topics or {}),
        parent=parent,
    )


def _publishers(wish: Iterable[Who] | None) -> Publishers | None:
    if wish is None:
        return None
    listed = _list(wish)
    if ANYONE in listed:
        if len(listed) > 1:
            raise ConfigError(f"allowed_publishers: {ANYONE} stands alone, or not at all")
        return "anyone"
    found = [AUTHOR if each == "author" else _peer(each, "allowed_publishers") for each in listed]
    return tuple(dict.fromkeys(found))


def _list(peers: Iterable[Who]) -> list[Who]:
    return [peers] if isinstance(peers, str | bytes) else list(peers)


def _peer(who: Who, key: str) -> PeerId:
    if who == AUTHOR:
        return AUTHOR
    try:
        return bytes(ReadablePeerId.parse(who) if isinstance(who, str) else ReadablePeerId(who))
    except DecodeError as error:
        raise ConfigError(f"{key}: {who!r} is not a peer id: {error.detail}") from None


async def make_topic(spec: ProtocolSpec, driver: Driver, name: str, options: TopicOptions) -> Topic:
    """Create a topic, or join it where a topic is whatever somebody joins; return its name.

    In the second case nothing can be said about it: options are refused.
    """
    making = spec.topics
    if making is None:
        for given in options.given():
            raise ConfigError(
                f"{given}: topics of {spec.name} have no options, they exist where nodes join"
                " them; leave it out, or use pulsarcast"
            )
        driver.feed(Subscribe(name))
        return name
    command = making.command(name, _with_author(options, driver.id))
    return making.topic_of(await driver.command(command))


def _with_author(options: TopicOptions, author: PeerId) -> TopicOptions:
    allowed = options.allowed_publishers
    if not isinstance(allowed, tuple):
        return options
    named = tuple(dict.fromkeys(author if each == AUTHOR else each for each in allowed))
    return msgspec.structs.replace(options, allowed_publishers=named)


def check_reach(spec: ProtocolSpec, reach: Reach) -> None:
    """Refuse what only a protocol with created topics has, and what contradicts itself."""
    for given in reach.given():
        making_of(spec, given)
    if reach.subscribe_to_meta is False and reach.versions:
        raise ConfigError("subscribe_to_meta: versions are announced in the meta topic alone")


def check_name(name: Topic, config: StoreConfig) -> None:
    """Refuse what cannot be a topic's name, a pattern of names among it."""
    check_topic(name, config)
    check_plain(name)


def check_limit(limit: int | None) -> None:
    """Refuse to read fewer than no events."""
    if limit is not None and limit < 0:
        raise LocalError(f"limit: give 0 or more, not {limit}")


def check_pattern(name: Topic, spec: ProtocolSpec, since_offset: int | None) -> None:
    """Refuse a pattern where topics have no names, and offsets that could be of one topic only."""
    if spec.topics is not None:
        raise LocalError(
            f"{name!r} is a pattern of names, and topics of {spec.name} are known by their hashes:"
            " subscribe to each by its own"
        )
    if since_offset:
        raise LocalError(
            f"since_offset: {since_offset} is a place in one topic, and {name!r} stands for many;"
            " 0 is the beginning of each"
        )


def enter_topic(
    spec: ProtocolSpec,
    driver: Driver,
    topic: Topic,
    subscription: Subscription,
    since: float | None,
) -> None:
    """Enter a topic, with its meta topic or without, to have its events from a time on
    (`Subscribe`).

    One that has to be found and cannot be ends the subscription with an error; one that came in
    along with another is named.
    """
    meta = subscription.reach.meta if topic == subscription.topic else None
    driver.feed(Subscribe(topic, since=since, meta=meta))
    if spec.topics is None:
        return

    def ended(waiting: asyncio.Future[object]) -> None:
        error = None if waiting.cancelled() else waiting.exception()
        gone = subscription.closed or isinstance(error, LimitError)
        if isinstance(error, LocalError) and topic != subscription.topic:
            subscription.unreachable[topic] = str(error)
        elif isinstance(error, LocalError) and not gone:
            subscription.fail(error)

    asyncio.ensure_future(driver.command(spec.topics.entered(topic))).add_done_callback(ended)


def parent_ids(spec: ProtocolSpec, parents: Iterable[str | MessageId]) -> tuple[MessageId, ...]:
    """Read the names of the events that an event is to follow."""
    named = [parents] if isinstance(parents, str | bytes) else list(parents)
    if not named:
        return ()
    read = making_of(spec, "parents").event_id
    return tuple([read(each) for each in named])


def linked_order(spec: ProtocolSpec, order: str) -> Callable[[Iterable[Event]], list[Event]] | None:
    """What puts a history into the order of its links; None where it has that of the log."""
    if order not in ("offset", "links"):
        raise ConfigError(f"order: {order!r} is not one of offset, links")
    return making_of(spec, "order").in_order if order == "links" else None


def making_of(spec: ProtocolSpec, option: str) -> TopicMaking:
    """What a protocol knows of topics that are made; `option` is what only such a protocol has."""
    if spec.topics is None:
        raise ConfigError(
            f"{option}: topics of {spec.name} have no such thing; leave it out, or use pulsarcast"
        )
    return spec.topics


def version_of(spec: ProtocolSpec, event: Event) -> TopicVersion:
    """The version of a topic that an event announces."""
    found = making_of(spec, "version_of").announced(event)
    if found is None:
        raise LocalError(f"the event {event.id.hex()} announces no version of a topic")
    return found


async def describe_topic(spec: ProtocolSpec, driver: Driver, topic: Topic) -> dict[str, Any]:
    """Find out what is known of a topic that was created."""
    making = spec.topics
    if making is None:
        raise LocalError(f"a topic of {spec.name} has a name and no description")
    return making.readable(await driver.command(making.describe(topic)))


async def list_versions(spec: ProtocolSpec, driver: Driver, topic: Topic) -> list[TopicVersion]:
    """Find the versions of a topic."""
    making = making_of(spec, "versions")
    return making.listed(await driver.command(making.versions(topic)))


async def find_tree(spec: ProtocolSpec, driver: Driver, topic: Topic) -> TopicTree:
    """Find what lies below a topic."""
    found = await driver.command(making_of(spec, "topic_tree").tree(topic))
    assert isinstance(found, TopicTree)
    return found


def appointed(
    spec: ProtocolSpec,
    settings: Config,
    tickets: Sequence[str],
    book: AddressBook,
    ourselves: tuple[PeerId, ...],
) -> Config:
    """Return the settings that name the supervisors, this peer among them if it is to be one."""
    if not tickets and not ourselves:
        return settings
    config: Config = servers_of(spec).appoint(settings, named_peers(tickets, book, ourselves))
    return config


def servers_of(spec: ProtocolSpec) -> Servers:
    """How a protocol is told of its supervisors."""
    if spec.servers is None:
        raise ConfigError(f"supervisors: {spec.name} has none")
    return spec.servers


def named_peers(
    tickets: Sequence[str], book: AddressBook, ourselves: tuple[PeerId, ...]
) -> tuple[PeerId, ...]:
    """The peers that tickets name, whose places are noted in the book, and ourselves if given."""
    named: list[PeerId] = []
    for ticket in tickets:
        peers = book.give_all(parsed_ticket(ticket))
        if not peers:  # its name would be looked up when it is too late
            raise LocalError(f"{ticket!r} does not name a TCP address and a peer")
        named += peers
    return tuple(dict.fromkeys((*named, *ourselves)))


def enter_to_publish(spec: ProtocolSpec, driver: Driver, topic: Topic) -> None:
    """Take part in a topic where nobody else could publish in it."""
    if spec.publishes_from_within:
        view = driver.machine.view()
        if topic not in view.subscriptions and topic not in view.peers:
            driver.feed(Subscribe(topic, publish_only=True))


async def take_leave(spec: ProtocolSpec, driver: Driver) -> None:
    """Leave the topics whose other members would count on us, and send what is written."""
    if spec.publishes_from_within:
        for topic in list(driver.machine.view().peers):
            driver.feed(Unsubscribe(topic))
    await driver.pending_sends.drain(driver.config.shutdown_timeout)


def signature_of_handle(method: Callable[..., object]) -> inspect.Signature:
    """What `help` shows of a topic's call: that of the node, without the topic's name."""
    whole = inspect.signature(method)
    own, _, *rest = whole.parameters.values()
    return whole.replace(parameters=[own, *rest])
