"""Query dispatch: the handler for each query to the loop, run between two batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ringfence_service.config.addresses import BRIDGE, settings_of
from ringfence_service.dedup.claim import is_stamp
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.processor.handlers.addresses import (
    addresses,
    directory,
    forgotten,
    memory_status,
)
from ringfence_service.processor.handlers.ids import clear_address, forget_id, ids, import_into
from ringfence_service.processor.handlers.never_known import why_never_known
from ringfence_service.processor.handlers.partitions import skip
from ringfence_service.processor.handlers.publishers import change_number, publisher, publishers
from ringfence_service.processor.handlers.redrives import checkpoints, redrive, remove_checkpoints
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.addresses import (
    AddressAnswer,
    AddressesQuery,
    AddressQuery,
    DirectoryQuery,
    MemoryStatus,
    rings_in_order,
)
from ringfence_service.queries.errors import NotRestored
from ringfence_service.queries.ids import (
    ClearAddress,
    ForgetId,
    IdAnswer,
    IdLocation,
    IdQuery,
    IdSearch,
    IdsLookup,
    IdsQuery,
    ImportIds,
    LookupAnswer,
    sightings_in_order,
)
from ringfence_service.queries.inbox import Steps
from ringfence_service.queries.partitions import SkipBatch
from ringfence_service.queries.publishers import PublisherQuery, PublishersQuery, SetSequence
from ringfence_service.queries.redrives import (
    CheckpointsQuery,
    DecideDeadLetters,
    DeleteCheckpoints,
)
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.settings import EffectiveSetting, EvictionQuery
from ringfence_state.model import PackedPositions
from ringfence_state.segment import meant_by
from ringfence_state.strategies.base import CommittedState


def answer(query: Query, loop: Loop) -> Answer | Steps[Answer]:
    """Answer a query, at once or in steps; NotRestored while partitions are being taken over.

    Partitions may be lost between two steps.
    """
    if not loop.assignment.settled:
        raise NotRestored("The partitions of this instance are not restored yet; ask again.")
    return _ANSWERS[type(query)](query, loop)


def _memories(address: str, loop: Loop) -> Iterator[tuple[OwnedPartition, CommittedState]]:
    """Yield the partitions that hold an address and its committed state, loaded if needed."""
    settings = settings_of(loop.config.addresses, address)
    for source, partition in list(loop.assignment.running.items()):
        if address in partition.addresses and loop.assignment.running.get(source) is partition:
            store = partition.store_of(settings)
            strategy = settings.remembered_by
            yield partition, loop.cache.memory(partition.source, store, address, strategy)
            loop.cache.shrink()


def _address(query: AddressQuery, loop: Loop) -> Steps[AddressAnswer]:
    address, rings = query.address, list[MemoryStatus]()
    for source, partition in list(loop.assignment.running.items()):
        if address in partition.addresses and loop.assignment.running.get(source) is partition:
            rings.append(_status(partition, address, loop))
            yield
    counted = loop.address_counters.of(address)
    settings = settings_of(loop.config.addresses, address)
    return AddressAnswer(
        address=address,
        settings=_settings(address, loop),
        partitions=rings_in_order(rings),
        accepted=counted.accepted,
        duplicates=counted.duplicates,
        counted_since_ms=loop.address_counters.since_ms if loop.decides else 0,
        complete=loop.assignment.has_all,
        shares=settings.shares if settings.is_divided else 1,
    )


def _status(partition: OwnedPartition, address: str, loop: Loop) -> MemoryStatus:
    """Return what a partition holds of an address; load its state only if it has to be."""
    memory = None
    if loop.extent(partition, address) is None:
        settings = settings_of(loop.config.addresses, address)
        store, strategy = partition.store_of(settings), settings.remembered_by
        memory = loop.cache.memory(partition.source, store, address, strategy)
    status = memory_status(partition, address, loop, memory)
    loop.cache.shrink()
    return status


def _settings(address: str, loop: Loop) -> dict[str, EffectiveSetting]:
    book = loop.config.addresses
    settings = settings_of(book, address)
    return {
        key: EffectiveSetting(getattr(settings, key), origin)
        for key, origin in book.origins(address).items()
    }


def _id(query: IdQuery, loop: Loop) -> Steps[IdAnswer]:
    address, identifier = query
    (found,) = yield from _sightings(address, [identifier], loop)
    settings = _settings(address, loop)
    why = None if found else why_never_known(address, identifier, loop.config)
    return IdAnswer(bool(found), found, settings, loop.assignment.has_all, why)


def _lookup(query: IdsLookup, loop: Loop) -> Steps[LookupAnswer]:
    found = yield from _sightings(query.address, query.identifiers, loop)
    return LookupAnswer(found, complete=loop.assignment.has_all)


def _search(query: IdSearch, loop: Loop) -> Steps[LookupAnswer]:
    found: list[tuple[IdLocation, ...]] = []
    for address in query.addresses:
        found += yield from _sightings(address, [query.identifier], loop)
        yield
    return LookupAnswer(tuple(found), complete=loop.assignment.has_all)


def _sightings(
    address: str, identifiers: Sequence[bytes], loop: Loop
) -> Steps[tuple[tuple[IdLocation, ...], ...]]:
    """Return where each id was seen, by the address and by its bridge.

    Ids that a bridge stamped are in a cache of their own.
    """
    found: list[list[IdLocation]] = [[] for _ in identifiers]
    meant = [(row, each) for row, given in enumerate(identifiers) for each in meant_by(given)]
    caches = [address, BRIDGE + address] if any(map(is_stamp, identifiers)) else [address]
    for cache in caches:
        settings = settings_of(loop.config.addresses, cache)
        for partition, memory in _memories(cache, loop):
            draft = memory.begin(settings, PackedPositions(partition.source))
            seen_by_id = draft.sightings([each for _, each in meant], partition.time_ms)
            for (row, _), seen in zip(meant, seen_by_id, strict=True):
                found[row] += [IdLocation(*each.origin, each.slots_to_eviction) for each in seen]
            yield
    return tuple(map(sightings_in_order, found))


_ANSWERS: Final[Mapping[type[Query], Callable[[Any, Loop], Answer | Steps[Answer]]]] = {
    AddressQuery: _address,
    DirectoryQuery: directory,
    AddressesQuery: addresses,
    IdQuery: _id,
    IdsLookup: _lookup,
    IdSearch: _search,
    IdsQuery: ids,
    ImportIds: import_into,
    ForgetId: forget_id,
    ClearAddress: clear_address,
    PublisherQuery: publisher,
    PublishersQuery: publishers,
    SetSequence: change_number,
    SkipBatch: skip,
    EvictionQuery: forgotten,
    DecideDeadLetters: redrive,
    CheckpointsQuery: checkpoints,
    DeleteCheckpoints: remove_checkpoints,
}
