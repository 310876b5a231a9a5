"""Address queries: lists addresses and what they hold, without loading any of them.

An answer uses cached occupancy, or the first and last segment of a ring, and is computed in steps,
since there may be very many addresses. A client requests all addresses first, with the values that
they can be sorted by, and then the rows of one page.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ringfence_service.config.addresses import (
    AddressBook,
    AddressSettings,
    is_elsewhere,
    settings_of,
)
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.native.runs import runs_of
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.addresses import (
    AddressesAnswer,
    AddressesQuery,
    AddressRow,
    DirectoryAnswer,
    DirectoryQuery,
    MemoryStatus,
    rings_in_order,
)
from ringfence_service.queries.errors import NotRestored
from ringfence_service.queries.inbox import Steps
from ringfence_service.queries.settings import (
    CacheEviction,
    EvictionAnswer,
    EvictionQuery,
    caches_in_order,
)
from ringfence_service.queries.sizing import disk_bytes
from ringfence_state.model import PackedPositions
from ringfence_state.strategies.base import CommittedState, Occupancy

_ADDRESSES_A_STEP: Final = 1_000
"""Addresses a step for the directory: about a millisecond."""

_ROWS_A_STEP: Final = 16


def directory(_query: DirectoryQuery, loop: Loop) -> Steps[DirectoryAnswer]:
    """List all addresses that have state or had records.

    Their occupancy is the cached one: few have changed since. NotRestored if a rebalance moves
    partitions meanwhile, since another loop may list them too.
    """
    rebalances = loop.assignment.rebalances
    names, held = list[str](), list[int | None]()
    fill, horizon = list[float | None](), list[int | None]()
    for partition in list(loop.assignment.running.values()):
        extents, rooms = partition.survey.extents, partition.survey.rooms
        for chunk in _chunks(list(partition.addresses)):
            occupancies = list(map(extents.get, chunk))
            names += chunk
            held += [each and each.held for each in occupancies]
            horizon += [each and each.horizon_ms for each in occupancies]
            fill += [
                each.held / rooms[name] if each and rooms[name] else None
                for name, each in zip(chunk, occupancies, strict=True)
            ]
            yield
            if loop.assignment.rebalances != rebalances:
                raise NotRestored("Partitions moved while addresses were listed; ask again.")
    counted, accepted, duplicates = list(loop.address_counters.addresses), list[int](), list[int]()
    for chunk in _chunks(counted):
        counts = loop.address_counters.counts(chunk)
        accepted += counts[0]
        duplicates += counts[1]
        yield
    columns = (names, held, fill, horizon, counted, accepted, duplicates)
    return DirectoryAnswer._make((*(tuple(each) for each in columns), loop.assignment.has_all))


def addresses(query: AddressesQuery, loop: Loop) -> Steps[AddressesAnswer]:
    """Return the rows of these addresses, without those that are unknown here."""
    rows = []
    for number, name in enumerate(sorted(set(query.addresses)), 1):
        row = _row(name, loop)
        if row.partitions or name in loop.address_counters:
            rows.append(row)
        if number % _ROWS_A_STEP == 0:
            yield
    since_ms = loop.address_counters.since_ms if loop.decides else 0
    return AddressesAnswer(tuple(rows), since_ms, loop.assignment.has_all)


def memory_status(
    partition: OwnedPartition, address: str, loop: Loop, memory: CommittedState | None = None
) -> MemoryStatus:
    """Return what a partition holds of an address; `memory` is its state if it was loaded."""
    occupancy = loop.extent(partition, address, memory)
    if memory is None:
        memory = loop.cache.look(partition.source, address)
    held, oldest_ms, newest_ms, horizon_ms = (
        (None, None, None, None) if occupancy is None else occupancy
    )
    settings = settings_of(loop.config.addresses, address)
    strategy = settings.remembered_by
    runs = runs_of(partition.store_of(settings), strategy.kind, address)
    stored = disk_bytes(held, runs.bytes) if held is not None and strategy.holds_ids else None
    return MemoryStatus(
        topic=partition.source.topic,
        partition=partition.source.partition,
        ids_held=held,
        capacity=settings.share_room,
        bytes=0 if memory is None else memory.memory_bytes,
        oldest_time_ms=oldest_ms,
        newest_time_ms=newest_ms,
        horizon_ms=horizon_ms,
        runs=runs.files,
        disk_bytes=stored if settings.persist_id_cache else 0,
    )


def _chunks(names: list[str]) -> Iterator[list[str]]:
    size = _ADDRESSES_A_STEP
    return (names[start : start + size] for start in range(0, len(names), size))


def _row(address: str, loop: Loop) -> AddressRow:
    counted, running = loop.address_counters.of(address), loop.assignment.running.values()
    holding = [each for each in running if address in each.addresses]
    return AddressRow(
        address=address,
        strategy=settings_of(loop.config.addresses, address).strategy,
        partitions=rings_in_order(memory_status(each, address, loop) for each in holding),
        accepted=counted.accepted,
        duplicates=counted.duplicates,
    )


def forgotten(query: EvictionQuery, loop: Loop) -> EvictionAnswer:
    """Preview which caches new address settings would shorten or delete."""
    new = replace(loop.config, addresses=AddressBook.of(query.patterns))
    before, after = loop.config.addresses, new.addresses
    found = [
        each
        for partition in loop.assignment.running.values()
        for each in _evictions(partition, before, after, loop)
    ]
    return EvictionAnswer(
        caches_in_order(found),
        caches_total=len(found),
        needs_force=sum(each.needs_force for each in found),
        ids_forgotten=sum(each.ids_forgotten for each in found),
        complete=loop.assignment.has_all,
    )


def _evictions(
    partition: OwnedPartition, before: AddressBook, after: AddressBook, loop: Loop
) -> Iterator[CacheEviction]:
    for cache in sorted(partition.addresses):
        had, has = settings_of(before, cache), settings_of(after, cache)
        if had == has:
            continue
        store, strategy = partition.store_of(had), had.remembered_by
        memory = loop.cache.memory(partition.source, store, cache, strategy)
        held, count = _count(memory, had, has, PackedPositions(partition.source))
        changes = had.strategy != has.strategy or is_elsewhere(had, has)
        yield CacheEviction(
            address=cache,
            topic=partition.source.topic,
            partition=partition.source.partition,
            strategy=had.strategy,
            new_strategy=has.strategy,
            needs_force=changes and held.held > 0,
            ids_held=held.held,
            ids_forgotten=count,
            oldest_time_ms=held.oldest_ms if count else None,
            newest_time_ms=_newest_ms(memory, had, held, count, PackedPositions(partition.source)),
        )
        loop.cache.shrink()  # one pattern may match all addresses


def _count(
    memory: CommittedState,
    had: AddressSettings,
    has: AddressSettings,
    packed_positions: PackedPositions,
) -> tuple[Occupancy, int]:
    """Return the occupancy, and how many ids the new settings would forget."""
    held = memory.begin(had, packed_positions).extent()
    if is_elsewhere(had, has):
        return held, held.held
    return held, held.held - memory.begin(has, packed_positions).extent().held


def _newest_ms(
    memory: CommittedState,
    had: AddressSettings,
    held: Occupancy,
    count: int,
    packed_positions: PackedPositions,
) -> int | None:
    """Return the time of the newest among the `count` oldest ids; None if unknown."""
    if count == held.held or not count:
        return held.newest_ms if count else None
    return memory.begin(had, packed_positions).time_of(count - 1)
