"""Prefilled state: addresses of a stopped group, filled without messages, which would take hours.

The ids are written as segments to the group's store or to its changelog, and to nothing else: a
group with a prefilled store that loses its disk loses them. What the service reads, and how it
decides, is the same.
"""

import random
import shutil
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer

from bench.arms import Stage
from bench.workload import FOR_BULK, Client, Message, Workload, messages
from ringfence_service.config.addresses import AddressSettings
from ringfence_service.kafka.topics import changelog
from ringfence_service.native.ring import NativeStoredRing
from ringfence_service.native.window import NativeStoredWindow
from ringfence_state.model import Claim, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.segment import FORMAT
from ringfence_state.store import Identity, Store, StorePosition
from ringfence_state.stored_segments import StoredSegments

_BATCH: Final = 20_000
_PLENTY_BYTES: Final = 1 << 40
_AHEAD: Final = 1_000
"""Records of a changelog that the client holds: each may have some hundred kilobytes."""
_FLUSH_S: Final = 120.0


def prefill(stage: Stage, ids: int) -> None:
    """Have the stage's address hold so many ids more, of partition 0."""
    source = PartitionId(stage.input, 0)
    (folder,) = {path.parent for path in (stage.folder / "state").rglob(f"{stage.input}-0")}
    store = RocksStores(folder).open(source)
    position = store.position()
    assert position is not None  # the group has decided a record
    for edits in _filled(stage, source, store, ids):
        store.apply(edits, position)
    store.close()


def prefill_changelog(stage: Stage, client: Client, partition: int, ids: int) -> None:
    """Have the stage's address hold so many ids more on a partition, for a group without a disk."""
    source = PartitionId(stage.input, partition)
    topic, scratch = changelog(stage.group, stage.input), stage.folder / "scratch"
    producer = Producer({**client, **FOR_BULK})
    store = RocksStores(scratch).open(source)
    position = StorePosition(Identity("", "", "", FORMAT), 0, 0, 0)
    for edits in _filled(stage, source, store, ids):
        store.apply(edits, position)
        for key, value in edits:
            producer.produce(topic, value, key, partition=partition)
        producer.poll(0)
        while len(producer) > _AHEAD:
            producer.poll(0.05)
    left = producer.flush(_FLUSH_S)
    if left:
        raise TimeoutError(f"the broker did not take {left} records of {topic} in time")
    store.close()
    shutil.rmtree(scratch)


def _filled(stage: Stage, source: PartitionId, store: Store, ids: int) -> Iterator[list[Edit]]:
    """Yield the edits of each batch; the caller applies them to the store."""
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
        yield [*draft.deletions(stage.address), *change.edits]
        memory.apply(change.content)
    memory.settle()


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
