"""Scrape: one exposition for the instance.

Counters and histograms of all processes are summed, with those of processes that have ended, so
that none goes back; memory, open files and CPU time too. Gauges are read from the one status. A
process that does not answer in time counts with what it told last.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from service.control import Unavailable
from service.crew.member import Member
from service.families import Family, joined, without_addresses, written
from service.metrics import Metrics

_PATIENCE_S: Final = 1.0


class CrewMetrics:
    """The supervisor's own metrics, and those of its children with them."""

    def __init__(self, own: Metrics, members: Sequence[Member]) -> None:
        self._own = own
        self._members = members

    def http_request(self, route: str, method: str, status: int, duration_s: float) -> None:
        """See `Metrics.http_request`."""
        self._own.http_request(route, method, status, duration_s)

    def http_auth_failure(self, reason: str) -> None:
        """See `Metrics.http_auth_failure`."""
        self._own.http_auth_failure(reason)

    def http_connection_refused(self, reason: str) -> None:
        """See `Metrics.http_connection_refused`."""
        self._own.http_connection_refused(reason)

    async def scrape(self, *, addresses: bool = True) -> bytes:
        """All metrics in Prometheus' text format. See `Metrics.scrape`."""
        asked = []
        for member in self._members:
            with contextlib.suppress(Unavailable):
                asked.append(asyncio.wrap_future(member.scrape()))
        if asked:
            _, late = await asyncio.wait(asked, timeout=_PATIENCE_S)
            for each in late:
                each.cancel()
            for each in asked:
                if each.done() and not each.cancelled():
                    each.exception()  # seen: it ended while it was asked
        told: Iterable[Family] = joined(self._own.families(), [m.families for m in self._members])
        return written(told if addresses else without_addresses(told))
