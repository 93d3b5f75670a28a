"""What a public call is given is of the kind that it says, or one sentence says what to give.

The kinds come from the annotations of the call, so that they are said once. The rule: nothing has
been done when a call refuses an argument. `leave` names those that a call checks itself, because it
has more to say about them.
"""

import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

from rumormill.core.errors import LocalError

_CallT = TypeVar("_CallT", bound=Callable[..., Any])
_ClassT = TypeVar("_ClassT", bound=type)
_Test = Callable[[Any], bool]
_MOST_SHOWN: Final = 40
_NOT_NEGATIVE: Final = ("timeout", "copies", "peers")
"""Numbers that are 0 or more, in whatever call."""


def check_calls(*leave: str) -> Callable[[_ClassT], _ClassT]:
    """Have all public calls of a class, and its making, look at what they are given."""

    def decorated(kind: _ClassT) -> _ClassT:
        for name in dir(kind):
            method = inspect.getattr_static(kind, name)
            if isinstance(method, types.FunctionType) and (name[0] != "_" or name == "__init__"):
                setattr(kind, name, _checked(method, leave))
        return kind

    return decorated


def checked(call: _CallT) -> _CallT:
    """Have one call look at what it is given."""
    return cast("_CallT", _checked(call, ()))


class _Argument(NamedTuple):
    name: str
    fits: _Test
    wanted: str

    def look(self, value: object) -> None:
        """Refuse what is of another kind."""
        if not self.fits(value):
            self.complain(value)

    def complain(self, value: object) -> NoReturn:
        """Say what to give instead."""
        raise LocalError(f"{self.name}: give {self.wanted}, not {_shown(value)}")


class _Signature(NamedTuple):
    places: list[tuple[int, _Test, _Argument]]
    """What may be given by place, where it is looked at."""
    rest: _Argument | None
    first_of_rest: int
    """Whatever else may be given by place, and from where on."""
    names: dict[str, _Argument]
    options: set[str] | None
    """What may be given by name alone, where the call does not list it."""


def _checked(method: Callable[..., Any], leave: tuple[str, ...]) -> Callable[..., Any]:
    known: _Signature | None = None

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal known
        if known is None:
            known = _signature(method, leave)
        given = len(args)
        for place, fits, argument in known.places:
            if place < given and not fits(args[place]):
                argument.complain(args[place])
        if known.rest is not None:
            for value in args[known.first_of_rest :]:
                known.rest.look(value)
        for name, value in kwargs.items():
            if name in known.names:
                known.names[name].look(value)
            elif known.options is not None and name not in known.options:
                raise TypeError(f"{method.__qualname__}() has no argument {name!r}")
        return method(*args, **kwargs)

    return call


def _signature(method: Callable[..., Any], leave: tuple[str, ...]) -> _Signature:
    hints = typing.get_type_hints(method)
    parameters = inspect.signature(method).parameters.values()
    wanted = {each.name: hints[each.name] for each in parameters if each.name in hints}
    wanted.pop("self", None)
    options: set[str] | None = None
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            listed = typing.get_type_hints(*typing.get_args(wanted.pop(each.name)))
            wanted, options = wanted | listed, {*wanted, *listed}
    names = {}
    for name, hint in wanted.items():
        if name not in leave:
            fits, words = _kind(hint)
            if name in _NOT_NEGATIVE:
                fits = _not_negative(fits)
                words = [f"{word} from 0 on" if "number" in word else word for word in words]
            *first, last = dict.fromkeys(words)
            names[name] = _Argument(name, fits, f"{', '.join(first)} or {last}" if first else last)
    placed = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    places = [(n, names[name].fits, names[name]) for n, name in enumerate(placed) if name in names]
    rest = [names.pop(each.name) for each in parameters if each.kind is each.VAR_POSITIONAL]
    return _Signature(places, rest[0] if rest else None, len(placed), names, options)


def _not_negative(fits: _Test) -> _Test:
    return lambda value: fits(value) and (value is None or value >= 0)


def _kind(hint: Any) -> tuple[_Test, list[str]]:
    """What tests a value for an annotation, and what people call such values."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return lambda _: True, ["anything"]
    if origin in (typing.Union, types.UnionType):
        found = [_kind(each) for each in args]
        # What may be a path is looked at as one, text too: no file has a NUL in its name.
        tests = [test for test, _ in found if Path not in args or test is not _is_text]
        words = [word for _, each in found for word in each]
        return lambda value: any(test(value) for test in tests), words
    if origin is typing.Literal:
        return lambda value: isinstance(value, str) and value in args, [*map(repr, args)]
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is tuple:
        return _tuple(args)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(args)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _several(origin, args[0])
    if origin is Callable or hint is Callable:
        return callable, ["a function"]
    if isinstance(hint, type) and getattr(hint, "_is_protocol", False):
        calls = [name for name in vars(hint) if name[0] != "_"]
        return lambda value: all(hasattr(value, call) for call in calls), [_a(hint)]
    if isinstance(hint, type):
        named = [repr(each.value) for each in hint] if issubclass(hint, Enum) else []
        return lambda value: isinstance(value, hint), named or [_a(hint)]
    raise TypeError(f"no argument can be tested for {hint}")


def _is_text(value: object) -> bool:
    """Text that can be written; file names may be text that cannot, and are tested as paths."""
    if not isinstance(value, str):
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def _is_path(value: object) -> bool:
    try:
        return isinstance(value, str | os.PathLike) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


_PLAIN: Final[dict[Any, tuple[_Test, list[str]]]] = {
    type(None): (lambda value: value is None, ["None"]),
    bool: (lambda value: isinstance(value, bool), ["True", "False"]),
    int: (lambda value: type(value) is int, ["a whole number"]),
    float: (_is_number, ["a number"]),
    str: (_is_text, ["text"]),
    bytes: (lambda value: isinstance(value, bytes | bytearray | memoryview), ["bytes"]),
    Path: (_is_path, ["a path"]),
}


def _mapping(args: tuple[Any, ...]) -> tuple[_Test, list[str]]:
    (key, _), (each, _) = _kind(args[0]), _kind(args[1])

    def test(value: Any) -> bool:
        return isinstance(value, Mapping) and all(key(k) and each(v) for k, v in value.items())

    return test, ["a dict of text by name" if args == (str, str) else "a dict"]


def _several(kind: type, hint: Any) -> tuple[_Test, list[str]]:
    each, _ = _kind(hint)

    def test(value: Any) -> bool:
        if isinstance(value, str | bytes | bytearray | memoryview):
            return False
        if isinstance(value, (list, tuple, kind)):
            return not isinstance(value, Collection) or all(map(each, value))
        return False

    return test, ["a list of text" if hint is str else "a list"]


def _tuple(args: tuple[Any, ...]) -> tuple[_Test, list[str]]:
    tests = [_kind(each)[0] for each in args]

    def test(value: Any) -> bool:
        return (
            isinstance(value, tuple | list)
            and len(value) == len(tests)
            and all(each(part) for each, part in zip(tests, value, strict=True))
        )

    return test, [f"a tuple of {len(args)}"]


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
