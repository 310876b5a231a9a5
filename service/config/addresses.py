"""Address settings: the settings of an address, matched and merged as Artemis does.

A pattern is words between dots: `*` is any one word, `#`, only at the end, any number of words,
including none. `(text)` is the literal address `text`, wildcard characters included.
Precedence: exact, literal, `*` patterns, `#` patterns. Of two with `#` the longer text wins; of
two with `*` the one whose first differing word is not `*`, then the shorter text.
All matches are merged key by key: the first that has the key provides it, and at last the default.
Pure: no clock, no files. A book never changes; its cache is bounded.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, NamedTuple, cast

from ringfence.headers import NUMBER_MAX
from service.config.model import (
    BooleanValue,
    ChoiceValue,
    IntegerValue,
    InvalidValueError,
    rules_of,
)
from state.strategies.registry import STRATEGIES

COUNTING: Final = frozenset({"audit", "sequence", "ordered"})
"""Strategies that go by a publisher's numbers."""

COVERING: Final = frozenset({"sequence", "ordered"})
"""Those of them by which a number covers all before it."""

DEFAULT: Final = "default"
"""The origin of a setting that no pattern gives."""

LITERAL_MARKER: Final = "()"

Strategy = Literal["ring", "window", "audit", "sequence", "ordered", "off"]

BelowWindow = Literal["duplicate", "accept"]

OnDuplicate = Literal["dead_letter", "drop", "mark"]

_YEARS_MS: Final = 100 * 366 * 24 * 3600 * 1000

_CACHED_ADDRESSES_MAX = 10_000

_ANY_WORD = "*"

_ANY_WORDS = "#"

_DOT = "."

_STRATEGY = ChoiceValue((*STRATEGIES, "off"))

_ON_DUPLICATE = ChoiceValue(("dead_letter", "drop", "mark"))


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """How one address remembers, whole: every key has a value."""

    strategy: Annotated[Strategy, _STRATEGY] = "ring"
    id_cache_size: Annotated[int, IntegerValue(0, 1_000_000_000)] = 20_000
    persist_id_cache: Annotated[bool, BooleanValue()] = True
    on_duplicate: Annotated[OnDuplicate, _ON_DUPLICATE] = "dead_letter"
    window_ms: Annotated[int, IntegerValue(1, _YEARS_MS)] = 1_800_000
    window_size: Annotated[int, IntegerValue(0, 1_000_000_000)] = 10_000
    refresh_on_hit: Annotated[bool, BooleanValue()] = True
    audit_depth: Annotated[int, IntegerValue(1, 1_000_000)] = 2048
    audit_producers: Annotated[int, IntegerValue(1, 1_000_000)] = 1024
    audit_jump_max: Annotated[int, IntegerValue(1, NUMBER_MAX)] = 1_000_000
    below_window: Annotated[BelowWindow, ChoiceValue(("duplicate", "accept"))] = "duplicate"
    publishers_max: Annotated[int, IntegerValue(1, 10_000_000)] = 100_000
    group_records_max: Annotated[int, IntegerValue(1, 100_000)] = 1_000
    group_bytes_max: Annotated[int, IntegerValue(1024, 1024**3)] = 16 * 1024 * 1024
    group_timeout_ms: Annotated[int, IntegerValue(1, _YEARS_MS)] = 60_000
    groups_open_max: Annotated[int, IntegerValue(1, 1_000_000)] = 1_000
    dead_letter_audit: Annotated[bool, BooleanValue()] = False
    process_expired: Annotated[bool, BooleanValue()] = True
    addresses_max: Annotated[int, IntegerValue(1, 10_000_000)] = 100_000

    @property
    def capacity(self) -> int:
        """How many ids a ring remembers."""
        return 0 if self.strategy == "off" else self.id_cache_size

    @property
    def room(self) -> int:
        """How many ids or publishers are held."""
        match self.strategy:
            case "window":
                return self.window_size
            case "audit":
                return self.audit_producers
            case "sequence" | "ordered":
                return self.publishers_max
            case _:
                return self.capacity

    @property
    def remembers(self) -> bool:
        """Whether anything is detected; if not, all is let through, and nothing is lost."""
        return self.room > 0


ADDRESS_RULES: Final = rules_of(AddressSettings)


class _Resolved(NamedTuple):
    """The answer for one address."""

    settings: AddressSettings
    origins: Mapping[str, str]


class _WildcardPattern(NamedTuple):
    """A pattern with wildcards, ready to match."""

    pattern: str
    matches: Callable[[str], object]


def pattern_fault(pattern: str) -> str | None:
    """Say why a pattern is not one, or None."""
    if _is_literal(pattern):
        return None
    words = pattern.split(_DOT)
    if not pattern:
        return "an empty pattern names no address"
    if any(_ANY_WORDS in word for word in words[:-1]):
        return "`#` in the middle: it stands for any number of words and only at the end"
    if any(len(word) > 1 and set(word) & {_ANY_WORD, _ANY_WORDS} for word in words):
        return "`*` and `#` stand for whole words between dots, never for a part of one"
    return None


@dataclass(frozen=True, slots=True)
class AddressBook:
    """Every pattern with the keys it gives, and the answers found so far."""

    patterns: Mapping[str, Mapping[str, object]]
    _literals: Mapping[str, str] = field(repr=False, compare=False)
    _wildcards: tuple[_WildcardPattern, ...] = field(repr=False, compare=False)
    _cache: dict[str, _Resolved] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, patterns: Mapping[str, Mapping[str, object]]) -> "AddressBook":
        """Make a book; raise ValueError for what is not a pattern, a key or an allowed value."""
        own = {pattern: _checked(pattern, keys) for pattern, keys in patterns.items()}
        literals = [pattern for pattern in own if _is_literal(pattern)]
        wildcards = sorted(
            (p for p in own if not _is_literal(p) and (_ANY_WORD in p or _ANY_WORDS in p)),
            key=_precedence,
        )
        return cls(
            patterns=own,
            _literals={pattern[1:-1]: pattern for pattern in literals},
            _wildcards=tuple(_WildcardPattern(p, _expression(p).fullmatch) for p in wildcards),
        )

    @property
    def named(self) -> tuple[str, ...]:
        """Addresses that a pattern of their own names."""
        wild = {wildcard.pattern for wildcard in self._wildcards} | set(self._literals.values())
        return (*self._literals, *(pattern for pattern in self.patterns if pattern not in wild))

    @property
    def covers(self) -> bool:
        """Whether some address may go by numbers of which each covers all before it."""
        return any(keys.get("strategy") in COVERING for keys in self.patterns.values())

    def settings(self, address: str) -> AddressSettings:
        """Return what holds for an address."""
        return (self._cache.get(address) or self._find(address)).settings

    def origins(self, address: str) -> Mapping[str, str]:
        """Return, for each key, the pattern that gave it, or `default`."""
        return (self._cache.get(address) or self._find(address)).origins

    def _find(self, address: str) -> _Resolved:
        origins = dict.fromkeys(ADDRESS_RULES, DEFAULT)
        merged: dict[str, object] = {}
        for pattern in self._matching(address):
            for key, value in self.patterns[pattern].items():
                if key not in merged:
                    merged[key] = value
                    origins[key] = pattern
        make = cast("Callable[..., AddressSettings]", AddressSettings)
        found = _Resolved(make(**merged), origins)
        # Emptied when full: addresses come from messages, so their number is not ours to choose.
        if len(self._cache) >= _CACHED_ADDRESSES_MAX:
            self._cache.clear()
        self._cache[address] = found
        return found

    def _matching(self, address: str) -> list[str]:
        """Return the patterns that an address fits, the most specific first."""
        matching = [wildcard.pattern for wildcard in self._wildcards if wildcard.matches(address)]
        if address in self._literals:
            matching.insert(0, self._literals[address])
        exact = address in self.patterns and not _is_literal(address)
        if exact and address not in matching:
            matching.insert(0, address)
        return matching


def _is_literal(pattern: str) -> bool:
    opening, closing = LITERAL_MARKER
    return len(pattern) > 2 and pattern.startswith(opening) and pattern.endswith(closing)


def _checked(pattern: str, keys: Mapping[str, object]) -> dict[str, object]:
    fault = pattern_fault(pattern)
    if fault:
        raise ValueError(f'addresses."{pattern}": {fault}')
    for key in keys:
        if key not in ADDRESS_RULES:
            raise ValueError(f'addresses."{pattern}": {key} is not an address setting')
    try:
        return {key: ADDRESS_RULES[key].read(value) for key, value in keys.items()}
    except InvalidValueError as refused:
        raise ValueError(f'addresses."{pattern}": {refused.why}') from refused


def _precedence(pattern: str) -> tuple[bool, int, tuple[bool, ...], int, str]:
    """Order wildcard patterns, the most specific first; the text itself settles a draw."""
    any_words = _ANY_WORDS in pattern
    stars = tuple(word == _ANY_WORD for word in pattern.split(_DOT))
    return any_words, -len(pattern) if any_words else 0, stars, len(pattern), pattern


def _expression(pattern: str) -> re.Pattern[str]:
    if pattern == _ANY_WORDS:
        return re.compile(".*", re.DOTALL)
    words = pattern.split(_DOT)
    tail = r"(?:\..+)?" if words[-1] == _ANY_WORDS else ""
    fixed = words[:-1] if tail else words
    parts = (r"[^.]+" if word == _ANY_WORD else re.escape(word) for word in fixed)
    return re.compile(r"\.".join(parts) + tail, re.DOTALL)


BRIDGE: Final = "BRIDGE."
"""Before the address: ids that were stamped on the way, as Artemis names their cache."""

AUDIT: Final = "ringfence.dead-letters."
"""Before the address: duplicates that were dead-lettered."""


def settings_of(book: AddressBook, cache: str) -> AddressSettings:
    """By which settings a cache remembers; most often its name is an address."""
    if cache.startswith(AUDIT):
        audited = settings_of(book, cache.removeprefix(AUDIT))
        # While an id is held, those held with it and as many after them may be told of; what hits
        # keep in a window they keep here.
        strategy: Strategy = "window" if audited.strategy == "window" else "ring"
        room = 2 * audited.room
        return replace(audited, strategy=strategy, id_cache_size=room, window_size=room)
    settings = book.settings(cache)
    if cache.startswith(BRIDGE) and settings.strategy in COUNTING:
        return replace(settings, strategy="ring")
    return settings


def is_elsewhere(one: AddressSettings, other: AddressSettings) -> bool:
    """Whether what is remembered by the one is nothing to the other."""
    kinds = ["ring" if each.strategy == "off" else each.strategy for each in (one, other)]
    return kinds[0] != kinds[1] or one.persist_id_cache != other.persist_id_cache


def home_of(cache: str) -> str:
    """The address that a cache belongs to."""
    return cache.removeprefix(AUDIT).removeprefix(BRIDGE)
