"""The stateful processor: a judge for each deciding partition, its shelves in Spark's state.

The order. The records of one deciding partition are decided one after another, batch by batch of
the query. Within a batch those of one input partition stand in the order of their offsets, always.
With scope `partition` that is all. With scope `address` records of several input partitions meet,
as they meet in the service's topic by-address; there they stand as it was read, here by time: each
at the greatest timestamp that its partition had reached in the batch, then by topic, partition and
offset. It is one of the orders that the service's first hop may bring; which one it was, every
verdict tells by its `position`.
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

from pipeline.backfill.columns import JUDGED, TOLD
from pipeline.backfill.decider import BatchDecider, RecordVerdict, SparkRecord
from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.paged_store import PagedStore
from ringfence.headers import Headers
from state.model import PartitionId

STATE = "shelves"
"""The name of the one state variable."""


class MapEntries:
    """See `Entries`: Spark's state of the partition at hand."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def get(self, key: bytes) -> bytes | None:
        """See `Entries.get`."""
        found = self._state.getValue((key,))
        return None if found is None else bytes(found[0])

    def put(self, key: bytes, value: bytes) -> None:
        """See `Entries.put`."""
        self._state.updateValue((key,), (value,))

    def remove(self, key: bytes) -> None:
        """See `Entries.remove`."""
        self._state.removeKey((key,))


class BackfillProcessor(StatefulProcessor):
    """See the module."""

    def __init__(self, inputs: BackfillInputs) -> None:
        self._inputs = inputs

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Begin a task."""
        self._entries = MapEntries(handle.getMapState(STATE, "key binary", "value binary"))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[str, int],
        rows: Iterator[pd.DataFrame],
        timerValues: object,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """The records of one deciding partition in one batch -> their verdicts."""
        del timerValues
        frame = pd.concat(list(rows), ignore_index=True)
        decider, now_ms = PartitionId(str(key[0]), int(key[1])), int(frame["now_ms"].iloc[0])
        judge = BatchDecider(decider, self._inputs, PagedStore(self._entries), now_ms)
        frame = in_order(frame)
        found = judge.judge(rows_of(frame, self._inputs.header_names))
        judge.close()
        if found:
            yield told(found, decider)

    def close(self) -> None:
        """Nothing is held."""


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """See the module."""
    frame = frame.sort_values(["topic", "partition", "offset"], ignore_index=True)
    reached = frame.groupby(["topic", "partition"])["timestamp_ms"].cummax()
    return frame.iloc[np.argsort(reached.to_numpy(), kind="stable")]


def rows_of(frame: pd.DataFrame, names: Sequence[str]) -> list[SparkRecord]:
    """The records of a frame, as a judge reads them."""
    headers: list[list[tuple[str, bytes | None]]] = [[] for _ in range(len(frame))]
    for number, name in enumerate(names):
        column = frame[f"{TOLD}{number}"]
        if column.notna().any():
            for told_of, value in zip(headers, column.tolist(), strict=True):
                if value is not None:
                    told_of.append((name, value))
    whole = frame["headers"]
    column_of_headers: Sequence[Headers] = headers
    if whole.notna().any():
        pairs = zip(headers, whole, strict=True)
        column_of_headers = [few if full is None else _pairs(full) for few, full in pairs]
    sources: dict[tuple[str, int], PartitionId] = {}
    places = zip(frame["topic"].tolist(), frame["partition"].tolist(), strict=True)
    return list(
        map(
            SparkRecord,
            [sources.setdefault(place, PartitionId(*place)) for place in places],
            frame["offset"].tolist(),
            frame["timestamp_ms"].tolist(),
            frame["key"].tolist(),
            frame["value"].tolist(),
            column_of_headers,
        )
    )


def told(found: Sequence[RecordVerdict], decider: PartitionId) -> pd.DataFrame:
    """Verdicts as the rows of a frame; there are some."""
    sources, *columns = zip(*found, strict=True)
    offsets, times_ms, *rest = columns
    places = [[source.topic for source in sources], [source.partition for source in sources]]
    deciders = [[part] * len(found) for part in decider]
    named = zip(JUDGED.names, [*places, offsets, times_ms, *deciders, *rest], strict=True)
    return pd.DataFrame(dict(named))


def _pairs(headers: Sequence[Mapping[str, object]]) -> Headers:
    return [(str(each["key"]), cast("bytes | None", each["value"])) for each in headers]
