"""ID queries and changes: list, forget, clear and import ids of the live caches.

A change is a transaction that sends the committed offsets again, so that a loop that has lost the
partition cannot commit it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.config.addresses import AddressSettings, settings_of
from service.dedup.checks import DecisionContext
from service.dedup.decider import identifier_of, import_ids
from service.dedup.partition import OwnedPartition
from service.dedup.plan import Output, Plan
from service.dedup.record import KnownId, RejectedError
from service.processor.loop import Loop
from service.queries.errors import NotPossible
from service.queries.ids import (
    ChangeAnswer,
    ClearAddress,
    ForgetId,
    IdCursor,
    IdLocation,
    IdsAnswer,
    IdsQuery,
    ImportAnswer,
    ImportIds,
    RememberedId,
)
from state.cache import AnyRing
from state.keys import prefix
from state.model import Claim, Edit, Origin, PackedPositions, PartitionId
from state.store import Store
from state.strategies.registry import RING, STRATEGIES
from state.strategies.ring_admin import RingEntry, bounds, clear, entries, entries_upwards, forget


def ids(query: IdsQuery, loop: Loop) -> IdsAnswer:
    """Return a page of the ids of an address."""
    found: list[RememberedId] = []
    start = query.cursor
    listed = _remembered_upwards if query.oldest_first else _remembered
    for partition in _partitions(query.address, loop):
        if start is not None and partition.source < (start.topic, start.partition):
            continue
        is_start = start is not None and partition.source == (start.topic, start.partition)
        for remembered in listed(query.address, partition, loop, start if is_start else None):
            if len(found) == query.limit:
                return IdsAnswer(tuple(found), remembered.at, loop.assignment.has_all)
            found.append(remembered)
    return IdsAnswer(tuple(found), None, loop.assignment.has_all)


def forget_id(change: ForgetId, loop: Loop) -> ChangeAnswer:
    """Forget one id; the next record with it is accepted."""
    numbers = {
        partition.source: number
        for partition in _partitions(change.address, loop)
        if (number := _number(change, partition, loop)) is not None
    }

    def fill(_rules: DecisionContext, plan: Plan, _now_ms: int) -> Iterator[Sequence[Output]]:
        for source, number in numbers.items():
            partition = loop.assignment.running[source]
            store = partition.store_of(settings_of(loop.config.addresses, change.address))
            _write(partition, change.address, [forget(store, change.address, number)], plan, loop)
            plan.rewritten.append((source, change.address))
        yield ()

    if numbers and not change.dry_run:
        loop.change(fill)
    return ChangeAnswer(len(numbers), loop.assignment.has_all)


def clear_address(change: ClearAddress, loop: Loop) -> ChangeAnswer:
    """Forget the whole state of an address, whatever its strategy."""
    settings = settings_of(loop.config.addresses, change.address)
    strategy = STRATEGIES.get(settings.strategy, RING)
    partitions = _partitions(change.address, loop)
    count = 0
    for partition in partitions:
        store = partition.store_of(settings)
        memory = loop.cache.memory(partition.source, store, change.address, strategy)
        count += len(memory)

    def fill(_rules: DecisionContext, plan: Plan, _now_ms: int) -> Iterator[Sequence[Output]]:
        for partition in partitions:
            store = partition.store_of(settings)
            begin = prefix(strategy.kind, change.address)
            edits = [Edit(key, None) for key, _ in store.scan(begin)]
            if strategy is RING:
                edits = clear(store, change.address)
            _write(partition, change.address, edits, plan, loop)
            plan.replaced.append((partition.source, change.address))
        yield ()

    if partitions and not change.dry_run:
        loop.change(fill)
    return ChangeAnswer(count, loop.assignment.has_all)


def import_into(change: ImportIds, loop: Loop) -> ImportAnswer:
    """Import ids into an address; NotPossible if its strategy or this instance cannot."""
    settings = settings_of(loop.config.addresses, change.address)
    if settings.strategy not in {"ring", "window"} or not settings.remembers:
        sentence = (
            f"The address {change.address} has strategy {settings.strategy} and room for "
            f"{settings.room}; ids are imported where it is ring or window, and has room."
        )
        raise NotPossible(sentence)
    ids, new = _by_decider(change, loop), 0
    for source, known in ids.items():
        new += _count_new(change.address, known, loop.assignment.running[source], loop)

    def fill(rules: DecisionContext, plan: Plan, now_ms: int) -> Iterator[Sequence[Output]]:
        for source, known in ids.items():
            partition = loop.assignment.running[source]
            yield from import_ids(partition, change.address, known, rules, plan, now_ms)

    if not change.dry_run:
        try:
            loop.change(fill)
        except RejectedError as error:
            raise NotPossible(f"{change.address} takes no ids: {error}.") from error
    return ImportAnswer(sum(map(len, ids.values())), new, loop.assignment.has_all)


def _by_decider(change: ImportIds, loop: Loop) -> dict[PartitionId, list[KnownId]]:
    """Group the ids by the partition here that decides them; NotPossible if none does.

    Ids that other instances decide are left out.
    """
    deciders: dict[PartitionId, OwnedPartition | None] = {}
    found: dict[PartitionId, list[KnownId]] = {}
    for known in change.ids:
        own = known._replace(
            topic=known.topic or change.topic,
            partition=change.partition if known.partition is None else known.partition,
        )
        source = PartitionId(
            change.topic or own.topic or "",
            (own.partition or 0) if change.partition is None else change.partition,
        )
        if source not in deciders:
            deciders[source] = loop.decider(change.address, source)
        partition = deciders[source]
        if partition is not None:
            found.setdefault(partition.source, []).append(own)
    if not found:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(deciders)[:5])
        raise NotPossible(
            f"{names} is no partition of an input that this instance decides; "
            "name inputs of a route, or ask the instance that owns them."
        )
    return found


def _count_new(address: str, ids: Sequence[KnownId], partition: OwnedPartition, loop: Loop) -> int:
    """Count the distinct ids that a partition does not know yet."""
    settings = settings_of(loop.config.addresses, address)
    store, strategy = partition.store_of(settings), STRATEGIES[settings.strategy]
    memory = loop.cache.memory(partition.source, store, address, strategy)
    draft = memory.begin(settings, PackedPositions(partition.source))
    at = Origin(*partition.source, 0, partition.time_ms)
    claims = {identifier_of(known): Claim(identifier=identifier_of(known)) for known in ids}
    return sum(draft.verdict(claim, at) is None for claim in claims.values())


def _partitions(address: str, loop: Loop) -> list[OwnedPartition]:
    """Return the running partitions that hold an address, in order."""
    running = loop.assignment.running
    return [running[source] for source in sorted(running) if address in running[source].addresses]


def _remembered(
    address: str, partition: OwnedPartition, loop: Loop, start: IdCursor | None
) -> Iterator[RememberedId]:
    """Yield the ids of a ring, newest first, with numbers below the cursor's."""
    ring = _StoredRing.of(address, partition, loop)
    below = ring.following if start is None else min(start.number, ring.following)
    for entry in entries(ring.store, address, below, ring.floor):
        yield ring.remembered(entry, IdCursor(*partition.source, entry.number + 1))


def _remembered_upwards(
    address: str, partition: OwnedPartition, loop: Loop, start: IdCursor | None
) -> Iterator[RememberedId]:
    """Yield the ids of a ring, oldest first, without those added after the listing began."""
    ring = _StoredRing.of(address, partition, loop)
    first = ring.floor if start is None else max(start.number, ring.floor)
    end = ring.following if start is None or start.end is None else start.end
    for entry in entries_upwards(ring.store, address, first, end):
        yield ring.remembered(entry, IdCursor(*partition.source, entry.number, end))


class _StoredRing(NamedTuple):
    """A ring as stored in its segments; it need not be in memory."""

    store: Store
    floor: int
    following: int
    capacity: int

    @classmethod
    def of(cls, address: str, partition: OwnedPartition, loop: Loop) -> "_StoredRing":
        """Read the ring of an address; NotPossible if its strategy is another one."""
        settings = _settings_of_ring(address, loop)
        store = partition.store_of(settings)
        return cls(store, *bounds(store, address, settings.capacity), settings.capacity)

    def remembered(self, entry: RingEntry, at: IdCursor) -> RememberedId:
        """Build the row of one entry."""
        left = entry.number - (self.following - self.capacity) + 1
        return RememberedId(entry.identifier, IdLocation(*entry.origin, left), at)


def _number(change: ForgetId, partition: OwnedPartition, loop: Loop) -> int | None:
    ring = _ring(change.address, partition, loop)
    capacity = settings_of(loop.config.addresses, change.address).capacity
    return ring.draft(capacity, PackedPositions(partition.source)).judge(change.identifier)


def _ring(address: str, partition: OwnedPartition, loop: Loop) -> AnyRing:
    settings = _settings_of_ring(address, loop)
    return loop.cache.ring(partition.source, partition.store_of(settings), address)


def _settings_of_ring(address: str, loop: Loop) -> AddressSettings:
    settings = settings_of(loop.config.addresses, address)
    if STRATEGIES.get(settings.strategy, RING) is not RING:
        sentence = f"The address {address} has strategy {settings.strategy}; only a ring can do it."
        raise NotPossible(sentence)
    return settings


def _write(
    partition: OwnedPartition, cache: str, edits: list[Edit], plan: Plan, loop: Loop
) -> None:
    plan.next_offsets[partition.source] = partition.next_offset
    if settings_of(loop.config.addresses, cache).persist_id_cache:
        assert partition.changelog is not None  # it remembers
        plan.edits.setdefault(partition.changelog, []).extend(edits)
    else:
        plan.volatile.setdefault(partition.source, []).extend(edits)
