"""Address settings match and merge as Artemis does; case numbers are those of the known systems."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.config.addresses import DEFAULT, AddressBook, pattern_fault


def book(*patterns: str) -> AddressBook:
    """A book in which each pattern gives its place in the list as size."""
    return AddressBook.of({p: {"id_cache_size": n} for n, p in enumerate(patterns, 1)})


def chosen(address: str, *patterns: str) -> str:
    """The pattern that decides for an address."""
    return book(*patterns).origins(address)["id_cache_size"]


@pytest.mark.parametrize("pattern", ["h.#.z", "#.z", "a.##.b", ""])
def test_case_35_any_words_anywhere_but_last_and_no_pattern_at_all_are_refused(
    pattern: str,
) -> None:
    assert pattern_fault(pattern)
    with pytest.raises(ValueError, match=r"addresses\."):
        AddressBook.of({pattern: {}})


@pytest.mark.parametrize("pattern", ["a*", "a.b#", "a.**", "*a.b"])
def test_a_wildcard_is_a_whole_word(pattern: str) -> None:
    assert "whole words" in (pattern_fault(pattern) or "")


@pytest.mark.parametrize(
    ("address", "matches"),
    [("a", True), ("a.b", True), ("a.b.c", True), ("ab", False), ("", False), ("a.", False)],
)
def test_any_words_are_none_or_more_after_a_dot(*, address: str, matches: bool) -> None:
    assert (chosen(address, "a.#") == "a.#") is matches


@pytest.mark.parametrize(
    ("address", "patterns", "winner"),
    [
        ("foo.0", ("foo.0.#", "foo.*"), "foo.*"),
        ("a", ("a.#", "*"), "*"),
        ("a.b", ("a.b", "a.*", "a.#", "#"), "a.b"),
        ("a.*", ("a.*", "(a.*)", "a.#"), "(a.*)"),
        ("a.x", ("a.*", "(a.*)", "a.#"), "a.*"),
        ("a", ("(a)", "a"), "a"),
        ("x.#", ("(x.#)", "#"), "(x.#)"),
        ("(a)", ("((a))", "#"), "((a))"),
        ("a.b.c", ("*.b.c", "a.*.*"), "a.*.*"),
    ],
)
def test_exact_beats_literal_beats_single_words_beats_any_words(
    address: str, patterns: tuple[str, ...], winner: str
) -> None:
    assert chosen(address, *patterns) == winner
    assert chosen(address, *reversed(patterns)) == winner


def test_dots_and_other_signs_of_expressions_stand_for_themselves() -> None:
    assert chosen("aXb", "a.b", "#") == "#"
    assert chosen("a+.x", "a+.*", "#") == "a+.*"
    assert chosen("line\nbreak.x", "*.x") == "*.x"


def test_an_unknown_key_and_a_wrong_value_are_refused() -> None:
    with pytest.raises(ValueError, match="not an address setting"):
        AddressBook.of({"a": {"size": 1}})
    with pytest.raises(ValueError, match="from 0 to"):
        AddressBook.of({"a": {"id_cache_size": -1}})


def test_the_answers_stay_right_when_more_addresses_come_than_are_cached() -> None:
    addresses = book("a.*", "#")
    for number in range(10_050):
        assert addresses.settings(f"a.{number}").id_cache_size == 1
    assert len(addresses._cache) <= 10_000
    assert addresses.settings("b").id_cache_size == 2


WORDS = st.sampled_from(["a", "b", "c", "*"])
PATTERNS = st.builds(
    lambda words, tail: ".".join([*words, *tail]),
    st.lists(WORDS, min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
)
ADDRESSES = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=5).map(".".join)


def fits(words: list[str], pattern: list[str]) -> bool:
    """The rule of matching, word by word."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return True
    return bool(words) and pattern[0] in ("*", words[0]) and fits(words[1:], pattern[1:])


@given(st.sets(PATTERNS, max_size=6), ADDRESSES)
def test_matching_and_precedence_agree_with_the_rules_read_word_by_word(
    patterns: set[str], address: str
) -> None:
    matching = [p for p in patterns if fits(address.split("."), p.split("."))]
    found = book(*patterns).origins(address)["id_cache_size"]
    assert (found == DEFAULT) == (not matching)
    for other in matching:
        assert not is_stronger(other, found)


def is_stronger(one: str, other: str) -> bool:
    """Whether a pattern comes before another, by the sentences of the rule."""
    kind, other_kind = kind_of(one), kind_of(other)
    if kind != other_kind:
        return kind < other_kind
    if kind == 2:
        return len(one) > len(other)
    for word, against in zip(one.split("."), other.split("."), strict=True):
        if (word == "*") != (against == "*"):
            return against == "*"
    return len(one) < len(other)


def kind_of(pattern: str) -> int:
    """0 exact, 1 with `*`, 2 with `#`."""
    return 2 if "#" in pattern else 1 if re.search(r"\*", pattern) else 0


def test_addresses_are_named_by_patterns_that_stand_for_one_alone() -> None:
    keys: dict[str, object] = {"id_cache_size": 1}
    names = ("#", "a.*", "a.b", "(x.#)", "orders")
    book = AddressBook.of(dict.fromkeys(names, keys))
    assert set(book.named) == {"a.b", "x.#", "orders"}
