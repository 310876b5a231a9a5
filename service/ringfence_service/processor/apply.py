"""Application of a committed plan: the changes that it makes to stores, memory and partitions.

It also plans the deletion of a partition's state. Invariant: nothing is applied before Kafka has
committed the plan.
"""

from collections.abc import Iterator, Mapping

from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Plan
from ringfence_state import pending_group as pending_record
from ringfence_state.cache import Cache
from ringfence_state.model import Edit, PartitionId
from ringfence_state.store import StorePosition
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies import registry


def apply(
    plan: Plan,
    changelog_next: Mapping[PartitionId, int],
    partitions: Mapping[PartitionId, OwnedPartition],
    cache: Cache,
    now_ms: int,
) -> None:
    """Apply a committed plan to stores and memory.

    `changelog_next` has the position of each changelog partition after the commit. Errors of a
    store propagate: Kafka has committed already, so the store is behind and has to be restored.
    """
    for source, next_offset in plan.next_offsets.items():
        partition = partitions[source]
        partition.committed_offset = partition.next_offset = next_offset
        partition.time_ms = plan.times_ms.get(source, partition.time_ms)
        edits = plan.edits.get(partition.changelog) if partition.changelog else None
        if edits and partition.changelog:
            partition.changelog_next = changelog_next[partition.changelog]
            identity = partition.known_facts.identity
            position = StorePosition(identity, next_offset, partition.changelog_next, now_ms)
            partition.kept_store.apply(edits, position)
        if source in plan.volatile:
            partition.volatile.keep(plan.volatile[source])
        if source in plan.groups:
            partition.groups.apply(plan.groups[source])
    _expire(plan, partitions, cache)
    for partition, address, memory, content in plan.sealed:  # after a cache of the name expired
        cache.apply(partition.source, address, memory, content)
        partition.hold(address)
        partition.survey.changed(address)
    for source, address in plan.rewritten:
        cache.reread(source, address)
    for source, address in plan.replaced:
        cache.dismiss(source, address)
        partitions[source].survey.changed(address)
    cache.shrink()


def _expire(plan: Plan, partitions: Mapping[PartitionId, OwnedPartition], cache: Cache) -> None:
    """Drop what is kept of expired addresses, files included."""
    for source, caches in plan.expired:
        store = partitions[source].kept_store
        for name in caches:
            cache.dismiss(source, name)
            for kind in registry.kinds():
                StoredSegments(source, store, kind, name).discard()
        partitions[source].expire(caches)


def clear_plans(partition: OwnedPartition, edits_max: int) -> Iterator[Plan]:
    """Yield plans that delete the state of a partition, in pieces, a tombstone for each key.

    Until the last of them is committed the offset has no metadata, as before: a takeover in between
    finds the rest of the state, and clears it.
    """
    kinds = (*registry.kinds(), pending_record.KIND)
    keys = [key for kind in kinds for key, _ in partition.kept_store.scan(kind)]
    while True:
        piece, keys = keys[:edits_max], keys[edits_max:]
        plan = Plan(is_partial=bool(keys))
        plan.edits[partition.kept_log] = [Edit(key, None) for key in piece]
        plan.next_offsets[partition.source] = partition.next_offset
        yield plan
        if not keys:
            return
