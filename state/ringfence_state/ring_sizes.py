"""Ring sizes: the memory that a full ring takes, by the path that runs and by its form.

The arithmetic is that of the structures themselves:
`state/ringfence_state/strategies/ring_memory.py` for the path in Python, `native/ring.h` and
`native/runs.h` for compiled code. All segments count as full.
Sizes are in bytes.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ringfence_state.segment import SEGMENT_IDS_MAX

ID_OVERHEAD_BYTES: Final = 190
"""Measured: dict entry, bytes object, number, pointer, offset and time of one id, without its text.

Only the ring in memory on the path in Python has them.
"""
_FIRST_BYTES: Final = 8
"""The first number of a segment that stays in the store."""
_SLOT_BYTES: Final = 8
"""A slot of `native/ring.h`: 64 bits, for a tag and half of a number."""
_SLOTS_MIN: Final = 16
"""`SLOTS_MIN` of `native/ring.h`: the smallest table."""
_KEPT_SEGMENTS: Final = 64
"""The newest segments of a compiled ring whose segments stay in the store."""
YOUNG_IDS: Final = 1 << 16
"""Number of ids in its table from which a run of them is written.

They take 1 to 2 MiB. A start reads the segments of as many ids, within a twentieth of a second.
"""
_YOUNG_MAX: Final = YOUNG_IDS + 10_000
"""How many there are with those of the batch by which there were enough.

While the thread that writes runs is late there are more, but not for long.
"""
_YOUNG_BYTES: Final = 16
"""The hash of one and where it is stored."""
_RUN_BYTES: Final = 2.55
"""Memory for an id in a run: 20 bits in its filter, and a part of a page's first hash."""
EVICTED_PART: Final = 8
"""The oldest run keeps evicted ids: on average this part of those that are held."""
_SEGMENT_BYTES: Final = 512
"""A segment of a compiled ring without its rows: what is known of it, and the names of topics."""
_ROW_BYTES: Final = 8
"""A row of it without the id: its distances of offset and time, and its source."""


class RingSizes(NamedTuple):
    """Take a number of ids and the length of each; return the memory of a full ring or window."""

    whole: Callable[[int, int], int]
    """With its ids in memory: the most that it takes."""
    stored: Callable[[int, int], int]
    """With its ids in the store: what it takes while copies come soon.

    For copies of older ids it has up to 64 segments more, some 1.5 MiB.
    """


def _segments(ids: int) -> int:
    """Return how many segments a ring has: the oldest and the newest are held in part."""
    return ids // SEGMENT_IDS_MAX + 2


def _whole(ids: int, id_bytes: int) -> int:
    return _segments(ids) * SEGMENT_IDS_MAX * (id_bytes + ID_OVERHEAD_BYTES)


def slots_max(ids: int) -> int:
    """Return how many slots the table of a full compiled ring has at most.

    A table that is 7/8 full, dead entries included, is replaced by one in which the living entries
    take at most 2/3. While it is filled the old table exists too, which no account includes.
    """
    slots = _SLOTS_MIN
    while slots - slots // 3 <= ids:
        slots *= 2
    return slots


def _segment_bytes(id_bytes: int) -> int:
    return SEGMENT_IDS_MAX * (id_bytes + _ROW_BYTES) + _SEGMENT_BYTES


def _compiled_whole(ids: int, id_bytes: int) -> int:
    segments_bytes = _segments(ids) * (_segment_bytes(id_bytes) + _FIRST_BYTES)
    return slots_max(ids) * _SLOT_BYTES + segments_bytes


def _compiled_stored(ids: int, id_bytes: int) -> int:
    young = min(ids, _YOUNG_MAX)
    table_bytes = slots_max(young) * _SLOT_BYTES + young * _YOUNG_BYTES
    segments_bytes = (_KEPT_SEGMENTS + 1) * _segment_bytes(id_bytes)
    runs = 0 if ids < YOUNG_IDS else ids + ids // EVICTED_PART
    return table_bytes + segments_bytes + int(runs * _RUN_BYTES)


PYTHON: Final = RingSizes(_whole, _whole)
NATIVE: Final = RingSizes(_compiled_whole, _compiled_stored)
