"""Prefilled stores: addresses of a stopped group, filled without Kafka, which would take hours.

The ids are written as segments to the group's store, and to nothing else: the changelog has none of
them, and a group that loses its disk loses them. What the service reads, and how it decides, is
the same.
"""

import random
import time
from collections.abc import Iterator
from typing import Final

from bench.arms import Stage
from bench.workload import Message, Workload, messages
from ringfence_service.config.addresses import AddressSettings
from ringfence_service.native.ring import NativeStoredRing
from ringfence_service.native.window import NativeStoredWindow
from ringfence_state.model import Claim, Origin, PackedPositions, PartitionId
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.stored_segments import StoredSegments

_BATCH: Final = 20_000
_PLENTY_BYTES: Final = 1 << 40


def prefill(stage: Stage, ids: int) -> None:
    """Have the stage's address hold so many ids more, of partition 0."""
    source = PartitionId(stage.input, 0)
    (folder,) = {path.parent for path in (stage.folder / "state").rglob(f"{stage.input}-0")}
    store = RocksStores(folder).open(source)
    position = store.position()
    assert position is not None  # the group has decided a record
    settings = AddressSettings(
        strategy=stage.strategy, id_cache_size=stage.id_cache_size, window_size=stage.id_cache_size
    )
    kind, now_ms = settings.remembered_by.kind, time.time_ns() // 1_000_000
    segments = StoredSegments(source, store, kind, stage.address, memory_bytes_max=_PLENTY_BYTES)
    form = NativeStoredWindow if stage.strategy == "window" else NativeStoredRing
    memory = form(segments)
    for first in range(0, ids, _BATCH):
        draft = memory.begin(settings, PackedPositions(source))
        for number in range(first, min(ids, first + _BATCH)):
            draft.remember(Claim(identifier(number)), Origin(*source, number, now_ms))
        change = draft.change(stage.address)
        assert change is not None  # all ids are new
        store.apply([*draft.deletions(stage.address), *change.edits], position)
        memory.apply(change.content)
    memory.settle()
    store.close()


def identifier(number: int) -> bytes:
    """Return an id of 36 bytes, as long as those of a workload."""
    return b"prefilled-%026d" % number


def with_far_copies(workload: Workload, ids: int) -> Iterator[Message]:
    """Yield a workload without copies, in which some ids are those of prefilled ones of any age."""
    chance = random.Random(workload.seed)
    for message in messages(workload._replace(duplicate_share=0.0)):
        if chance.random() < workload.duplicate_share:
            yield message._replace(identifier=identifier(chance.randrange(ids)))
        else:
            yield message
