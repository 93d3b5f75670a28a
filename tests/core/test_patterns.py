"""Patterns of topic names: what they match, and that none of them is ever a topic."""

import pytest

from rumormill.core.errors import LocalError
from rumormill.core.patterns import Pattern, check_plain, is_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("news/*", ["news/a", "news/"], ["news", "news/a/b", "old/news/a", "newsy/a"]),
        ("news/#", ["news/a", "news/a/b", "news/a/b/c"], ["news", "newsy", "new"]),
        ("*/today", ["news/today", "x/today"], ["today", "a/b/today", "news/todays"]),
        ("*/*", ["a/b"], ["a", "a/b/c"]),
        ("a.c/*", ["a.c/x"], ["abc/x"]),
        ("*", ["news", "#general"], ["news/a"]),
        ("#", ["news", "news/a/b", "two\nlines"], []),
    ],
)
def test_levels_are_matched(pattern: str, matching: list[str], others: list[str]) -> None:
    """`*` is one whole level and `#` one or more; everything else stands for itself."""
    found = Pattern(pattern)
    assert [name for name in matching + others if found.matches(name)] == matching


def test_a_name_that_is_a_pattern_itself_is_never_matched() -> None:
    """Another implementation may have such a topic; it is not entered by ours."""
    assert not Pattern("news/*").matches("news/*")
    assert not Pattern("news/#").matches("news/a/#")
    assert not Pattern("#").matches("what*")


@pytest.mark.parametrize("name", ["*", "news/*", "#", "news/#", "news*", "a/*b/c", "#/news"])
def test_a_wildcard_is_never_silently_a_plain_topic(name: str) -> None:
    assert is_pattern(name)
    with pytest.raises(LocalError, match="is a pattern of names and not a topic"):
        check_plain(name)


@pytest.mark.parametrize("name", ["news", "#general", "c#", "a/b#c", "news/today"])
def test_a_hash_within_a_level_is_a_character(name: str) -> None:
    """Channels are called `#general` in many places."""
    assert not is_pattern(name)
    check_plain(name)
    assert Pattern(name).matches(name)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("news*", "stands for a whole level"),
        ("a/b*/c", "stands for a whole level"),
        ("news/#/today", "and so at the end"),
        ("#/*", "and so at the end"),
    ],
)
def test_what_would_mean_something_else_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence) as refused:
        Pattern(text)
    assert repr(text) in str(refused.value)
