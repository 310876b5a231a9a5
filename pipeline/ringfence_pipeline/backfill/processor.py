"""Stateful Spark processor: a decider for each deciding partition, its store in Spark's state.

Order: the records of a deciding partition are decided one after another, batch by batch of the
query. Within a batch, those of one input partition are always in the order of their offsets. With
scope `partition` that is all. With scope `address`, records of several input partitions are merged,
as in the service's topic by-address; there in the order in which they were read, here by time: each
at the greatest timestamp that its partition had reached in the batch, then by topic, partition and
offset. The service's first hop may produce this order too. The `position` of each verdict records
it.
"""

import json
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4
from zipimport import zipimporter

import numpy as np
import pandas as pd
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
)

from ringfence_client.headers import DUPLICATE_ID
from ringfence_pipeline.backfill.columns import JUDGED, PLACE_INDEX, slots_of
from ringfence_pipeline.backfill.decider import (
    BatchDecider,
    JudgedColumns,
    RecordColumns,
    RecordVerdict,
    SparkRecord,
)
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.kept_states import KeptStates
from ringfence_pipeline.backfill.slots import SLOT, Slots

STATE = "shelves"
"""The name of the only state variable; part of the checkpoint format."""


class MapEntries:
    """Spark's state of the current deciding partition, as an `EntryMap`."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self._state.updateValue((key,), (value,))

    def remove(self, key: bytes) -> None:
        """Remove an existing key."""
        self._state.removeKey((key,))


_KEPT: Final = KeptStates()
"""Of this Python worker."""


class BackfillProcessor(StatefulProcessor):
    """Decides the records of each deciding partition."""

    def __init__(self, inputs: BackfillInputs) -> None:
        self._inputs = inputs
        self._slots = slots_of(inputs)
        self._run = uuid4().hex
        """Names this start of the query: the state of another one may have the same progress."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of a task."""
        self._entries = MapEntries(handle.getMapState(STATE, "key binary", "value binary"))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Yield the verdicts of one deciding partition's records in one batch."""
        del timerValues
        (slot,) = key
        _drop_archive_readers()
        frame = in_order(pd.concat(list(rows), ignore_index=True), self._slots)
        decider = self._slots.partition(slot)
        state = _KEPT.take(self._run, decider, self._entries, self._inputs)
        now_ms = int(frame["now_ms"].iloc[0])
        batch = BatchDecider(decider, self._inputs, state.store, now_ms, state.cache)
        found = batch.judge_columns(columns_of(frame, self._slots))
        batch.close()
        _KEPT.keep(self._run, decider, state, self._inputs.cache_memory_bytes)
        yield from frames_of(found, frame, slot, self._slots)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _drop_archive_readers() -> None:
    """Drop Python's readers of zip archives, which it makes again where it needs them.

    Spark makes a worker forget what it knows of its path at the start of each task, and Python
    before 3.12 then reads the directories of Spark's large archives at once.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def in_order(frame: pd.DataFrame, slots: Slots) -> pd.DataFrame:
    """Return the records of a batch in the order in which they are decided."""
    offsets = frame["offset"].to_numpy()
    if _is_same(frame[PLACE_INDEX]):
        is_sorted = bool(np.all(offsets[1:] > offsets[:-1]))
        return frame if is_sorted else frame.iloc[np.argsort(offsets)].reset_index(drop=True)
    rank = {index: slots.partition(index) for index in frame[PLACE_INDEX].unique().tolist()}
    by_name = sorted(rank, key=rank.__getitem__)
    ranks = frame[PLACE_INDEX].map({index: at for at, index in enumerate(by_name)})
    frame = frame.iloc[np.lexsort((offsets, ranks.to_numpy()))]
    reached = frame.groupby(PLACE_INDEX)["timestamp_ms"].cummax()
    order = np.argsort(reached.to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True)


def columns_of(frame: pd.DataFrame, slots: Slots) -> RecordColumns:
    """Return the records of a frame, which are in the order of decision."""
    nothing = [None] * len(frame)
    ids, named, keys, values, rest = (
        frame[name].tolist() if name in frame else nothing
        for name in ("id", "named", "key", "value", "rest")
    )
    places = frame[PLACE_INDEX].to_numpy()
    sources = {index: slots.partition(index) for index in np.unique(places).tolist()}
    offsets, times_ms = frame["offset"].to_numpy(), frame["timestamp_ms"].to_numpy()

    def record(at: int, field: str | None) -> SparkRecord:
        key, value = keys[at], values[at]
        more = rest[at]
        if more is None:
            headers = [(DUPLICATE_ID, ids[at])]
            if field is not None and named[at] is not None:
                headers.append((field, named[at]))
        else:
            fields = json.loads(more)
            headers = [(each["key"], _binary(each, "value")) for each in fields["headers"]]
            key, value = _binary(fields, "key", key), _binary(fields, "value", value)
        offset, time_ms = int(offsets[at]), int(times_ms[at])
        return SparkRecord(sources[int(places[at])], offset, time_ms, key, value, headers)

    ends = [*(np.flatnonzero(places[1:] != places[:-1]) + 1).tolist(), len(places)]
    runs = [
        (sources[int(places[begin])], begin, end)
        for begin, end in zip([0, *ends], ends, strict=False)
    ]
    is_plain = frame["id"].notna().to_numpy() & (times_ms > 0)
    return RecordColumns(runs, offsets, times_ms, ids, is_plain, named, record)


def _binary(fields: Mapping[str, Any], name: str, default: bytes | None = None) -> bytes | None:
    """Return a binary field that Spark has written as JSON."""
    return b64decode(fields[name]) if name in fields else default


def frames_of(
    found: JudgedColumns, frame: pd.DataFrame, slot: int, slots: Slots
) -> Iterator[pd.DataFrame]:
    """Yield the verdicts as frames with the columns of `JUDGED`."""
    if found.rows.size:
        rows = frame if found.rows.size == len(frame) else frame.iloc[found.rows]
        columns = {
            **{name: rows[name] for name in (PLACE_INDEX, "offset", "timestamp_ms", SLOT, "id")},
            **{name: pd.arrays.ArrowExtensionArray(each) for name, each in found.columns.items()},
        }
        yield pd.DataFrame({name: columns[name] for name in JUDGED.names})
    if found.others:
        yield pd.DataFrame(fields_of(found.others, slot, slots))


def fields_of(found: Sequence[RecordVerdict], slot: int, slots: Slots) -> dict[str, Sequence[Any]]:
    """Return the columns of `JUDGED` for one or more verdicts of a deciding partition."""
    sources, *columns = zip(*found, strict=True)
    offsets, times_ms, *rest = columns
    places = [slots.index_of(source) for source in sources]
    named = zip(JUDGED.names, [places, offsets, times_ms, [slot] * len(found), *rest], strict=True)
    return dict(named)


def _is_same(column: pd.Series) -> bool:
    """Whether all values are the same."""
    return bool((column == column.iloc[0]).all())
