"""Slot decider: what a Python worker does with slots that stand whole in one task, one by one.

The records come as Arrow batches in the order of decision, slot after slot. What a deciding
partition remembers is in the memory of the worker from its first record to its last one, and then
it is given out in pages, behind the verdicts. So one partition at a time is in memory, and of its
records one batch.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ringfence_pipeline.backfill.columns import slots_of
from ringfence_pipeline.backfill.decider import BatchDecider, JudgedColumns
from ringfence_pipeline.backfill.held_store import HeldStore
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.processor import columns_of, fields_of
from ringfence_pipeline.backfill.slots import SLOT, Slots

PAGE: Final = ("page", "content")
"""The columns of a page of state; null in a row with a verdict."""
_PAGES_AT_ONCE: Final = 64
"""Pages of state in one Arrow batch: some 16 MiB of `PAGE_BYTES` each, before compression.

The worker and the JVM hold a batch in memory. One page at a time would cost a batch for each.
"""


class SlotDecider:
    """Decides the records of one task."""

    def __init__(self, inputs: BackfillInputs, schema: pa.Schema) -> None:
        """`schema` is that of the output: verdicts, and the columns of a page."""
        self._inputs = inputs
        self._slots = slots_of(inputs)
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the verdicts on these records, and the state after the last record of a slot."""
        current: int | None = None
        memory: _SlotMemory | None = None
        for batch in batches:
            slots = batch.column(SLOT).to_numpy()
            starts = [0, *(np.flatnonzero(slots[1:] != slots[:-1]) + 1).tolist()]
            for start, end in zip(starts, [*starts[1:], len(slots)], strict=True):
                part = batch.slice(start, end - start)
                if memory is None or slots[start] != current:
                    if memory is not None:
                        yield from self._pages(memory)
                    current = int(slots[start])
                    memory = _SlotMemory(current, self._inputs, self._slots)
                yield from self._judged(memory, part)
        if memory is not None:
            yield from self._pages(memory)

    def _judged(self, memory: "_SlotMemory", part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        found = memory.judge(part)
        if found.rows.size:
            is_all = found.rows.size == part.num_rows
            rows = part if is_all else part.take(pa.array(found.rows))
            yield self._batch(found.rows.size, {**_columns(rows), **found.columns})
        if found.others:
            yield self._batch(len(found.others), fields_of(found.others, memory.slot, self._slots))

    def _pages(self, memory: "_SlotMemory") -> Iterator[pa.RecordBatch]:
        pages = memory.store.pages()
        while some := list(islice(pages, _PAGES_AT_ONCE)):
            keys, contents = zip(*some, strict=True)
            columns = {SLOT: [memory.slot] * len(some), PAGE[0]: keys, PAGE[1]: contents}
            yield self._batch(len(some), columns)

    def _batch(self, count: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
        arrays = [_array(columns.get(field.name), field.type, count) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _SlotMemory:
    """What a deciding partition remembers."""

    def __init__(self, slot: int, inputs: BackfillInputs, slots: Slots) -> None:
        self.slot = slot
        self.store = HeldStore()
        self._inputs, self._slots = inputs, slots
        self._cache = inputs.cache()

    def judge(self, part: pa.RecordBatch) -> JudgedColumns:
        """Return the verdicts on the next records."""
        now_ms = part.column("now_ms")[0].as_py()
        decider = self._slots.partition(self.slot)
        batch = BatchDecider(decider, self._inputs, self.store, now_ms, self._cache)
        found = batch.judge_columns(columns_of(part.to_pandas(), self._slots))
        batch.close()
        return found


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:  # noqa: ANN401 - or an array
    if values is None:
        return pa.nulls(count, kind)
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
