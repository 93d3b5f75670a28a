"""Brokerless topic publish/subscribe: five dissemination protocols behind one API."""

from typing import TYPE_CHECKING

from rumormill.version import __version__

if TYPE_CHECKING:
    from rumormill.core.api import Message, PeerView, Receipt
    from rumormill.core.errors import LocalError, RumormillError
    from rumormill.core.event import Event
    from rumormill.core.inputs import Verdict
    from rumormill.daemon.doors import Doors
    from rumormill.log.model import Durability, StoreConfig
    from rumormill.node.client import Client, connect
    from rumormill.node.client_subscription import ClientSubscription
    from rumormill.node.cloudevents import from_cloudevent, to_cloudevent
    from rumormill.node.config import NodeConfig
    from rumormill.node.node import Node
    from rumormill.node.subscription import Overflow, Subscription
    from rumormill.node.sync import SyncDoors, SyncNode, SyncSubscription

__all__ = [
    "Client",
    "ClientSubscription",
    "Doors",
    "Durability",
    "Event",
    "LocalError",
    "Message",
    "Node",
    "NodeConfig",
    "Overflow",
    "PeerView",
    "Receipt",
    "RumormillError",
    "StoreConfig",
    "Subscription",
    "SyncDoors",
    "SyncNode",
    "SyncSubscription",
    "Topic",
    "Verdict",
    "__version__",
    "connect",
    "from_cloudevent",
    "to_cloudevent",
]

_HOMES = {
    "Client": "rumormill.node.client",
    "ClientSubscription": "rumormill.node.client_subscription",
    "Doors": "rumormill.daemon.doors",
    "Durability": "rumormill.log.model",
    "Event": "rumormill.core.event",
    "LocalError": "rumormill.core.errors",
    "Message": "rumormill.core.api",
    "Node": "rumormill.node.node",
    "NodeConfig": "rumormill.node.config",
    "Overflow": "rumormill.node.subscription",
    "PeerView": "rumormill.core.api",
    "Receipt": "rumormill.core.api",
    "RumormillError": "rumormill.core.errors",
    "StoreConfig": "rumormill.log.model",
    "Subscription": "rumormill.node.subscription",
    "SyncDoors": "rumormill.node.sync",
    "SyncNode": "rumormill.node.sync",
    "SyncSubscription": "rumormill.node.sync",
    "Topic": "rumormill.node.node",
    "Verdict": "rumormill.core.inputs",
    "connect": "rumormill.node.client",
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
