"""Kept states: what a Python worker keeps of deciding partitions between batches.

Spark reuses its workers, so a batch often finds here what it would have to load. What is kept is
valid iff Spark's state is the one that this worker saved last. It is not after a batch that failed,
or that another worker decided.
"""

from collections import OrderedDict
from typing import NamedTuple

from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.paged_store import EntryMap, PagedStore
from ringfence_state.cache import Cache
from ringfence_state.model import PartitionId


class KeptState(NamedTuple):
    """What a Python worker keeps of a deciding partition after a batch."""

    store: PagedStore
    cache: Cache

    @property
    def memory_bytes(self) -> int:
        """Estimated memory in bytes."""
        return self.store.loaded_bytes + self.cache.memory_bytes


class KeptStates:
    """The states of the deciding partitions that a worker decided last, in LRU order."""

    def __init__(self) -> None:
        self._states: OrderedDict[tuple[str, PartitionId], KeptState] = OrderedDict()

    def take(
        self, run: str, decider: PartitionId, entries: EntryMap, inputs: BackfillInputs
    ) -> KeptState:
        """Return the state of a partition: the kept one, which is here no longer, or a new one."""
        kept = self._states.pop((run, decider), None)
        if kept is not None and kept.store.continues(entries):
            return kept
        return KeptState(PagedStore(entries), inputs.cache())

    def keep(self, run: str, decider: PartitionId, state: KeptState, memory_bytes_max: int) -> None:
        """Keep a state after its batch was saved; drop the eldest while all are too large."""
        self._states[run, decider] = state
        total_bytes = sum(each.memory_bytes for each in self._states.values())
        while total_bytes > memory_bytes_max:
            _, eldest = self._states.popitem(last=False)
            total_bytes -= eldest.memory_bytes
