"""Errors across the control socket: a client raises what the node raised.

The rule: what a program tells apart, it tells apart by the same class in a client as in the node's
own process. What has no kind of its own is a `ControlError`, which is a `LocalError`.
"""

from typing import Final

from rumormill.core.errors import (
    ConfigError,
    LimitError,
    OutOfTimeError,
    RumormillError,
)
from rumormill.daemon.control_messages import ControlError, Refused
from rumormill.dashboard.source import NotHere
from rumormill.log.backup import BackupRefusedError
from rumormill.log.errors import (
    CorruptLogError,
    DiskFullError,
    ImportRefusedError,
    NoDescriptorsError,
    NotAStoreError,
    OffsetAheadError,
    StoreError,
    StoreFailedError,
    StoreReadOnlyError,
)

_AHEAD: Final = "ahead"
_DAMAGED: Final = "damaged"
_KINDS: Final[dict[str, type[RumormillError]]] = {
    _AHEAD: OffsetAheadError,
    _DAMAGED: CorruptLogError,
    "disk-full": DiskFullError,
    "no-descriptors": NoDescriptorsError,
    "read-only": StoreReadOnlyError,
    "store-failed": StoreFailedError,
    "backup-refused": BackupRefusedError,
    "import-refused": ImportRefusedError,
    "no-store": NotAStoreError,
    "limit": LimitError,
    "store": StoreError,
    "usage": ConfigError,
    "timeout": OutOfTimeError,
    "not-found": NotHere,
}
"""By the code that is said; the first that an error belongs to."""


def error_code(error: RumormillError) -> str:
    """The kind of an error, as a client is told it."""
    if isinstance(error, ControlError):
        return error.code
    return next((code for code, kind in _KINDS.items() if isinstance(error, kind)), "failed")


def refusal_of(error: RumormillError) -> Refused:
    """What a client is told of an error."""
    code, place = error_code(error), None
    if isinstance(error, OffsetAheadError):
        place = (error.topic, error.offset, error.next_offset)
    return Refused(str(error), code, place)


def error_of(refused: Refused) -> RumormillError:
    """The error that a client was told of."""
    sentence, code = refused.sentence, refused.code
    if code == _AHEAD and refused.place is not None:
        return OffsetAheadError(*refused.place)
    if code == _DAMAGED:
        return CorruptLogError(sentence, ())
    kind = None if code == _AHEAD else _KINDS.get(code)
    return ControlError(sentence, code) if kind is None else kind(sentence)
