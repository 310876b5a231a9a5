"""Answers: what the loop tells of addresses and ids, read between two batches."""

from service.control import (
    AddressAnswer,
    AddressQuery,
    Answer,
    EffectiveSetting,
    IdAnswer,
    IdQuery,
    NotRestored,
    Query,
    RingStatus,
    Sighting,
)
from service.loop import Loop
from service.partition import Partition
from state.cache import AnyRing


def answer(query: Query, loop: Loop) -> Answer:
    """The answer to a question; NotRestored while no partition could give it."""
    partitions = list(loop.assignment.running.values())
    if not loop.assignment.settled:
        raise NotRestored("The partitions of this instance are not restored yet; ask again.")
    match query:
        case AddressQuery(address):
            return _address(address, partitions, loop)
        case IdQuery(address, identifier):
            return _id(address, identifier, partitions, loop)


def _rings(
    address: str, partitions: list[Partition], loop: Loop
) -> list[tuple[Partition, AnyRing]]:
    """The rings that hold something of an address, loaded where they are not in memory."""
    found = []
    for partition in partitions:
        if address in partition.addresses:
            assert partition.store is not None  # it runs
            ring = loop.cache.ring(partition.source, partition.store, address)
            found.append((partition, ring))
    loop.cache.shrink()
    return found


def _address(address: str, partitions: list[Partition], loop: Loop) -> AddressAnswer:
    book = loop.config.addresses
    settings, origins = book.settings(address), book.origins(address)
    rings = _rings(address, partitions, loop)
    return AddressAnswer(
        address=address,
        settings={
            key: EffectiveSetting(getattr(settings, key), origin) for key, origin in origins.items()
        },
        partitions=tuple(_status(p, ring, settings.id_cache_size) for p, ring in rings),
        complete=loop.assignment.has_all,
    )


def _status(partition: Partition, ring: AnyRing, capacity: int) -> RingStatus:
    floor = max(ring.floor, ring.next - capacity)  # a resize is written with the next batch
    held = ring.next - floor
    oldest = ring.origin(floor).time_ms if held else None
    newest = ring.origin(ring.next - 1).time_ms if held else None
    evicted = floor > 0
    return RingStatus(
        topic=partition.source.topic,
        partition=partition.source.partition,
        ids_held=held,
        capacity=capacity,
        bytes=ring.memory_bytes,
        oldest_time_ms=oldest,
        newest_time_ms=newest,
        horizon_ms=None if oldest is None or newest is None or not evicted else newest - oldest,
    )


def _id(address: str, identifier: bytes, partitions: list[Partition], loop: Loop) -> IdAnswer:
    capacity = loop.config.addresses.settings(address).id_cache_size
    sightings = []
    for partition, ring in _rings(address, partitions, loop):
        number = ring.draft(capacity, partition.source).judge(identifier)
        if number is not None:
            origin = ring.origin(number)
            left = number - (ring.next - capacity) + 1
            sightings.append(Sighting(*origin, slots_to_eviction=left))
    return IdAnswer(bool(sightings), tuple(sightings), complete=loop.assignment.has_all)
