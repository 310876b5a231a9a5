"""Address directory: a cached list of all addresses with the values by which they can be sorted.

Reading it costs the loops a millisecond per thousand addresses, so it is cached for a time in
proportion to its length: a short list is read for each request, and a very long one may be some
seconds old. Concurrent requests share one read. Sorting runs outside the API's thread.
"""

import asyncio
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import isnan, nan
from threading import Lock
from typing import Final, NamedTuple

from ringfence_service.queries.addresses import RANKING, DirectoryAnswer, DirectoryQuery, SortKey
from ringfence_service.queries.errors import TimedOut
from ringfence_service.queries.inbox import QueryService

FRESH_S_EACH: Final = 100e-6
"""Maximum age of a directory per address: a hundred times what reading an address takes."""
_FRESH_S_MAX: Final = 60.0
"""Reached at 600,000 addresses: a list that is older is read again.

Reading a million addresses takes a second of the loops' time, which they spend once a minute.
"""
_USABLE: Final = 4
"""A directory may be this many times older while a new one is being read."""
_TIMEOUT_S_MAX: Final = 60.0
"""How long one read may take at most, in the background: no request waits so long.

The time doubles after each timeout, since a loop under load answers in steps between batches.
A list that takes longer is not available.
"""


class AddressOrder(NamedTuple):
    """The sort order of a list. Addresses without a value come last."""

    key: SortKey
    descends: bool


class RankedAddress(NamedTuple):
    """The position of an address in a sort order."""

    is_unknown: bool
    value: float
    address: str


FIRST: Final = RankedAddress(is_unknown=False, value=float("-inf"), address="")


class AddressPage(NamedTuple):
    """Consecutive addresses of a sort order."""

    positions: Sequence[RankedAddress]
    is_last: bool


class AddressDirectory:
    """One report of all loops, sorted on demand; safe to use from any thread."""

    def __init__(self, report: DirectoryAnswer, as_of: datetime) -> None:
        self._report = report
        self.as_of = as_of
        """When the loops were queried."""
        self.complete = report.complete
        self._addresses = sorted({*report.addresses, *report.counted})
        self._values: dict[SortKey, array[float]] = {}
        self._orders: dict[AddressOrder, array[int]] = {}
        self._lock = Lock()

    @property
    def fresh_s(self) -> float:
        """How long it can be used instead of a new one."""
        return min(_FRESH_S_MAX, len(self._addresses) * FRESH_S_EACH)

    def page(
        self, prefix: str, order: AddressOrder, after: RankedAddress, size: int
    ) -> AddressPage:
        """Return up to `size` addresses that begin with a prefix, after a position."""
        if order.key == "name":
            positions = self._by_name(prefix, after.address)
        else:
            positions = self._by_value(prefix, order, after)
        found = list(islice(positions, size + 1))
        return AddressPage(found[:size], is_last=len(found) <= size)

    def _by_name(self, prefix: str, after: str) -> Iterator[RankedAddress]:
        names = self._addresses
        start = max(bisect_left(names, prefix), bisect_right(names, after))
        for name in islice(names, start, None):
            if not name.startswith(prefix):
                return
            yield RankedAddress(is_unknown=False, value=0.0, address=name)

    def _by_value(
        self, prefix: str, order: AddressOrder, after: RankedAddress
    ) -> Iterator[RankedAddress]:
        with self._lock:  # concurrent requests for one order sort it once
            values = self._values_of(order.key)
            numbers = self._sorted_numbers(order, values)
        sign = -1 if order.descends else 1

        def position(number: int) -> RankedAddress:
            value = values[number]
            is_unknown = isnan(value)
            return RankedAddress(
                is_unknown, 0.0 if is_unknown else sign * value, self._addresses[number]
            )

        start = bisect_right(numbers, after, key=position)
        for number in islice(numbers, start, None):
            if self._addresses[number].startswith(prefix):
                yield position(number)

    def _values_of(self, key: SortKey) -> "array[float]":
        """Return the values of a sort key by address number; NaN for an address without a value."""
        if key not in self._values:
            report = self._report
            addresses = report.counted if key in {"accepted", "duplicates"} else report.addresses
            found: dict[str, float] = {}
            join = RANKING[key]
            for address, value in zip(addresses, getattr(report, key), strict=True):
                if value is not None:
                    found[address] = join(found[address], value) if address in found else value
            missing = 0 if key in {"accepted", "duplicates"} else nan
            values = (found.get(address, missing) for address in self._addresses)
            self._values[key] = array("d", values)
        return self._values[key]

    def _sorted_numbers(self, order: AddressOrder, values: Sequence[float]) -> "array[int]":
        """Return the address numbers in an order; equal values are sorted by name."""
        if order not in self._orders:
            known = [number for number, value in enumerate(values) if not isnan(value)]
            unknown = [number for number, value in enumerate(values) if isnan(value)]
            known.sort(key=values.__getitem__, reverse=order.descends)
            self._orders[order] = array("I", known + unknown)
        return self._orders[order]


class AddressDirectoryCache:
    """The newest directory, read on demand."""

    def __init__(
        self, inbox: QueryService, timeout_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """No request waits longer than `timeout_s`."""
        self._inbox = inbox
        self._timeout_s = self._read_timeout_s = timeout_s
        self._clock_s = clock_s
        self._known: AddressDirectory | None = None
        self._known_s = 0.0
        self._reading: asyncio.Task[AddressDirectory] | None = None

    async def newest(self) -> AddressDirectory:
        """Return a directory that is recent enough. Raise TimedOut if none is read in time."""
        known, age_s = self._known, self._clock_s() - self._known_s
        if known is not None and age_s < known.fresh_s:
            return known
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(self._on_read)
        if known is not None and age_s < known.fresh_s * _USABLE:
            return known
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(self._reading)
        except TimeoutError:
            sentence = "The list of addresses is being read; try again."
            raise TimedOut(sentence, retry_after_s=2) from None

    async def _read(self) -> AddressDirectory:
        as_of, since_s = datetime.now(UTC), self._clock_s()
        try:
            report = await self._inbox.ask(DirectoryQuery(), self._read_timeout_s)
        except TimedOut:  # there are too many addresses for this timeout
            self._read_timeout_s = min(2 * self._read_timeout_s, _TIMEOUT_S_MAX)
            raise
        directory = await asyncio.to_thread(AddressDirectory, report, as_of)
        self._known, self._known_s = directory, since_s
        keep_s = directory.fresh_s * _USABLE
        asyncio.get_running_loop().call_later(keep_s, self._forget, directory)
        return directory

    def _forget(self, directory: AddressDirectory) -> None:
        """Release the memory of a directory that may not be requested again."""
        if self._known is directory:
            self._known = None

    def _on_read(self, reading: "asyncio.Task[AddressDirectory]") -> None:
        """Retrieve the exception, so that asyncio does not log it if no request waits for it."""
        self._reading = None
        if not reading.cancelled():
            reading.exception()
