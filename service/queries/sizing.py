"""Sizing: how many ids an address has to hold to recognise duplicates for a given time.

A duplicate is found while its original is among the last ids of its deciding partition. So what
counts is the number of other ids accepted there between an original and its last duplicate: the
rate of accepted messages on the busiest partition, times the longest delay of a duplicate.
Pure: numbers in, numbers out.
"""

import math
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from state.cache import WHOLE_IDS_MAX

SAFETY: Final = 1.5
"""What a size is multiplied by: rates are means, and retries come together with bursts."""
SIZE_MAX: Final = 1_000_000_000
"""As many ids as `id_cache_size` and `window_size` allow."""
ID_BYTES: Final = 36
"""Of the ids that the figures below were measured with: a UUID as text."""
WHOLE_BYTES: Final = 200
"""Of memory for an id of a ring that is held whole. docs/performance.md, ADR 4."""
COMPACT_BYTES: Final = 12
"""Of memory for an id of a ring that is too large for that. docs/performance.md, ADR 4."""
WINDOW_BYTES: Final = 450
"""Of memory for an id of a window. state/strategies/window.py."""
STORED_BYTES: Final = 44
"""Of disk, and of the changelog, for an id: 41 to 44 were measured. docs/performance.md, ADR 4."""

_NUMBER: Final = r"\d{1,12}(?:\.\d+)?"  # more would be no number that JSON and clocks can hold
_DURATION: Final = re.compile(
    rf"P(?:(?P<d>{_NUMBER})D)?"
    rf"(?:T(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?"
)
_SHORT: Final = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class RingUsage(NamedTuple):
    """What one deciding partition holds of the address now."""

    ids_held: int
    oldest_time_ms: int | None
    newest_time_ms: int | None

    @property
    def span_ms(self) -> int:
        """From the oldest id to the newest."""
        if self.oldest_time_ms is None or self.newest_time_ms is None:
            return 0
        return self.newest_time_ms - self.oldest_time_ms

    @property
    def per_second(self) -> float | None:
        """How fast ids were accepted, as what is held tells; None where it tells nothing."""
        return None if self.span_ms <= 0 else 1000 * (self.ids_held - 1) / self.span_ms


class AcceptRates(NamedTuple):
    """Accepted messages a second."""

    total: float
    busiest: float
    """Of the partition that has most of them."""


class RequiredSize(NamedTuple):
    """What is needed on each deciding partition, and what it takes on all of them."""

    ids_needed: int
    """On the busiest partition, with nothing to spare."""
    size: int
    """With it: what to set."""
    memory_bytes: int
    stored_bytes: int
    """Of disk; and as many of the changelog, between two compactions more."""


def observed(rings: Sequence[RingUsage]) -> AcceptRates | None:
    """What the ids that are held tell of the rate; None where they tell nothing."""
    rates = [rate for rate in (ring.per_second for ring in rings) if rate is not None]
    return AcceptRates(sum(rates), max(rates)) if rates else None


def asked(per_second: float, rings: Sequence[RingUsage]) -> AcceptRates:
    """A rate of the whole address, spread over partitions as what is held is."""
    seen = observed(rings)
    if seen is not None and seen.total:
        return AcceptRates(per_second, per_second * seen.busiest / seen.total)
    held = [ring.ids_held for ring in rings]
    share = max(held) / sum(held) if any(held) else 1.0
    return AcceptRates(per_second, per_second * share)


def sized(
    rates: AcceptRates, window_ms: int, partitions: int, *, is_window: bool
) -> RequiredSize | None:
    """The size for a rate and the longest time to a copy; None where none is large enough."""
    needed = max(1, math.ceil(rates.busiest * window_ms / 1000))
    size = round_up(math.ceil(needed * SAFETY))
    if size > SIZE_MAX:
        return None
    in_memory = WHOLE_BYTES if size <= WHOLE_IDS_MAX else COMPACT_BYTES
    ids = size * max(1, partitions)
    return RequiredSize(
        needed, size, ids * (WINDOW_BYTES if is_window else in_memory), ids * STORED_BYTES
    )


def round_up(number: int) -> int:
    """The next number that begins with two digits and goes on with zeros."""
    unit = int(10 ** max(0, len(str(number)) - 2))
    return -(-number // unit) * unit


def reach_ms(capacity: int, rates: AcceptRates) -> int | None:
    """For how long a size remembers at a rate; None for ever."""
    return None if rates.busiest <= 0 else math.floor(1000 * capacity / rates.busiest)


def duration_ms(text: str) -> int | None:
    """The milliseconds of `PT30M`, `30m` or `1800` (seconds); None for what is none of these."""
    if short := _SHORT.fullmatch(text):
        return round(float(short[1]) * _UNIT_MS[short[2]])
    long = _DURATION.fullmatch(text)
    if long and any(long.groups()):
        return round(sum(float(value) * _UNIT_MS[u] for u, value in long.groupdict("0").items()))
    return round(float(text) * 1000) if re.fullmatch(_NUMBER, text) else None
