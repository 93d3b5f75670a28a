"""Brokerless topic publish/subscribe: four dissemination protocols behind one API."""

from rumormill.version import __version__

__all__ = ["__version__"]
