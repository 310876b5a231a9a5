"""Address directory: all addresses with their sort keys, as the loops reported them a moment ago.

Reading it costs the loops a millisecond for a thousand addresses, so it is cached for a time in
proportion: a few addresses are read for each request, and a very long list may be some seconds old.
Concurrent requests share one read. Sorting runs beside the API's thread.
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

from service.queries.addresses import RANKING, DirectoryAnswer, DirectoryQuery, SortKey
from service.queries.errors import TimedOut
from service.queries.inbox import QueryService

FRESH_S_EACH: Final = 100e-6
"""For how long an address may be listed as it was told: a hundred times what telling it takes."""
_FRESH_S_MAX: Final = 60.0
_USABLE: Final = 4
"""So many times as long the list stays while a new one is read."""
_WAITED_S_MAX: Final = 60.0


class AddressOrder(NamedTuple):
    """What a list is sorted by. What has no such number comes last."""

    key: SortKey
    descends: bool


class RankedAddress(NamedTuple):
    """Where an address stands in an order."""

    is_unknown: bool
    value: float
    address: str


FIRST: Final = RankedAddress(is_unknown=False, value=float("-inf"), address="")


class AddressPage(NamedTuple):
    """Some places, in order."""

    places: Sequence[RankedAddress]
    is_last: bool


class AddressDirectory:
    """One answer of all loops, brought into any order that is asked for; safe on any thread."""

    def __init__(self, told: DirectoryAnswer, as_of: datetime) -> None:
        self._told = told
        self.as_of = as_of
        """When the loops were asked."""
        self.complete = told.complete
        self._addresses = sorted({*told.addresses, *told.counted})
        self._values: dict[SortKey, array[float]] = {}
        self._orders: dict[AddressOrder, array[int]] = {}
        self._lock = Lock()

    @property
    def fresh_s(self) -> float:
        """For how long it is as good as a new one."""
        return min(_FRESH_S_MAX, len(self._addresses) * FRESH_S_EACH)

    def page(
        self, prefix: str, order: AddressOrder, after: RankedAddress, size: int
    ) -> AddressPage:
        """So many addresses that begin with a prefix, after a place."""
        if order.key == "name":
            places = self._by_name(prefix, after.address)
        else:
            places = self._by_value(prefix, order, after)
        found = list(islice(places, size + 1))
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
        with self._lock:  # who asks for the same order waits for it
            values = self._values_of(order.key)
            numbers = self._numbers_in(order, values)
        sign = -1 if order.descends else 1

        def place(number: int) -> RankedAddress:
            value = values[number]
            is_unknown = isnan(value)
            return RankedAddress(
                is_unknown, 0.0 if is_unknown else sign * value, self._addresses[number]
            )

        start = bisect_right(numbers, after, key=place)
        for number in islice(numbers, start, None):
            if self._addresses[number].startswith(prefix):
                yield place(number)

    def _values_of(self, key: SortKey) -> "array[float]":
        """By the number of an address; NaN where it has no value."""
        if key not in self._values:
            told = self._told
            addresses = told.counted if key in {"accepted", "duplicates"} else told.addresses
            found: dict[str, float] = {}
            join = RANKING[key]
            for address, value in zip(addresses, getattr(told, key), strict=True):
                if value is not None:
                    found[address] = join(found[address], value) if address in found else value
            missing = 0 if key in {"accepted", "duplicates"} else nan
            values = (found.get(address, missing) for address in self._addresses)
            self._values[key] = array("d", values)
        return self._values[key]

    def _numbers_in(self, order: AddressOrder, values: Sequence[float]) -> "array[int]":
        """The numbers of the addresses in an order; those that are equal by their names."""
        if order not in self._orders:
            known = [number for number, value in enumerate(values) if not isnan(value)]
            unknown = [number for number, value in enumerate(values) if isnan(value)]
            known.sort(key=values.__getitem__, reverse=order.descends)
            self._orders[order] = array("I", known + unknown)
        return self._orders[order]


class AddressDirectoryCache:
    """The newest directory, read when it is asked for."""

    def __init__(
        self, inbox: QueryService, timeout_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Nobody waits longer than `timeout_s`."""
        self._inbox = inbox
        self._timeout_s = self._patience_s = timeout_s
        self._clock_s = clock_s
        self._known: AddressDirectory | None = None
        self._known_s = 0.0
        self._reading: asyncio.Task[AddressDirectory] | None = None

    async def newest(self) -> AddressDirectory:
        """Return it, as old as it may be; Unavailable where there is none in time."""
        known, age_s = self._known, self._clock_s() - self._known_s
        if known is not None and age_s < known.fresh_s:
            return known
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(self._has_read)
        if known is not None and age_s < known.fresh_s * _USABLE:
            return known
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(self._reading)
        except TimeoutError:
            sentence = "The list of addresses is being read; ask again."
            raise TimedOut(sentence, retry_after_s=2) from None

    async def _read(self) -> AddressDirectory:
        as_of, since_s = datetime.now(UTC), self._clock_s()
        try:
            told = await self._inbox.ask(DirectoryQuery(), self._patience_s)
        except TimedOut:  # there are more than could be told in time
            self._patience_s = min(2 * self._patience_s, _WAITED_S_MAX)
            raise
        directory = await asyncio.to_thread(AddressDirectory, told, as_of)
        self._known, self._known_s = directory, since_s
        keep_s = directory.fresh_s * _USABLE
        asyncio.get_running_loop().call_later(keep_s, self._forget, directory)
        return directory

    def _forget(self, directory: AddressDirectory) -> None:
        """It may be large, and nobody may ask again."""
        if self._known is directory:
            self._known = None

    def _has_read(self, reading: "asyncio.Task[AddressDirectory]") -> None:
        """Whoever waits is told of an error; nobody need wait."""
        self._reading = None
        if not reading.cancelled():
            reading.exception()
