"""ID queries and changes: list, forget, clear and import ids of the live caches.

A change is a transaction that sends the committed offsets again, so that a loop that has lost the
partition cannot commit it.
"""

from collections.abc import Callable, Iterator, Sequence

from ringfence_service.config.addresses import settings_of
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.decider import identifier_of, import_ids
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.dedup.record import KnownId, RejectedError
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.ids import (
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
from ringfence_state.model import Claim, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.segment import meant_by
from ringfence_state.strategies.base import Draft, RankedId, StoredIds


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
    holding = [
        partition
        for partition in _partitions(change.address, loop)
        if _holds(change, partition, loop)
    ]

    def fill(_rules: DecisionContext, plan: Plan, _now_ms: int) -> Iterator[Sequence[Output]]:
        settings = settings_of(loop.config.addresses, change.address)
        for partition in holding:
            store, draft = partition.store_of(settings), _draft(change.address, partition, loop)
            for identifier in meant_by(change.identifier):
                draft.renew(Claim(identifier=identifier))  # its record never comes
            edits = settings.remembered_by.renewals(store, change.address, draft)
            _write(partition, change.address, edits, plan, loop)
            plan.rewritten.append((partition.source, change.address))
        yield ()

    if holding and not change.dry_run:
        loop.change(fill)
    return ChangeAnswer(len(holding), loop.assignment.has_all)


def clear_address(change: ClearAddress, loop: Loop) -> ChangeAnswer:
    """Forget the whole state of an address, whatever its strategy."""
    settings = settings_of(loop.config.addresses, change.address)
    strategy = settings.remembered_by
    partitions = _partitions(change.address, loop)
    count = 0
    for partition in partitions:
        store = partition.store_of(settings)
        memory = loop.cache.memory(partition.source, store, change.address, strategy)
        count += len(memory)

    def fill(_rules: DecisionContext, plan: Plan, _now_ms: int) -> Iterator[Sequence[Output]]:
        for partition in partitions:
            store = partition.store_of(settings)
            edits = strategy.clear(store, change.address)
            _write(partition, change.address, edits, plan, loop)
            plan.replaced.append((partition.source, change.address))
        yield ()

    if partitions and not change.dry_run:
        loop.change(fill)
    return ChangeAnswer(count, loop.assignment.has_all)


def import_into(change: ImportIds, loop: Loop) -> ImportAnswer:
    """Import ids into an address; NotPossible if its strategy or this instance cannot."""
    settings = settings_of(loop.config.addresses, change.address)
    if not settings.remembered_by.holds_ids or not settings.remembers:
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
    deciders: dict[PartitionId, Callable[[Claim], OwnedPartition | None]] = {}
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
        partition = deciders[source](Claim(identifier=identifier_of(own)))
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
    draft = _draft(address, partition, loop)
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
    stored = _stored_ids(address, partition, loop)
    below = stored.following if start is None else start.number
    for entry in stored.newest_first(below):
        yield _row(stored, entry, IdCursor(*partition.source, entry.number + 1))


def _remembered_upwards(
    address: str, partition: OwnedPartition, loop: Loop, start: IdCursor | None
) -> Iterator[RememberedId]:
    """Yield the ids of a ring, oldest first, without those added after the listing began."""
    stored = _stored_ids(address, partition, loop)
    first = stored.floor if start is None else start.number
    end = stored.following if start is None or start.end is None else start.end
    for entry in stored.oldest_first(first, end):
        yield _row(stored, entry, IdCursor(*partition.source, entry.number, end))


def _holds(change: ForgetId, partition: OwnedPartition, loop: Loop) -> bool:
    _stored_ids(change.address, partition, loop)  # checks the strategy
    sought = meant_by(change.identifier)
    return any(_draft(change.address, partition, loop).sightings(sought, 0))


def _row(stored: StoredIds, entry: RankedId, at: IdCursor) -> RememberedId:
    left = stored.slots_to_eviction(entry.number)
    return RememberedId(entry.identifier, IdLocation(*entry.origin, left), at)


def _stored_ids(address: str, partition: OwnedPartition, loop: Loop) -> StoredIds:
    """Return the list of an address's ids; NotPossible if its strategy has none."""
    settings = settings_of(loop.config.addresses, address)
    store = partition.store_of(settings)
    stored = settings.remembered_by.stored_ids(store, address, settings)
    if stored is None:
        sentence = f"The address {address} has strategy {settings.strategy}; only a ring can do it."
        raise NotPossible(sentence)
    return stored


def _draft(address: str, partition: OwnedPartition, loop: Loop) -> Draft:
    """Begin a draft on an address, which its caller drops."""
    settings = settings_of(loop.config.addresses, address)
    store, strategy = partition.store_of(settings), settings.remembered_by
    memory = loop.cache.memory(partition.source, store, address, strategy)
    return memory.begin(settings, PackedPositions(partition.source))


def _write(
    partition: OwnedPartition, cache: str, edits: list[Edit], plan: Plan, loop: Loop
) -> None:
    plan.next_offsets[partition.source] = partition.next_offset
    if settings_of(loop.config.addresses, cache).persist_id_cache:
        plan.edits.setdefault(partition.kept_log, []).extend(edits)
    else:
        plan.volatile.setdefault(partition.source, []).extend(edits)
