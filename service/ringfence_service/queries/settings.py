"""Settings queries: the effective settings, and the ids that other settings would evict."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import chain
from typing import Final, NamedTuple

Setting = str | int | bool


class EffectiveSetting(NamedTuple):
    """The value of one address setting, and the pattern that it comes from."""

    value: Setting
    pattern: str


class CacheEviction(NamedTuple):
    """The effect of other settings on one cache on one deciding partition."""

    address: str
    topic: str
    partition: int
    strategy: str
    new_strategy: str
    needs_force: bool
    """Whether all ids are forgotten, since the cache changes its strategy or its location."""
    ids_held: int
    ids_forgotten: int
    oldest_time_ms: int | None
    """Of the forgotten ids; None if there are none, or their times are not known."""
    newest_time_ms: int | None


class EvictionAnswer(NamedTuple):
    """The caches whose settings would change, whether or not they forget ids."""

    caches: tuple[CacheEviction, ...]
    """The first `CACHES_LISTED_MAX` of them."""
    caches_total: int
    needs_force: int
    """How many caches would lose all ids."""
    ids_forgotten: int
    complete: bool = False


CACHES_LISTED_MAX: Final = 1_000
"""How many caches an answer lists; the rest are only counted."""


def caches_in_order(caches: Iterable[CacheEviction]) -> tuple[CacheEviction, ...]:
    """Return the first `CACHES_LISTED_MAX` distinct caches, sorted by address and partition."""
    by_key = {(each.address, each.topic, each.partition): each for each in caches}
    return tuple(by_key[key] for key in nsmallest(CACHES_LISTED_MAX, by_key))


class EvictionQuery(NamedTuple):
    """Asks what would be forgotten if these address settings replaced the effective ones."""

    patterns: Mapping[str, Mapping[str, Setting]]

    def merge(self, answers: Sequence[EvictionAnswer]) -> EvictionAnswer:
        """Return the first caches of all answers, and the sums."""
        return EvictionAnswer(
            caches_in_order(chain.from_iterable(answer.caches for answer in answers)),
            caches_total=sum(answer.caches_total for answer in answers),
            needs_force=sum(answer.needs_force for answer in answers),
            ids_forgotten=sum(answer.ids_forgotten for answer in answers),
        )
