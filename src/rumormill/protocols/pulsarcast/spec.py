"""Pulsarcast, as the registry lists it."""

from functools import partial
from typing import Any

from rumormill.core.api import ANYONE, FetchedHistory, TopicOptions, TopicVersion
from rumormill.core.ids import Topic
from rumormill.overlay.kademlia.messages import KAD_PROTOCOL, encode_kad
from rumormill.protocols.kademlia.spec import kad_decoder, max_kad_message
from rumormill.protocols.pulsarcast import reasons
from rumormill.protocols.pulsarcast.commands import (
    BrowseTree,
    CreateTopic,
    DescribeTopic,
    FetchEvent,
    History,
    ListVersions,
    ReadHistory,
    SubscribeTo,
    event_cid_of,
)
from rumormill.protocols.pulsarcast.config import PRESETS
from rumormill.protocols.pulsarcast.context import OURS
from rumormill.protocols.pulsarcast.format import cid as cids
from rumormill.protocols.pulsarcast.format.descriptors import (
    PROTOCOL,
    EventLinking,
    TopicDescriptor,
)
from rumormill.protocols.pulsarcast.format.junk import junk_rpc
from rumormill.protocols.pulsarcast.format.readable import readable_view
from rumormill.protocols.pulsarcast.format.rpc import Rpc, decode_rpc, parts_of
from rumormill.protocols.pulsarcast.history.graph import in_order
from rumormill.protocols.pulsarcast.peer import PulsarcastPeer
from rumormill.protocols.pulsarcast.tree.sub_topics import announced, version_of
from rumormill.protocols.registry import ProtocolSpec, QuerySpec, TopicMaking


def _creation(name: str, options: TopicOptions) -> CreateTopic:
    allowed = options.allowed_publishers
    wish: dict[str, Any] = {"sub_topics": dict(options.sub_topics), "parent": options.parent}
    if allowed is not None:
        wish["allowed_publishers"] = None if allowed == ANYONE else allowed
    if options.request_to_publish is not None:
        asks = options.request_to_publish
        wish["request_to_publish"] = asks if isinstance(asks, tuple) else () if asks else None
    if options.linking is not None:
        wish["event_linking"] = EventLinking[options.linking.upper().replace("-", "_")]
    return CreateTopic(name=name, **wish)


def _topic_of(result: object) -> Topic:
    assert isinstance(result, TopicDescriptor)
    return cids.text(result.cid)


def _meta_of(result: object) -> Topic | None:
    assert isinstance(result, TopicDescriptor)
    return None if result.meta is None else cids.text(result.meta)


def _versions(result: object) -> list[TopicVersion]:
    assert isinstance(result, list)
    return [version_of(each) for each in result]


def _fetched(result: object) -> FetchedHistory:
    assert isinstance(result, History)
    return FetchedHistory(
        result.fetched, result.missing, result.answered, result.complete, result.bounded
    )


SPEC = ProtocolSpec(
    name="pulsarcast",
    protocol_ids=(OURS, PROTOCOL),
    presets=PRESETS,
    build=PulsarcastPeer,
    encode=Rpc.encode,
    decoder=lambda config, _: partial(decode_rpc, limits=config.limits),
    max_message=lambda config: config.limits.rpc_bytes,
    junk=junk_rpc,
    parts=parts_of,
    proves_authors=lambda config: config.require_signatures,
    queries=QuerySpec(
        protocol_ids=(KAD_PROTOCOL,),
        encode=encode_kad,
        decoder=lambda config: kad_decoder(config.kademlia),
        max_message=lambda config: max_kad_message(config.kademlia),
    ),
    topics=TopicMaking(
        command=_creation,
        topic_of=_topic_of,
        meta_of=_meta_of,
        event_id=event_cid_of,
        in_order=in_order,
        entered=lambda topic: SubscribeTo(topic=topic),
        describe=lambda topic: DescribeTopic(topic=topic),
        tree=lambda topic: BrowseTree(topic=topic),
        versions=lambda topic: ListVersions(topic=topic),
        listed=_versions,
        announced=announced,
        readable=readable_view,
        fetch=lambda event: FetchEvent(event=event),
        fetch_history=lambda topic, start, since, most: ReadHistory(
            topic=topic, bare=True, start=start, since=since, most=most
        ),
        fetched=_fetched,
    ),
    publishes_from_within=True,
    asks_again=True,
    reads_log=True,
    finds_peers=True,
    tolerated=reasons.BLAMELESS,
)
