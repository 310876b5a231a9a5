"""Stateful Spark processor: a decider for each deciding partition, its store in Spark's state.

Order: the records of a deciding partition are decided one after another, batch by batch of the
query. Within a batch, those of one input partition are always in the order of their offsets. With
scope `partition` that is all. With scope `address`, records of several input partitions are merged,
as in the service's topic by-address; there in the order in which they were read, here by time: each
at the greatest timestamp that its partition had reached in the batch, then by topic, partition and
offset. The service's first hop may produce this order too. The `position` of each verdict records
it.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import uuid4

import numpy as np
import pandas as pd
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
)

from pipeline.backfill.columns import DECIDER, JUDGED
from pipeline.backfill.decider import (
    BatchDecider,
    JudgedColumns,
    RecordColumns,
    RecordVerdict,
    SparkRecord,
)
from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.kept_states import KeptStates
from ringfence.headers import DUPLICATE_ID
from state.model import PartitionId

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
        del key, timerValues
        frame = in_order(pd.concat(list(rows), ignore_index=True))
        topic, partition, now_ms = (frame[name].iloc[0] for name in (*DECIDER, "now_ms"))
        decider = PartitionId(str(topic), int(partition))
        state = _KEPT.take(self._run, decider, self._entries, self._inputs)
        batch = BatchDecider(decider, self._inputs, state.store, int(now_ms), state.cache)
        found = batch.judge_columns(columns_of(frame))
        batch.close()
        _KEPT.keep(self._run, decider, state, self._inputs.cache_memory_bytes)
        yield from frames_of(found, frame, decider)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the records of a batch in the order in which they are decided."""
    offsets = frame["offset"].to_numpy()
    if _is_same(frame["topic"]) and _is_same(frame["partition"]):
        is_sorted = bool(np.all(offsets[1:] > offsets[:-1]))
        return frame if is_sorted else frame.iloc[np.argsort(offsets)].reset_index(drop=True)
    frame = frame.sort_values(["topic", "partition", "offset"], ignore_index=True)
    reached = frame.groupby(["topic", "partition"])["timestamp_ms"].cummax()
    order = np.argsort(reached.to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True)


def columns_of(frame: pd.DataFrame) -> RecordColumns:
    """Return the records of a frame, which are in the order of decision."""
    ids, named, headers = (frame[name].tolist() for name in ("id", "named", "headers"))
    keys, values = frame["key"].tolist(), frame["value"].tolist()
    sources: dict[tuple[str, int], PartitionId] = {}
    pairs = zip(frame["topic"].tolist(), frame["partition"].tolist(), strict=True)
    places = [sources.get(each) or sources.setdefault(each, PartitionId(*each)) for each in pairs]
    offsets, times_ms = frame["offset"].to_numpy(), frame["timestamp_ms"].to_numpy()

    def record(at: int, field: str | None) -> SparkRecord:
        if headers[at] is not None:
            read = [(str(each["key"]), each["value"]) for each in headers[at]]
        else:
            read = [(DUPLICATE_ID, ids[at])]
            if field is not None and named[at] is not None:
                read.append((field, named[at]))
        offset, time_ms = int(offsets[at]), int(times_ms[at])
        return SparkRecord(places[at], offset, time_ms, keys[at], values[at], read)

    return RecordColumns(places, offsets, times_ms, ids, named, record)


def frames_of(
    found: JudgedColumns, frame: pd.DataFrame, decider: PartitionId
) -> Iterator[pd.DataFrame]:
    """Yield the verdicts as frames with the columns of `JUDGED`."""
    if found.rows.size:
        rows = frame if found.rows.size == len(frame) else frame.iloc[found.rows]
        columns = {
            **{name: rows[name] for name in ("topic", "partition", "offset", "timestamp_ms")},
            **{name: rows[name] for name in (*DECIDER, "id")},
            **found.columns,
        }
        yield pd.DataFrame({name: columns[name] for name in JUDGED.names})
    if found.others:
        yield frame_of(found.others, decider)


def frame_of(found: Sequence[RecordVerdict], decider: PartitionId) -> pd.DataFrame:
    """Return the frame of one or more verdicts."""
    sources, *columns = zip(*found, strict=True)
    offsets, times_ms, *rest = columns
    positions = [[source.topic for source in sources], [source.partition for source in sources]]
    deciders = [[part] * len(found) for part in decider]
    named = zip(JUDGED.names, [*positions, offsets, times_ms, *deciders, *rest], strict=True)
    return pd.DataFrame(dict(named))


def _is_same(column: pd.Series) -> bool:
    """Whether all values are the same."""
    return bool((column == column.iloc[0]).all())
