"""The dissemination protocols, one folder each, all pure state machines (see `core.machine`)."""
