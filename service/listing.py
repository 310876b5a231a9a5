"""Listing: addresses with what they hold, without loading any into memory.

All that is asked of many addresses is answered from what is known already, or read from a ring's
first and last run. Their order is asked for first, and then the rows of one page.
"""

from collections.abc import Iterator, Mapping

from service.caches import settings_of
from service.loop import Loop
from service.partition import Partition
from service.queries.addresses import (
    RANKING,
    AddressesAnswer,
    AddressesQuery,
    AddressOrder,
    AddressOrderAnswer,
    AddressRank,
    AddressRow,
    MemoryStatus,
    rings_in_order,
)
from service.queries.names import first_after
from state.strategies.strategy import Extent, Memory


def address_order(query: AddressOrder, loop: Loop) -> AddressOrderAnswer:
    """The addresses that a page may be made of."""
    names = {name for name in _names(loop) if name.startswith(query.prefix)}
    if query.sort == "name":
        ranks = [AddressRank(name, None) for name in first_after(names, query.after, query.limit)]
    else:
        ranks = _ranks(query, sorted(names), loop)
    return AddressOrderAnswer(tuple(ranks), loop.assignment.has_all)


def addresses(query: AddressesQuery, loop: Loop) -> AddressesAnswer:
    """What is known of these addresses."""
    known = _names(loop)
    rows = tuple(_row(name, loop) for name in sorted(set(query.addresses) & known))
    since_ms = loop.traffic.since_ms if loop.decides else 0
    return AddressesAnswer(rows, since_ms, loop.assignment.has_all)


def memory_status(
    partition: Partition, address: str, loop: Loop, memory: Memory | None = None
) -> MemoryStatus:
    """What one partition holds of an address; `memory` where it was loaded for that."""
    told = loop.extent(partition, address, memory)
    if memory is None:
        memory = loop.cache.look(partition.source, address)
    held, oldest_ms, newest_ms, horizon_ms = (None, None, None, None) if told is None else told
    return MemoryStatus(
        topic=partition.source.topic,
        partition=partition.source.partition,
        ids_held=held,
        capacity=settings_of(loop.config.addresses, address).room,
        bytes=0 if memory is None else memory.memory_bytes,
        oldest_time_ms=oldest_ms,
        newest_time_ms=newest_ms,
        horizon_ms=horizon_ms,
    )


def _row(address: str, loop: Loop) -> AddressRow:
    counted, running = loop.traffic.of(address), loop.assignment.running.values()
    holding = [each for each in running if address in each.addresses]
    return AddressRow(
        address=address,
        strategy=settings_of(loop.config.addresses, address).strategy,
        partitions=rings_in_order(memory_status(each, address, loop) for each in holding),
        accepted=counted.accepted,
        duplicates=counted.duplicates,
    )


def _names(loop: Loop) -> set[str]:
    """Addresses of which something is held, or of which records have come."""
    running = loop.assignment.running.values()
    return set(loop.traffic.addresses).union(*(each.addresses for each in running))


def _ranks(query: AddressOrder, names: list[str], loop: Loop) -> list[AddressRank]:
    if query.sort in {"accepted", "duplicates"}:
        counted = ((name, getattr(loop.traffic.of(name), query.sort)) for name in names)
        return [AddressRank(name, value) for name, value in counted]
    join, found = RANKING[query.sort], dict[str, list[float]]()
    for partition in loop.assignment.running.values():
        for address, value in _values(query, partition, loop):
            found.setdefault(address, []).append(value)
    return [AddressRank(name, join(found[name]) if name in found else None) for name in names]


def _values(query: AddressOrder, partition: Partition, loop: Loop) -> Iterator[tuple[str, float]]:
    """As last looked at: this is asked about all addresses, and few have changed since."""
    extents: Mapping[str, Extent] = partition.survey.extents
    for address, told in extents.items():
        if not address.startswith(query.prefix):
            continue
        if query.sort == "horizon":
            value: float | None = told.horizon_ms
        elif query.sort == "fill":
            room = settings_of(loop.config.addresses, address).room
            value = told.held / room if room else None
        else:
            value = told.held
        if value is not None:
            yield address, value
