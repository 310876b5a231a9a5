"""Sizing: how many ids an address must hold to recognise duplicates for a given time.

A duplicate is found while its original is among the last ids of its deciding partition. So the size
follows from the number of ids accepted there between an original and its last duplicate: the rate
of accepted records on the busiest partition, times the longest delay of a duplicate.
Pure: numbers in, numbers out.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from ringfence_service.config.model import FastPath
from ringfence_state.cache import FULL, WHOLE_IDS_MAX
from ringfence_state.ring_sizes import EVICTED_PART, NATIVE, PYTHON, YOUNG_IDS

RATE_MAX: Final = 1e9
"""The highest rate of accepted records per second that is planned for."""
RETRY_WINDOW_MS_MAX: Final = 366 * 86_400_000
"""The longest delay of a duplicate that is planned for: a year."""
SAFETY: Final = 1.5
"""The margin of a size: rates are means, and retries come together with bursts."""
SIZE_MAX: Final = 1_000_000_000
"""The largest `id_cache_size` and `window_size`."""
ID_BYTES: Final = 36
"""The length of the ids with which the figures below were measured: a UUID as text."""
WINDOW_BYTES: Final = 450
"""Memory per id of a window on the path in Python. state/ringfence_state/strategies/window.py."""
NAME_BYTES: Final = 2
"""What an id of a window has before it where no publisher is named."""
STORED_BYTES: Final = 44
"""Bytes per id on disk, and in the changelog; measured: 41 to 44. docs/performance.md, ADR 4."""
RUN_BYTES: Final = 14.6 * (1 + 1 / EVICTED_PART)
"""Bytes per id in the files of a large ring on the compiled path, beside the store. ADR 33."""
RESTORED_PER_SECOND: Final = 2_000_000
"""Ids that a worker restores per second when its disk is lost. docs/performance.md."""
RING_LOAD_US: Final = 0.7
"""Microseconds per id until a ring is in memory, which its first record waits for. ADR 4.

A large ring on the compiled path loads the newest ids only. ADR 33.
"""
WINDOW_LOAD_US: Final = 2.0
"""The same for a window on the path in Python; measured: 1.8 to 2.5."""
_MIB: Final = 1024 * 1024


class RingUsage(NamedTuple):
    """The ids that one deciding partition holds for an address."""

    ids_held: int
    oldest_time_ms: int | None
    newest_time_ms: int | None

    @property
    def span_ms(self) -> int:
        """The time from the oldest id to the newest; 0 if unknown."""
        if self.oldest_time_ms is None or self.newest_time_ms is None:
            return 0
        return self.newest_time_ms - self.oldest_time_ms

    @property
    def per_second(self) -> float | None:
        """The rate at which the held ids were accepted; None if it cannot be derived."""
        return None if self.span_ms <= 0 else 1000 * (self.ids_held - 1) / self.span_ms


class AcceptRates(NamedTuple):
    """Accepted records per second."""

    total: float
    busiest: float
    """On the busiest partition."""


class RequiredSize(NamedTuple):
    """The size that each deciding partition needs, and what all of them cost when they are full."""

    ids_needed: int
    """On the busiest partition, without a margin."""
    size: int
    """With the margin: the value to set."""
    memory_bytes: int
    disk_bytes: int
    changelog_bytes: int
    """It takes more between two compactions."""
    restore_ms: int
    """How long one worker restores all of them after its disk is lost."""
    load_ms: int
    """How long loading ids into memory delays their first records after a start."""

    @property
    def cache_memory_mb(self) -> int:
        """The MiB of id cache at which transactions that use all of them are not cut short."""
        return math.ceil(self.memory_bytes / FULL / _MIB)


def observed(rings: Sequence[RingUsage]) -> AcceptRates | None:
    """Return the rates at which the held ids were accepted; None if they cannot be derived."""
    rates = [rate for rate in (ring.per_second for ring in rings) if rate is not None]
    return AcceptRates(sum(rates), max(rates)) if rates else None


def asked(per_second: float, rings: Sequence[RingUsage]) -> AcceptRates:
    """Return the rates for a total rate, distributed over partitions like the held ids."""
    rates = observed(rings)
    if rates is not None and rates.total:
        return AcceptRates(per_second, per_second * rates.busiest / rates.total)
    held = [ring.ids_held for ring in rings]
    share = max(held) / sum(held) if any(held) else 1.0
    return AcceptRates(per_second, per_second * share)


def sized(
    rates: AcceptRates, window_ms: int, partitions: int, path: FastPath, *, is_window: bool
) -> RequiredSize | None:
    """Return the size for a rate and the longest delay of a duplicate; None above the maximum.

    `path` is the fast path that runs.
    """
    needed = max(1, math.ceil(rates.busiest * window_ms / 1000))
    size = round_up(math.ceil(needed * SAFETY))
    if size > SIZE_MAX:
        return None
    partitions = max(1, partitions)
    ids = size * partitions
    is_stored = path == "native" and size > WHOLE_IDS_MAX
    loaded = YOUNG_IDS * partitions if is_stored else ids
    return RequiredSize(
        ids_needed=needed,
        size=size,
        memory_bytes=partitions * memory_bytes(size, path, is_window=is_window),
        disk_bytes=disk_bytes(ids, math.ceil(ids * RUN_BYTES) if is_stored else 0),
        changelog_bytes=ids * STORED_BYTES,
        restore_ms=math.ceil(1000 * ids / RESTORED_PER_SECOND),
        load_ms=math.ceil(loaded * _load_us(path, is_window=is_window) / 1000),
    )


def memory_bytes(size: int, path: FastPath, *, is_window: bool) -> int:
    """Return the memory that an address takes on one partition once its size is reached.

    Each id of a window counts once; an id that is seen again has a second place for a time.
    """
    if path == "python":
        return size * WINDOW_BYTES if is_window else PYTHON.whole(size, ID_BYTES)
    bytes_of = NATIVE.whole if size <= WHOLE_IDS_MAX else NATIVE.stored
    return bytes_of(size, ID_BYTES + NAME_BYTES * is_window)


def disk_bytes(ids: int, run_bytes: int) -> int:
    """Return what ids take on disk, with files of so many bytes that find them."""
    return ids * STORED_BYTES + run_bytes


def _load_us(path: FastPath, *, is_window: bool) -> float:
    return WINDOW_LOAD_US if is_window and path == "python" else RING_LOAD_US


def round_up(number: int) -> int:
    """Round up to two significant digits."""
    unit = int(10 ** max(0, len(str(number)) - 2))
    return -(-number // unit) * unit


def reach_ms(capacity: int, rates: AcceptRates) -> int | None:
    """Return how long a size remembers ids at a rate; None without a limit."""
    return None if rates.busiest <= 0 else math.floor(1000 * capacity / rates.busiest)
