"""Brokerless topic publish/subscribe: five dissemination protocols behind one API."""

from typing import TYPE_CHECKING

from rumormill.version import __version__

if TYPE_CHECKING:
    from rumormill.core.api import Completeness, GroupView, Message, PeerView, Receipt
    from rumormill.core.errors import LocalError, OutOfTimeError, RumormillError
    from rumormill.core.event import Event
    from rumormill.core.inputs import Verdict
    from rumormill.daemon.control_messages import TopicLine
    from rumormill.daemon.doors import Doors
    from rumormill.log.model import Durability, Retention, StoreConfig
    from rumormill.node.client import Client, connect
    from rumormill.node.client_subscription import ClientSubscription
    from rumormill.node.cloudevents import from_cloudevent, to_cloudevent
    from rumormill.node.config import NodeConfig
    from rumormill.node.in_thread import SyncSubscription
    from rumormill.node.node import Node, Topic
    from rumormill.node.requesting import Request
    from rumormill.node.subscription import Overflow, Subscription
    from rumormill.node.sync import SyncDoors, SyncNode, SyncTopic
    from rumormill.node.sync_client import SyncClient, connect_sync
    from rumormill.wire.keys import PeerId

__all__ = [
    "Client",
    "ClientSubscription",
    "Completeness",
    "Doors",
    "Durability",
    "Event",
    "GroupView",
    "LocalError",
    "Message",
    "Node",
    "NodeConfig",
    "OutOfTimeError",
    "Overflow",
    "PeerId",
    "PeerView",
    "Receipt",
    "Request",
    "Retention",
    "RumormillError",
    "StoreConfig",
    "Subscription",
    "SyncClient",
    "SyncDoors",
    "SyncNode",
    "SyncSubscription",
    "SyncTopic",
    "Topic",
    "TopicLine",
    "Verdict",
    "__version__",
    "connect",
    "connect_sync",
    "from_cloudevent",
    "to_cloudevent",
]

_HOMES = {
    "Client": "rumormill.node.client",
    "ClientSubscription": "rumormill.node.client_subscription",
    "Completeness": "rumormill.core.api",
    "Doors": "rumormill.daemon.doors",
    "Durability": "rumormill.log.model",
    "Event": "rumormill.core.event",
    "GroupView": "rumormill.core.api",
    "LocalError": "rumormill.core.errors",
    "Message": "rumormill.core.api",
    "Node": "rumormill.node.node",
    "NodeConfig": "rumormill.node.config",
    "OutOfTimeError": "rumormill.core.errors",
    "Overflow": "rumormill.node.subscription",
    "PeerId": "rumormill.wire.keys",
    "PeerView": "rumormill.core.api",
    "Receipt": "rumormill.core.api",
    "Request": "rumormill.node.requesting",
    "Retention": "rumormill.log.model",
    "RumormillError": "rumormill.core.errors",
    "StoreConfig": "rumormill.log.model",
    "Subscription": "rumormill.node.subscription",
    "SyncClient": "rumormill.node.sync_client",
    "SyncDoors": "rumormill.node.sync",
    "SyncNode": "rumormill.node.sync",
    "SyncSubscription": "rumormill.node.in_thread",
    "SyncTopic": "rumormill.node.sync",
    "Topic": "rumormill.node.node",
    "TopicLine": "rumormill.daemon.control_messages",
    "Verdict": "rumormill.core.inputs",
    "connect": "rumormill.node.client",
    "connect_sync": "rumormill.node.sync_client",
    "from_cloudevent": "rumormill.node.cloudevents",
    "to_cloudevent": "rumormill.node.cloudevents",
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: `rumormill --help` needs none of it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rumormill' has no attribute {name!r}")
    import importlib  # noqa: PLC0415 (as above)

    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    """What is public, also what nobody has asked for yet."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
