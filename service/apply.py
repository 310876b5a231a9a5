"""Apply: what a committed plan changes locally. Called after the commit and never before it."""

from collections.abc import Mapping

from service.partition import Partition
from service.plan import Plan
from state.cache import Cache
from state.edit import Source
from state.store import Position


def apply(
    plan: Plan,
    changelog_next: Mapping[Source, int],
    partitions: Mapping[Source, Partition],
    cache: Cache,
    now_ms: int,
) -> None:
    """Bring a committed plan into stores and memory.

    `changelog_next` has the position of each changelog partition after the commit. A store's
    errors pass: Kafka has committed already, so the store is behind and has to be restored.
    """
    for source, next_offset in plan.next_offsets.items():
        partition = partitions[source]
        partition.committed_offset = partition.next_offset = next_offset
        partition.time_ms = plan.times_ms.get(source, partition.time_ms)
        edits = plan.edits.get(partition.changelog) if partition.changelog else None
        if edits and partition.changelog:
            partition.changelog_next = changelog_next[partition.changelog]
            store, facts = partition.store, partition.facts
            assert store is not None  # it was decided on
            assert facts is not None
            position = Position(facts.identity, next_offset, partition.changelog_next, now_ms)
            store.apply(edits, position)
        partition.volatile.keep(plan.volatile.get(source, ()))
        partition.groups.apply(plan.groups.get(source, {}))
    for partition, address, memory, content in plan.sealed:
        cache.apply(partition.source, address, memory, content)
        partition.addresses.add(address)
        partition.survey.changed(address)
    for source, address in plan.rewritten:
        cache.reread(source, address)
    for source, address in plan.replaced:
        cache.dismiss(source, address)
        partitions[source].survey.changed(address)
    cache.shrink()
