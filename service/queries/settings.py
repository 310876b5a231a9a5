"""Settings queries: the settings in use, and the ids that other settings would evict."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import chain
from typing import Final, NamedTuple

Setting = str | int | bool


class EffectiveSetting(NamedTuple):
    """The value of one address setting, and the pattern that it came from."""

    value: Setting
    pattern: str


class EvictionQuery(NamedTuple):
    """Asks what would be forgotten with these address settings in place of those that hold."""

    patterns: Mapping[str, Mapping[str, Setting]]


class CacheEviction(NamedTuple):
    """What other settings make of one cache on one deciding partition."""

    address: str
    topic: str
    partition: int
    strategy: str
    new_strategy: str
    needs_force: bool
    """Whether all is forgotten, since it is to be remembered in another way, or elsewhere."""
    ids_held: int
    ids_forgotten: int
    oldest_time_ms: int | None
    """Of those that are forgotten; None where none is, or their times are not known."""
    newest_time_ms: int | None


class EvictionAnswer(NamedTuple):
    """The caches whose settings would be others, forgotten or not."""

    caches: tuple[CacheEviction, ...]
    """The first of them."""
    caches_total: int
    needs_force: int
    """How many caches would be forgotten whole."""
    ids_forgotten: int
    complete: bool = False


CACHES_TOLD_MAX: Final = 1_000
"""Of how many caches an answer tells what would become of them; the rest is counted."""


def caches_in_order(caches: Iterable[CacheEviction]) -> tuple[CacheEviction, ...]:
    """What would become of caches, each once, as far as they are told."""
    by_place = {(each.address, each.topic, each.partition): each for each in caches}
    return tuple(by_place[place] for place in nsmallest(CACHES_TOLD_MAX, by_place))


def merged_forgotten(_query: EvictionQuery, answers: Sequence[EvictionAnswer]) -> EvictionAnswer:
    """The first caches of all, and the sums."""
    return EvictionAnswer(
        caches_in_order(chain.from_iterable(answer.caches for answer in answers)),
        caches_total=sum(answer.caches_total for answer in answers),
        needs_force=sum(answer.needs_force for answer in answers),
        ids_forgotten=sum(answer.ids_forgotten for answer in answers),
    )
