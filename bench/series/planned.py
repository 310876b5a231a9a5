"""Planned series: the memory that a plan states, beside that of rings and windows that are full.

Their sizes are drawn between a thousand and 30 million, as evenly on a scale of powers of ten as
chance has it. Each is filled in this process, over a RocksDB store and without Kafka, until all of
its first ids are evicted.
"""

import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final, cast

from bench.finding import Finding, Row
from bench.machine import MIB
from bench.prefilled import identifier
from bench.session import Session
from ringfence_service.config.addresses import AddressSettings
from ringfence_service.native.ring import NativeRing, NativeStoredRing
from ringfence_service.native.window import NativeStoredWindow, NativeWindow
from ringfence_service.queries.sizing import memory_bytes, round_up
from ringfence_state.cache import WHOLE_IDS_MAX
from ringfence_state.model import Claim, Origin, PackedPositions, PartitionId
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.segment import FORMAT
from ringfence_state.store import Identity, StorePosition
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import CommittedState, Draft

_SIZES: Final = 40
_LEAST: Final = 1_000
_MOST: Final = 30_000_000
_BATCH: Final = 2_000
_TURNS: Final = 2
_SEED: Final = 1
_SOURCE: Final = PartitionId("planned", 0)
_POSITION: Final = StorePosition(Identity("planned", "", "", FORMAT), 0, 0, 0)
_PLENTY_BYTES: Final = 1 << 40


def planned(session: Session) -> Finding:
    """Fill a ring or a window of each size, and compare what it takes with its plan."""
    chance, rows = random.Random(_SEED), list[Row]()
    for number in range(_SIZES):
        most = session.scaled(_MOST)
        size = round_up(round(_LEAST * (most / _LEAST) ** chance.random()))
        strategy = ("ring", "window")[number % 2]
        stated = memory_bytes(size, "native", is_window=strategy == "window") / MIB
        taken = [each / MIB for each in _taken(strategy, size)]
        rows.append(
            {
                "full": f"{strategy}, {size:,}",
                "stated, MiB": stated,
                "taken, MiB": median(taken),
                "at most, MiB": max(taken),
                "stated, to taken": stated / median(taken),
            }
        )
        session.say(f"{strategy} of {size:,}: {stated:.1f} MiB stated, {median(taken):.1f} taken")
    rows.sort(key=lambda row: cast("float", row["stated, MiB"]))
    return Finding("Memory of full rings and windows beside their plans", {"batch": _BATCH}, rows)


def _taken(strategy: str, size: int) -> list[int]:
    """Return the bytes that it takes after each batch since it was full."""
    settings = AddressSettings(strategy=strategy, id_cache_size=size, window_size=size)
    found, now_ms = list[int](), time.time_ns() // 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        store = RocksStores(Path(folder)).open(_SOURCE)
        kind, address = settings.remembered_by.kind, "planned"
        segments = StoredSegments(_SOURCE, store, kind, address, memory_bytes_max=_PLENTY_BYTES)
        memory = _made(segments, size, is_window=strategy == "window")
        for first in range(0, _TURNS * size + _BATCH, _BATCH):
            draft = cast("Draft", memory.begin(settings, PackedPositions(_SOURCE)).by_id)
            for number in range(first, first + _BATCH):
                draft.remember(Claim(identifier(number)), Origin(*_SOURCE, number, now_ms))
            change = draft.change(address)
            assert change is not None  # all ids are new
            store.apply([*draft.deletions(address), *change.edits], _POSITION)
            memory.apply(change.content)
            if first >= size:
                found.append(memory.memory_bytes)
        store.close()
    return found


def _made(segments: StoredSegments, size: int, *, is_window: bool) -> CommittedState:
    if size <= WHOLE_IDS_MAX:
        return NativeWindow() if is_window else NativeRing()
    return NativeStoredWindow(segments) if is_window else NativeStoredRing(segments)
