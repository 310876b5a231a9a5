"""Cost of a remembered id in each shape that a ring may be kept in, each in its own process.

`python -m bench.shapes stored 1000000` fills one ring, decides some more ids on it, and prints
the cost of these as JSON. No Kafka, no headers: only deciding, remembering and the local store.
"""

import json
import os
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from rocksdict import BlockBasedOptions, Options, Rdict, WriteBatch

import ringfence_state.cache
from bench.machine import disk_bytes, memory
from ringfence_service.native.ring import FORMS, NativeRing, NativeStoredRing
from ringfence_state.cache import Cache
from ringfence_state.model import PackedPositions, PartitionId
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.store import Identity, StorePosition
from ringfence_state.strategies.base import Forms
from ringfence_state.strategies.registry import DEFAULT, STRATEGIES
from ringfence_state.strategies.ring_memory import PYTHON, InMemoryRing, RingStrategy

BATCH: Final = 2_500
STRETCH: Final = 250_000
_RECENT: Final = 1_000
_SOURCE: Final = PartitionId("input", 0)
_POSITION: Final = StorePosition(Identity("c", "i", "l", 1), 0, 0, 0)

Decide = Callable[[list[bytes]], int]
"""Decides a batch of ids; returns how many of them were known."""


class Cost(NamedTuple):
    """The cost of one shape: microseconds per id, memory and disk; and the duplicates found."""

    wall_us: float
    cpu_us: float
    rss_bytes: int
    disk_bytes: int
    duplicates: int


def ring(folder: Path, capacity: int, forms: Forms, *, whole_ids_max: int) -> Decide:
    """Return the service's own ring and store; above `whole_ids_max` the ids stay in the store."""
    RingStrategy.forms = forms
    ringfence_state.cache.WHOLE_IDS_MAX = whole_ids_max  # type: ignore[misc]
    cache, store = Cache(1 << 40), RocksStores(folder).open(_SOURCE)
    offset = 0

    def decide(ids: list[bytes]) -> int:
        nonlocal offset
        committed = cache.memory(_SOURCE, store, "bench", STRATEGIES[DEFAULT])
        assert isinstance(committed, InMemoryRing | NativeRing | NativeStoredRing)
        draft = committed.draft(capacity, PackedPositions(_SOURCE))
        known = 0
        for identifier in ids:
            offset += 1
            number = draft.admit(identifier, offset, 1_700_000_000_000 + offset)
            if number is not None:
                draft.origin(number)
                known += 1
        change = draft.change("bench")
        if change is not None:
            store.apply(draft.deletions("bench") + change.edits, _POSITION)
            cache.apply(_SOURCE, "bench", committed, change.content)
        return known

    return decide


def entries(folder: Path, capacity: int) -> Decide:
    """Return a store with one RocksDB entry per id, found through bloom filters, deleted on expiry.

    It keeps less than the service does: no origin and no time.
    """
    options, table = Options(raw_mode=True), BlockBasedOptions()
    table.set_bloom_filter(10, block_based=False)
    options.set_block_based_table_factory(table)
    db = Rdict(str(folder), options=options)
    order: deque[bytes] = deque()  # in memory, which is cheaper than reading it from the disk
    following = 0

    def decide(ids: list[bytes]) -> int:
        nonlocal following
        batch, fresh, known = WriteBatch(raw_mode=True), set[bytes](), 0
        for identifier in ids:
            if identifier in fresh or db.get(identifier) is not None:
                known += 1
                continue
            fresh.add(identifier)
            order.append(identifier)
            batch.put(identifier, following.to_bytes(8, "big"))
            following += 1
        while len(order) > capacity:
            batch.delete(order.popleft())
        db.write(batch)
        return known

    return decide


SHAPES: Final = {
    "objects": lambda folder, ids: ring(folder, ids, PYTHON, whole_ids_max=1 << 62),
    "whole": lambda folder, ids: ring(folder, ids, FORMS, whole_ids_max=1 << 62),
    "stored": lambda folder, ids: ring(folder, ids, FORMS, whole_ids_max=0),
    "entries": entries,
}


def batches(ids: int, *, copies: float, seed: int) -> Iterator[list[bytes]]:
    """Yield batches of textual ids, some of them copies of recent ones."""
    chance, recent = Random(seed), [b""]
    for _ in range(0, ids, BATCH):
        batch = []
        for _ in range(BATCH):
            if chance.random() < copies:
                batch.append(chance.choice(recent))
            else:
                batch.append(str(uuid.UUID(int=chance.getrandbits(128))).encode())
        recent = batch[-_RECENT:]
        yield batch


def cost(shape: str, ids: int, folder: Path) -> Cost:
    """Fill a ring, then measure."""
    decide = SHAPES[shape](folder, ids)
    for batch in batches(ids, copies=0, seed=1):
        decide(batch)
    prepared = list(batches(STRETCH, copies=0.1, seed=2))
    started_s, used = time.perf_counter(), os.times()
    duplicates = sum(map(decide, prepared))
    wall_s, now = time.perf_counter() - started_s, os.times()
    cpu_s = now.user + now.system - used.user - used.system
    records = len(prepared) * BATCH
    rss = memory(os.getpid()).now
    return Cost(wall_s * 1e6 / records, cpu_s * 1e6 / records, rss, disk_bytes(folder), duplicates)


def main(shape: str, ids: str) -> int:
    """Print the cost as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(cost(shape, int(ids), Path(folder))._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
