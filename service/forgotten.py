"""Forgotten: what other address settings would have caches forget that are held now.

Asked before the settings are written: nothing is changed.
"""

from collections.abc import Iterator
from itertools import islice

from service.addresses import AddressBook, AddressSettings
from service.caches import is_elsewhere, settings_of
from service.loop import Loop
from service.partition import Partition
from service.queries.settings import Forgotten, ForgottenAnswer, ForgottenQuery, caches_in_order
from state.spots import Spots
from state.strategies.ring import RingDraft
from state.strategies.strategy import Extent, Memory
from state.strategies.table import RING, STRATEGIES
from state.strategies.window import Window


def forgotten(query: ForgottenQuery, loop: Loop) -> ForgottenAnswer:
    """What would be forgotten, cache by cache."""
    before, after = loop.config.addresses, AddressBook.of(query.patterns)
    found = [
        each
        for partition in loop.assignment.running.values()
        for each in _of(partition, before, after, loop)
    ]
    return ForgottenAnswer(
        caches_in_order(found),
        caches_total=len(found),
        needs_force=sum(each.needs_force for each in found),
        ids_forgotten=sum(each.ids_forgotten for each in found),
        complete=loop.assignment.has_all,
    )


def _of(
    partition: Partition, before: AddressBook, after: AddressBook, loop: Loop
) -> Iterator[Forgotten]:
    for cache in sorted(partition.addresses):
        had, has = settings_of(before, cache), settings_of(after, cache)
        if had == has:
            continue
        strategy = STRATEGIES.get(had.strategy, RING)
        memory = loop.cache.memory(partition.source, partition.store_of(had), cache, strategy)
        held, count = _count(memory, had, has, Spots(partition.source))
        changes = had.strategy != has.strategy or is_elsewhere(had, has)
        yield Forgotten(
            address=cache,
            topic=partition.source.topic,
            partition=partition.source.partition,
            strategy=had.strategy,
            new_strategy=has.strategy,
            needs_force=changes and held.held > 0,
            ids_held=held.held,
            ids_forgotten=count,
            oldest_time_ms=held.oldest_ms if count else None,
            newest_time_ms=_newest_ms(memory, had, held, count, Spots(partition.source)),
        )
        loop.cache.shrink()  # one pattern may be that of all addresses


def _count(
    memory: Memory, had: AddressSettings, has: AddressSettings, spots: Spots
) -> tuple[Extent, int]:
    """What is held, and how much of it would be forgotten."""
    held = memory.begin(had, spots).extent()
    if is_elsewhere(had, has):
        return held, held.held
    return held, held.held - memory.begin(has, spots).extent().held


def _newest_ms(
    memory: Memory, had: AddressSettings, held: Extent, count: int, spots: Spots
) -> int | None:
    """When the newest of so many of the oldest was seen; None where no times are known."""
    if count == held.held or not count:
        return held.newest_ms if count else None
    if isinstance(memory, Window):
        return next(islice(memory.ids.values(), count - 1, None)).time_ms
    draft = memory.begin(had, spots)
    return draft.time_of(count - 1) if isinstance(draft, RingDraft) else None
