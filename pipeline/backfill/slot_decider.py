"""Slot decider: what a Python worker does with slots that stand whole in one task, one by one.

The records come as Arrow batches in the order of decision, slot after slot. What a deciding
partition remembers is in the memory of the worker from its first record to its last one, and then
it is given out in pages, behind the verdicts. So one partition at a time is in memory, and of its
records one batch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipeline.backfill.columns import DECIDER, JUDGED
from pipeline.backfill.decider import BatchDecider, JudgedColumns, RecordVerdict
from pipeline.backfill.held_store import HeldStore
from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.processor import columns_of
from pipeline.backfill.slots import SLOT
from state.cache import Cache
from state.model import PartitionId

PAGE: Final = ("page", "content")
"""The columns of a page of state; null in a row with a verdict."""
_PAGES_AT_ONCE: Final = 64


class SlotDecider:
    """Decides the records of one task."""

    def __init__(self, inputs: BackfillInputs, schema: pa.Schema) -> None:
        """`schema` is that of the output: verdicts, and the columns of a page."""
        self._inputs = inputs
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
                    current, memory = slots[start], _SlotMemory(part, self._inputs)
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
            yield self._batch(len(found.others), _others(found.others, memory.decider))

    def _pages(self, memory: "_SlotMemory") -> Iterator[pa.RecordBatch]:
        pages = memory.store.pages()
        while some := list(islice(pages, _PAGES_AT_ONCE)):
            keys, contents = zip(*some, strict=True)
            columns = {**_repeated(memory.decider, len(some)), PAGE[0]: keys, PAGE[1]: contents}
            yield self._batch(len(some), columns)

    def _batch(self, count: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
        arrays = [_array(columns.get(field.name), field.type, count) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _SlotMemory:
    """What a deciding partition remembers."""

    def __init__(self, part: pa.RecordBatch, inputs: BackfillInputs) -> None:
        topic, partition = (part.column(name)[0].as_py() for name in DECIDER)
        self.decider = PartitionId(topic, partition)
        self.store = HeldStore()
        self._inputs = inputs
        self._cache = Cache(inputs.cache_memory_bytes)

    def judge(self, part: pa.RecordBatch) -> JudgedColumns:
        """Return the verdicts on the next records."""
        now_ms = part.column("now_ms")[0].as_py()
        batch = BatchDecider(self.decider, self._inputs, self.store, now_ms, self._cache)
        found = batch.judge_columns(columns_of(part.to_pandas()))
        batch.close()
        return found


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


def _others(found: Sequence[RecordVerdict], decider: PartitionId) -> dict[str, Sequence[Any]]:
    sources, *columns = zip(*found, strict=True)
    of_source = [[source.topic for source in sources], [source.partition for source in sources]]
    names = [name for name in JUDGED.names if name not in DECIDER]
    named = dict(zip(names, [*of_source, *columns], strict=True))
    return named | _repeated(decider, len(found))


def _repeated(decider: PartitionId, count: int) -> dict[str, Sequence[Any]]:
    return {name: [part] * count for name, part in zip(DECIDER, decider, strict=True)}


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:  # noqa: ANN401 - or an array
    if values is None:
        return pa.nulls(count, kind)
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
