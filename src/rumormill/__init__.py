"""Brokerless topic publish/subscribe: four dissemination protocols behind one API."""

from rumormill.version import __version__

__all__ = ["Event", "Node", "Overflow", "Receipt", "Subscription", "Verdict", "__version__"]

_HOMES = {
    "Event": ("rumormill.node.subscription", "ReceivedEvent"),
    "Node": ("rumormill.node.node", "Node"),
    "Overflow": ("rumormill.node.subscription", "Overflow"),
    "Receipt": ("rumormill.node.receipt", "Receipt"),
    "Subscription": ("rumormill.node.subscription", "Subscription"),
    "Verdict": ("rumormill.core.inputs", "Verdict"),
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: `rumormill --help` needs none of it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rumormill' has no attribute {name!r}")
    import importlib  # noqa: PLC0415 (as above)

    return getattr(importlib.import_module(home[0]), home[1])
