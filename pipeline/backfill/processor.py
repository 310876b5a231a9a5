"""Stateful Spark processor: a decider for each deciding partition, its store in Spark's state.

Order: the records of a deciding partition are decided one after another, batch by batch of the
query. Within a batch, those of one input partition are always in the order of their offsets. With
scope `partition` that is all. With scope `address`, records of several input partitions are merged,
as in the service's topic by-address; there in the order in which they were read, here by time: each
at the greatest timestamp that its partition had reached in the batch, then by topic, partition and
offset. The service's first hop may produce this order too. The `position` of each verdict records
it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import pandas as pd
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
)

from pipeline.backfill.columns import DECIDER, HEADER_COLUMN, JUDGED
from pipeline.backfill.decider import BatchDecider, RecordVerdict, SparkRecord
from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.paged_store import PagedStore
from ringfence.headers import Headers
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


class BackfillProcessor(StatefulProcessor):
    """Decides the records of each deciding partition."""

    def __init__(self, inputs: BackfillInputs) -> None:
        self._inputs = inputs

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
        frame = pd.concat(list(rows), ignore_index=True)
        topic, partition, now_ms = (frame[name].iloc[0] for name in (*DECIDER, "now_ms"))
        decider, now_ms = PartitionId(str(topic), int(partition)), int(now_ms)
        batch = BatchDecider(decider, self._inputs, PagedStore(self._entries), now_ms)
        frame = in_order(frame)
        found = batch.judge(rows_of(frame, self._inputs.header_names))
        batch.close()
        if found:
            yield frame_of(found, decider)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the records of a batch in the order in which they are decided."""
    frame = frame.sort_values(["topic", "partition", "offset"], ignore_index=True)
    reached = frame.groupby(["topic", "partition"])["timestamp_ms"].cummax()
    return frame.iloc[np.argsort(reached.to_numpy(), kind="stable")]


def rows_of(frame: pd.DataFrame, names: Sequence[str]) -> list[SparkRecord]:
    """Return the records of a frame for a `BatchDecider`."""
    headers: list[list[tuple[str, bytes | None]]] = [[] for _ in range(len(frame))]
    for number, name in enumerate(names):
        column = frame[f"{HEADER_COLUMN}{number}"]
        if column.notna().any():
            for of_record, value in zip(headers, column.tolist(), strict=True):
                if value is not None:
                    of_record.append((name, value))
    whole = frame["headers"]
    column_of_headers: Sequence[Headers] = headers
    if whole.notna().any():
        pairs = zip(headers, whole, strict=True)
        column_of_headers = [few if full is None else _pairs(full) for few, full in pairs]
    sources: dict[tuple[str, int], PartitionId] = {}
    partitions = zip(frame["topic"].tolist(), frame["partition"].tolist(), strict=True)
    return list(
        map(
            SparkRecord,
            [sources.setdefault(each, PartitionId(*each)) for each in partitions],
            frame["offset"].tolist(),
            frame["timestamp_ms"].tolist(),
            frame["key"].tolist(),
            frame["value"].tolist(),
            column_of_headers,
        )
    )


def frame_of(found: Sequence[RecordVerdict], decider: PartitionId) -> pd.DataFrame:
    """Return the frame of one or more verdicts."""
    sources, *columns = zip(*found, strict=True)
    offsets, times_ms, *rest = columns
    positions = [[source.topic for source in sources], [source.partition for source in sources]]
    deciders = [[part] * len(found) for part in decider]
    named = zip(JUDGED.names, [*positions, offsets, times_ms, *deciders, *rest], strict=True)
    return pd.DataFrame(dict(named))


def _pairs(headers: Sequence[Mapping[str, object]]) -> Headers:
    return [(str(each["key"]), cast("bytes | None", each["value"])) for each in headers]
