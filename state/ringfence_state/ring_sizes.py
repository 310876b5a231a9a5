"""Ring sizes: the most memory that a full ring takes, by the path that runs and by its form.

The arithmetic is that of the structures themselves:
`state/ringfence_state/strategies/ring_memory.py` and `state/ringfence_state/id_index.py` for the
path in Python, `native/ring.h` for compiled code. All segments count as full. Sizes are in bytes.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ringfence_state.id_index import memory_bytes_max
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
_SEGMENT_BYTES: Final = 512
"""A segment of a compiled ring without its rows: what is known of it, and the names of topics."""
_ROW_BYTES: Final = 8
"""A row of it without the id: its distances of offset and time, and its source."""


class RingSizes(NamedTuple):
    """Take a number of ids and the length of each; return the most memory of a ring."""

    whole: Callable[[int, int], int]
    """With its ids in memory."""
    indexed: Callable[[int, int], int]
    """With its ids in the store."""


def _segments(ids: int) -> int:
    """Return how many segments a ring has: the oldest and the newest are held in part."""
    return ids // SEGMENT_IDS_MAX + 2


def _whole(ids: int, id_bytes: int) -> int:
    return _segments(ids) * SEGMENT_IDS_MAX * (id_bytes + ID_OVERHEAD_BYTES)


def _indexed(ids: int, _id_bytes: int) -> int:
    return memory_bytes_max(ids) + _segments(ids) * _FIRST_BYTES


def slots_max(ids: int) -> int:
    """Return how many slots the table of a full compiled ring has at most.

    A table that is 7/8 full, dead entries included, is replaced by one in which the living entries
    take at most 2/3. While it is filled the old table exists too, which no account includes.
    """
    slots = _SLOTS_MIN
    while slots - slots // 3 <= ids:
        slots *= 2
    return slots


def _compiled(ids: int, id_bytes: int, segments: int) -> int:
    segment_bytes = SEGMENT_IDS_MAX * (id_bytes + _ROW_BYTES) + _SEGMENT_BYTES
    table_bytes = slots_max(ids) * _SLOT_BYTES
    return table_bytes + segments * segment_bytes + _segments(ids) * _FIRST_BYTES


def _compiled_whole(ids: int, id_bytes: int) -> int:
    return _compiled(ids, id_bytes, _segments(ids))


def _compiled_indexed(ids: int, id_bytes: int) -> int:
    return _compiled(ids, id_bytes, _KEPT_SEGMENTS + 1)


PYTHON: Final = RingSizes(_whole, _indexed)
NATIVE: Final = RingSizes(_compiled_whole, _compiled_indexed)
