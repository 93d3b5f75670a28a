"""Filters on what events say: a small language, read once, then asked for every event.

    where = Filter('data.celsius > 30 and (key == "roof" or headers.kind == "alarm")')
    where.matches(event)

A filter compares fields with values or with each other, by `==`, `!=`, `<`, `<=`, `>`, `>=`,
`contains`, `startswith`, `endswith` and `in [...]`; `has FIELD` asks whether there is one; `and`,
`or`, `not` and parentheses join comparisons. `data` is the payload read as JSON, and what it
contains is reached by `.name`, `["name"]` and `[number]`; `headers.name`, `key`, `content_type`
and `topic` are text. Values are text in quotes, numbers, `true`, `false` and `null`.

Rules: nothing of it is ever run as a program. A comparison with a field that is not there, or of
values of two kinds, is false, `!=` of two kinds being true. The text, its depth and the payload
that is read as JSON are bounded, so that neither reading nor asking a filter can take long.
Whatever is wrong with the text is a `ConfigError` that says where and what.
"""

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import msgspec

from rumormill.core.errors import ConfigError
from rumormill.core.event import Event

MAX_TEXT: Final = 4096
"""Our choice: characters of a filter, which bound its comparisons too; people write some 100."""
MAX_DEPTH: Final = 32
"""Our choice: parentheses and `not` within each other."""
MAX_JSON_BYTES: Final = 1 << 20
"""Our choice: a longer payload has no JSON fields; this one takes some milliseconds to read."""

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>[A-Za-z_][\w-]*)|(?P<sign>[=!<>]=|[<>()\[\].,])|(?P<end>$))",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\"}
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_ABSENT: Final = object()
"""What a field is that is not there."""
_UNREAD: Final = object()


class _Facts:
    """An event that is being asked about; its payload is read when a comparison needs it."""

    __slots__ = ("_json", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._json: Any = _UNREAD

    def json(self) -> Any:
        if self._json is _UNREAD:
            data = self.event.data
            try:
                self._json = msgspec.json.decode(data) if len(data) <= MAX_JSON_BYTES else _ABSENT
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._json = _ABSENT
        return self._json


_Value: TypeAlias = Callable[[_Facts], Any]
_Test: TypeAlias = Callable[[_Facts], bool]


def _key(facts: _Facts) -> Any:
    key = facts.event.key
    try:
        return _ABSENT if key is None else key.decode()
    except UnicodeDecodeError:
        return _ABSENT


_TEXTS: Final[dict[str, _Value]] = {
    "topic": lambda facts: facts.event.topic,
    "key": _key,
    "content_type": lambda facts: facts.event.content_type or _ABSENT,
}
"""The fields that are text, or not there."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Operand(NamedTuple):
    """One side of a comparison; of a field in JSON the kind is not known before it is read."""

    value: _Value
    kind: type | None
    constant: bool
    at: int


class Filter:
    """A filter that was read; `str` gives its text."""

    __slots__ = ("_test", "_text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ConfigError(f"where: give a filter as text, not {type(text).__name__}")
        if len(text) > MAX_TEXT:
            raise ConfigError(f"where: a filter has at most {MAX_TEXT} characters, not {len(text)}")
        self._text = text
        self._test = _Reader(text).read()

    def matches(self, event: Event) -> bool:
        """Whether an event is what was asked for."""
        return self._test(_Facts(event))

    def matching(self, events: Iterable[Event]) -> list[Event]:
        """Those of some events that are."""
        return [*filter(self.matches, events)]

    def __str__(self) -> str:
        return self._text


class _Reader:
    """Reads a filter from left to right, and makes a function of each part."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._next = self._scan(0)

    def read(self) -> _Test:
        test = self._any_of()
        if self._next.kind != "end":
            self._refuse("expected `and`, `or` or the end")
        return test

    def _scan(self, at: int) -> _Token:
        match = _TOKEN.match(self._text, at)
        if match is None:
            start = at + len(self._text[at:]) - len(self._text[at:].lstrip())
            wrong = self._text[start]
            self._refuse(_HINTS.get(wrong, f"{wrong!r} means nothing here"), start)
        kind = match.lastgroup or ""
        return _Token(kind, match[kind], match.start(kind))

    def _take(self) -> _Token:
        token = self._next
        self._next = self._scan(token.at + len(token.text))
        return token

    def _took(self, text: str) -> bool:
        """Take a word or a sign if it comes next."""
        if self._next.text != text or self._next.kind not in ("word", "sign"):
            return False
        self._take()
        return True

    def _refuse(self, what: str, at: int | None = None) -> NoReturn:
        at = self._next.at if at is None else at
        near = self._text[at : at + 20]
        where = f"at character {at + 1}, `{near}`" if near else "at its end"
        raise ConfigError(f"where: {what}; {where}")

    # What is joined.

    def _any_of(self) -> _Test:
        tests = [self._all_of()]
        while self._took("or"):
            tests.append(self._all_of())
        return tests[0] if len(tests) == 1 else lambda facts: any(test(facts) for test in tests)

    def _all_of(self) -> _Test:
        tests = [self._one()]
        while self._took("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda facts: all(test(facts) for test in tests)

    def _one(self) -> _Test:
        if self._depth == MAX_DEPTH:
            self._refuse(f"it is nested more than {MAX_DEPTH} times")
        self._depth += 1
        try:
            if self._took("not"):
                test = self._one()
                return lambda facts: not test(facts)
            if self._took("("):
                test = self._any_of()
                if not self._took(")"):
                    self._refuse("expected `)`")
                return test
            if self._took("has"):
                field = self._operand()
                if field.constant:
                    self._refuse("`has` asks for a field", field.at)
                return lambda facts: field.value(facts) is not _ABSENT
            return self._comparison()
        finally:
            self._depth -= 1

    # What is compared.

    def _comparison(self) -> _Test:
        left, sign = self._operand(), self._next
        if self._took("in"):
            return _one_of(left, self._list(left))
        compare = _COMPARISONS.get(sign.text)
        if compare is None or sign.kind not in ("word", "sign"):
            self._refuse(f"expected a comparison: {' '.join(_COMPARISONS)} in")
        self._take()
        right = self._operand()
        if left.constant and right.constant:
            self._refuse("it compares two values, and no field", left.at)
        self._check_kinds(sign.text, left, right)
        one, other = left.value, right.value

        def test(facts: _Facts) -> bool:
            found = one(facts)
            if found is _ABSENT:
                return False
            wanted = other(facts)
            return wanted is not _ABSENT and compare(found, wanted)

        return test

    def _check_kinds(self, sign: str, left: _Operand, right: _Operand) -> None:
        """Refuse what is never true, as far as that can be known before there is an event."""
        if sign in _ORDERED:
            for side in (left, right):
                if side.kind is not None and side.kind not in (str, float):
                    self._refuse(f"`{sign}` compares numbers, or text", side.at)
        elif sign in _OF_TEXT:
            for side in (left, right):
                if side.kind not in (None, str) and (sign != "contains" or side is left):
                    self._refuse(f"`{sign}` is for text", side.at)
        if left.kind and right.kind and left.kind is not right.kind:
            self._refuse(f"{_NAMES[left.kind]} is never {_NAMES[right.kind]}", right.at)

    def _list(self, left: _Operand) -> list[Any]:
        if not self._took("["):
            self._refuse('expected a list as in ["one", "two"]')
        found: list[Any] = []
        while not found or self._took(","):
            item = self._operand()
            if not item.constant:
                self._refuse("a list has values, and no fields", item.at)
            self._check_kinds("==", left, item)
            found.append(item.value(_NO_FACTS))
        if not self._took("]"):
            self._refuse("expected `,` or `]`")
        if left.constant:
            self._refuse("`in` looks for a field", left.at)
        return found

    def _operand(self) -> _Operand:
        kind, text, at = self._next
        value: Any
        if kind == "text":
            value = self._unquoted(text, at)
        elif kind == "number":
            value = float(text) if set(text) & set(".eE") else int(text)
        elif kind == "word" and text in _CONSTANTS:
            value = _CONSTANTS[text]
        else:
            return self._field()
        self._take()
        return _Operand(lambda _: value, _kind(value), True, at)

    def _unquoted(self, text: str, at: int) -> str:
        def meant(match: re.Match[str]) -> str:
            if match[1] not in _ESCAPES:
                self._refuse(f"there is no {match[0]} in text", at)
            return _ESCAPES[match[1]]

        return _ESCAPE.sub(meant, text[1:-1])

    def _field(self) -> _Operand:
        kind, name, at = self._next
        known = ["data", "headers", *_TEXTS]
        if kind != "word" or name not in known:
            self._refuse(f"expected a field ({', '.join(known)}) or a value")
        self._take()
        if name in _TEXTS:
            return _Operand(_TEXTS[name], str, False, at)
        path = self._path()
        if name == "data":
            return _Operand(_at_path(path), None, False, at)
        if len(path) != 1 or not isinstance(header := path[0], str):
            self._refuse('a header is written headers.name or headers["name"]', at)
        return _Operand(lambda facts: facts.event.headers.get(header, _ABSENT), str, False, at)

    def _path(self) -> list[str | int]:
        """The way to what is within a field."""
        steps: list[str | int] = []
        while True:
            if self._took("."):
                if self._next.kind != "word":
                    self._refuse('expected a name; others are written ["name"]')
                steps.append(self._take().text)
            elif self._took("["):
                token = self._next
                if token.kind == "text":
                    steps.append(self._unquoted(token.text, token.at))
                elif token.kind == "number" and token.text.isdigit():
                    steps.append(int(token.text))
                else:
                    self._refuse("expected a name in quotes, or a number from 0")
                self._take()
                if not self._took("]"):
                    self._refuse("expected `]`")
            else:
                return steps


def _at_path(steps: list[str | int]) -> _Value:
    def value(facts: _Facts) -> Any:
        found = facts.json()
        for step in steps:
            if isinstance(step, str):
                found = found.get(step, _ABSENT) if isinstance(found, dict) else _ABSENT
            else:
                inside = isinstance(found, list) and step < len(found)
                found = found[step] if inside else _ABSENT
        return found

    return value


def _kind(value: Any) -> type:
    """Which values can be equal or in an order: numbers are one kind, and true is none of them."""
    return float if type(value) is int else type(value)


def _equal(left: Any, right: Any) -> bool:
    """Lists and objects equal nothing: how deep they are is the publisher's choice."""
    return _kind(left) is _kind(right) and _kind(left) in _NAMES and bool(left == right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: (
        _kind(left) is _kind(right) and _kind(left) in (str, float) and compare(left, right)
    )


def _of_text(compare: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: (
        isinstance(left, str) and isinstance(right, str) and compare(left, right)
    )


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return any(_equal(each, right) for each in left)
    return isinstance(left, str) and isinstance(right, str) and right in left


def _one_of(left: _Operand, values: list[Any]) -> _Test:
    def test(facts: _Facts) -> bool:
        found = left.value(facts)
        return found is not _ABSENT and any(_equal(found, value) for value in values)

    return test


_ORDERED: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_OF_TEXT: Final = ("contains", "startswith", "endswith")
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    **{sign: _ordered(compare) for sign, compare in _ORDERED.items()},
    "contains": _contains,
    "startswith": _of_text(str.startswith),
    "endswith": _of_text(str.endswith),
}
_NAMES: Final = {str: "text", float: "a number", bool: "true or false", type(None): "null"}
_HINTS: Final = {
    "=": "write == to compare",
    '"': "the quote is not closed",
    "'": "the quote is not closed",
}
_NO_FACTS: Final = _Facts(Event("", b"", b"", b""))
