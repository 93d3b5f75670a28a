"""Why a decoder refuses what it is given."""

from collections.abc import Callable

import pytest

from rumormill.core.errors import DecodeError


def reason_of(decode: Callable[..., object], *arguments: object, **named: object) -> str:
    """Decode something that must be refused; return the reason that is counted."""
    with pytest.raises(DecodeError) as caught:
        decode(*arguments, **named)
    return caught.value.reason
