"""Address settings: patterns with their keys, matched and merged for one address as Artemis does.

A pattern consists of words between dots. `*` matches exactly one word; `#`, allowed only as the
last word, matches any number of words, including none. `(text)` is the literal address `text`,
wildcard characters included. Precedence: exact, literal, `*` patterns, `#` patterns. Of two
patterns with `#`, the longer text wins; of two with `*`, the one whose first differing word is not
`*`, then the shorter text. All matching patterns are merged key by key: the most specific one that
has a key provides it; a key that none has keeps its default.
Pure: no clock, no files. An AddressBook is immutable, and its cache is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, cast

from ringfence_client.headers import NUMBER_MAX
from ringfence_service.config.possible_addresses import Shares
from ringfence_state.strategies.base import Strategy
from ringfence_state.strategies.registry import DEFAULT as DEFAULT_STRATEGY
from ringfence_state.strategies.registry import STRATEGIES

if TYPE_CHECKING:
    from pydantic import Field

    from ringfence_service.config.keys import StrategyName

_RING_SIZE: Final = "id_cache_size"

DEFAULT: Final = "default"
"""Origin of a setting that no pattern contains."""

LITERAL_MARKER: Final = "()"

BelowWindow = Literal["duplicate", "accept"]

OnDuplicate = Literal["dead_letter", "drop", "mark"]

_YEARS_MS: Final = 100 * 366 * 24 * 3600 * 1000
"""A century. A time is that of records, so what is longer is a mistake."""

_CACHED_ADDRESSES_MAX = 10_000
"""How many addresses are kept with their settings; when it is reached, all are forgotten.

Addresses come from messages, so their number is unbounded.
"""

_ANY_WORD = "*"

_ANY_WORDS = "#"

_DOT = "."


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The settings of one address, with a value for every key."""

    strategy: StrategyName = DEFAULT_STRATEGY
    """How the address remembers; see below."""
    id_cache_size: Annotated[int, Field(ge=0, le=1_000_000_000)] = 20_000
    """How many ids are remembered, on each partition that decides (with scope `id`, on all of them
    together); 0 remembers none and passes every record.
    """
    persist_id_cache: bool = True
    """`false`: in memory only, forgotten at a restart and when the partition moves."""
    on_duplicate: OnDuplicate = "dead_letter"
    """`"drop"` it, or `"mark"`: it goes out with the header `ringfence.duplicate`, the position of
    the accepted record.
    """
    window_ms: Annotated[int, Field(ge=1, le=_YEARS_MS)] = 1_800_000
    """`window`: for how long ids are held."""
    window_size: Annotated[int, Field(ge=0, le=1_000_000_000)] = 10_000
    """`window`: how many ids are held."""
    refresh_on_hit: bool = True
    """`window`: a duplicate restarts the time of its id."""
    audit_depth: Annotated[int, Field(ge=1, le=1_000_000)] = 2048
    """`audit`: how many numbers of a publisher are held."""
    audit_producers: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """`audit`: how many publishers are held."""
    audit_jump_max: Annotated[int, Field(ge=1, le=NUMBER_MAX)] = 1_000_000
    """`audit`: a number that is further above the last one is refused instead of evicting all
    before it.
    """
    below_window: BelowWindow = "duplicate"
    """`audit`: how a number below the window is treated; `"accept"` as in ActiveMQ."""
    publishers_max: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """`sequence`, `ordered`: how many publishers are held."""
    group_records_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """How many records a transaction group may have."""
    group_bytes_max: Annotated[int, Field(ge=1024, le=1024**3)] = 16 * 1024 * 1024
    """How many bytes the records of a transaction group may have."""
    group_timeout_ms: Annotated[int, Field(ge=1, le=_YEARS_MS)] = 60_000
    """How long a group may wait for its last record."""
    groups_open_max: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """How many groups of the address may wait on a partition; beyond that the oldest is given up.
    """
    dead_letter_audit: bool = False
    """Only the first duplicate of an id is dead-lettered, later ones are counted; a record without
    an id is dead-lettered each time that its group is.
    """
    process_expired: bool = True
    """A record past `_EXPIRES_AT` goes to the dead letters."""
    addresses_max: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """How many addresses a partition may hold; `BRIDGE.<address>` counts as one, and so does the
    memory that `dead_letter_audit` keeps for one.
    """
    address_idle_ms: Annotated[int, Field(ge=0, le=_YEARS_MS)] = 0
    """An address whose newest id is older than this is
    [forgotten](operations.md#addresses-that-are-idle); 0: never.
    """

    @property
    def remembered_by(self) -> Strategy:
        """The strategy that remembers ids or publishers for the address."""
        return STRATEGIES[self.strategy]

    @property
    def shares(self) -> int:
        """Over how many partitions the ids of the address are spread."""
        return 1

    @property
    def is_divided(self) -> bool:
        """Whether those partitions divide the size of a ring among them."""
        return self.shares > 1 and self.remembered_by.size_key == _RING_SIZE

    @property
    def capacity(self) -> int:
        """Return how many ids the ring of one partition remembers."""
        return -(-self.id_cache_size // self.shares) if self.remembered_by.size_key else 0

    @property
    def room(self) -> int:
        """Return how many ids or publishers are remembered."""
        size_key = self.remembered_by.size_key
        return getattr(self, size_key) if size_key else 0

    @property
    def share_room(self) -> int:
        """Return how many of them one partition remembers."""
        return self.capacity if self.is_divided else self.room

    @property
    def size_of_ids(self) -> str:
        """Return the setting that limits how many ids are held; empty if none are."""
        strategy = self.remembered_by
        return strategy.size_key if strategy.holds_ids else ""

    @property
    def remembers(self) -> bool:
        """Whether duplicates are detected; if not, every record is accepted."""
        return self.room > 0


ADDRESS_KEYS: Final = tuple(each.name for each in fields(AddressSettings))


@dataclass(frozen=True, slots=True)
class SharedSettings(AddressSettings):
    """The settings of an address whose ids are spread over several deciding partitions."""

    shares: int = 1


class _Resolved(NamedTuple):
    """The merged settings of one address, and the pattern that each key came from."""

    settings: AddressSettings
    origins: Mapping[str, str]


class _WildcardPattern(NamedTuple):
    """A pattern with wildcards, ready to match."""

    pattern: str
    matches: Callable[[str], object]


def pattern_fault(pattern: str) -> str | None:
    """Return why a text is not a valid pattern, or None."""
    if _is_literal(pattern):
        return None
    words = pattern.split(_DOT)
    if not pattern:
        return "an empty pattern matches no address"
    if any(_ANY_WORDS in word for word in words[:-1]):
        return "`#` is allowed only at the end, where it stands for any number of words"
    if any(len(word) > 1 and set(word) & {_ANY_WORD, _ANY_WORDS} for word in words):
        return "`*` and `#` stand for whole words between dots, not for parts of a word"
    return None


@dataclass(frozen=True, slots=True)
class AddressBook:
    """All patterns with their keys, and a cache of merged settings by address."""

    patterns: Mapping[str, Mapping[str, object]]
    _literals: Mapping[str, str] = field(repr=False, compare=False)
    _wildcards: tuple[_WildcardPattern, ...] = field(repr=False, compare=False)
    _strategies: tuple[Strategy, ...] = field(repr=False, compare=False)
    """Those that a pattern names."""
    _shares: Shares = field(default=Shares((), 1), repr=False, compare=False)
    _cache: dict[str, _Resolved] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, patterns: Mapping[str, Mapping[str, object]]) -> AddressBook:
        """Build a book; raise ValueError for an invalid pattern, key or value."""
        return cls.of_valid(
            {pattern: _checked(pattern, keys) for pattern, keys in patterns.items()}
        )

    @classmethod
    def of_valid(cls, checked: Mapping[str, Mapping[str, object]]) -> AddressBook:
        """Build a book of the patterns of another one."""
        literals = [pattern for pattern in checked if _is_literal(pattern)]
        wildcards = sorted(
            (p for p in checked if not _is_literal(p) and (_ANY_WORD in p or _ANY_WORDS in p)),
            key=_precedence,
        )
        named = {str(keys["strategy"]) for keys in checked.values() if "strategy" in keys}
        return cls(
            patterns=checked,
            _literals={pattern[1:-1]: pattern for pattern in literals},
            _wildcards=tuple(_WildcardPattern(p, _expression(p).fullmatch) for p in wildcards),
            _strategies=tuple(STRATEGIES[name] for name in named),
        )

    @property
    def named(self) -> tuple[str, ...]:
        """Return the addresses that have an exact or literal pattern."""
        wild = {wildcard.pattern for wildcard in self._wildcards} | set(self._literals.values())
        return (*self._literals, *(pattern for pattern in self.patterns if pattern not in wild))

    @property
    def groups(self) -> Iterator[tuple[str, AddressSettings]]:
        """Yield each named address and each pattern with the settings that it has."""
        wild = (wildcard.pattern for wildcard in self._wildcards)
        for name in dict.fromkeys((*self.named, *wild)):
            yield name, self.settings(name)

    @property
    def expires(self) -> bool:
        """Whether some address may expire."""
        return any(keys.get("address_idle_ms") for keys in self.patterns.values())

    @property
    def covers(self) -> bool:
        """Whether some address may have numbers that acknowledge all smaller ones too."""
        numbers = (strategy.numbers for strategy in self._strategies)
        return any(each is not None and each.is_cumulative for each in numbers)

    @property
    def distinguishes_publishers(self) -> bool:
        """Whether some address may remember an id for its publisher alone."""
        keys = (strategy.identity for strategy in self._strategies)
        return any(each is not None and "publisher" in each.optional for each in keys)

    def shared(self, shares: Shares) -> AddressBook:
        """Return the book with the addresses that several partitions decide."""
        return replace(self, _shares=shares, _cache={})

    def matches(self, pattern: str, address: str) -> bool:
        """Whether one of the patterns matches an address."""
        return pattern in self._matching(address)

    def settings(self, address: str) -> AddressSettings:
        """Return the merged settings of an address."""
        return (self._cache.get(address) or self._find(address)).settings

    def origins(self, address: str) -> Mapping[str, str]:
        """Return, for each key, the pattern that it came from, or `default`."""
        return (self._cache.get(address) or self._find(address)).origins

    def _find(self, address: str) -> _Resolved:
        origins = dict.fromkeys(ADDRESS_KEYS, DEFAULT)
        merged: dict[str, object] = {}
        for pattern in self._matching(address):
            for key, value in self.patterns[pattern].items():
                if key not in merged:
                    merged[key] = value
                    origins[key] = pattern
        shares = self._shares.count(home_of(address))
        make = cast("Callable[..., AddressSettings]", AddressSettings)
        if shares > 1:
            make = partial(cast("Callable[..., AddressSettings]", SharedSettings), shares=shares)
        found = _Resolved(make(**merged), origins)
        if len(self._cache) >= _CACHED_ADDRESSES_MAX:
            self._cache.clear()
        self._cache[address] = found
        return found

    def _matching(self, address: str) -> list[str]:
        """Return the patterns that match an address, the most specific first."""
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
    # A book of patterns that are valid needs no pydantic.
    from ringfence_service.config.keys import InvalidValueError, keys_of

    known = keys_of(AddressSettings)
    for key in keys:
        if key not in known:
            raise ValueError(f'addresses."{pattern}": {key} is not an address setting')
    try:
        return {key: known[key].read(value) for key, value in keys.items()}
    except InvalidValueError as error:
        raise ValueError(f'addresses."{pattern}": {error}') from error


def _precedence(pattern: str) -> tuple[bool, int, tuple[bool, ...], int, str]:
    """Return the sort key of a wildcard pattern, the most specific first; the text breaks ties."""
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
"""Cache name prefix of ids that a bridge stamped; Artemis uses the same prefix."""

AUDIT: Final = "ringfence.dead-letters."
"""Cache name prefix of duplicates that were dead-lettered."""


def settings_of(book: AddressBook, cache: str) -> AddressSettings:
    """Return the settings of a cache; usually its name is an address."""
    if cache.startswith(AUDIT):
        audited = settings_of(book, cache.removeprefix(AUDIT))
        # While an id is remembered, duplicates of the ids remembered with it, and of as many later
        # ids, may be dead-lettered. If hits refresh a window, they refresh this cache too.
        refreshes = audited.remembered_by.refreshes
        strategy = audited.strategy if refreshes else DEFAULT_STRATEGY
        room = 2 * audited.room
        sizes: dict[str, Any] = {STRATEGIES[strategy].size_key: room}
        found = replace(audited, strategy=strategy, **sizes)
        if audited.is_divided or not isinstance(found, SharedSettings):
            return found
        return replace(found, shares=1)  # its room counts on each partition
    settings = book.settings(cache)
    if cache.startswith(BRIDGE) and not settings.remembered_by.holds_ids:
        return replace(settings, strategy=DEFAULT_STRATEGY)
    return settings


def is_elsewhere(one: AddressSettings, other: AddressSettings) -> bool:
    """Whether switching between these settings discards the remembered ids."""
    kinds = one.remembered_by.kind, other.remembered_by.kind
    return kinds[0] != kinds[1] or one.persist_id_cache != other.persist_id_cache


def caches_of(address: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the caches that remember accepted ids of an address, and of the others.

    `home_of` returns the address for each of them.
    """
    accepted = (address, BRIDGE + address)
    return accepted, tuple(AUDIT + cache for cache in accepted)


def home_of(cache: str) -> str:
    """Return the address that a cache belongs to."""
    return cache.removeprefix(AUDIT).removeprefix(BRIDGE)
