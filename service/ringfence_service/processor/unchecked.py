"""Unchecked records: how many each route accepts without a check, and a log line that says why.

Invariants: only records of inputs are counted, once their transaction is committed; a redrive
decides no new ones. A route gets at most one line a minute.
"""

from collections import Counter
from typing import Final

import structlog

from ringfence_service.dedup.duplicate_samples import ComparedDuplicate, Comparison
from ringfence_service.dedup.plan import BatchCounts, Unchecked
from ringfence_service.queries.status import RouteCounts
from ringfence_service.telemetry.metrics import Metrics

LOGGED_EVERY_S: Final = 60.0
"""Least time between two lines of a route: a publisher without ids must not flood the log."""

_log = structlog.stdlib.get_logger(__name__)


def count_unchecked(metrics: Metrics, tally: BatchCounts) -> None:
    """Add the counts of a committed transaction to the metrics."""
    if tally.redriven:
        return
    for (route, reason), records in tally.unchecked.items():
        metrics.unchecked(route, reason, records)
    for route, records in tally.stamped.items():
        metrics.stamped(route, records)


class RouteTotals:
    """The counts of each route since the process started."""

    def __init__(self) -> None:
        self._by_route: dict[str, RouteCounts] = {}

    def add(self, tally: BatchCounts) -> None:
        """Add the counts of a committed transaction that has read records."""
        unchecked = tally.unchecked
        for route, records in tally.consumed.items():
            found = RouteCounts(
                route,
                records,
                unchecked[route, Unchecked.NO_ID],
                unchecked[route, Unchecked.UNREADABLE],
                unchecked[route, Unchecked.OFF],
                tally.stamped[route],
            )
            self._by_route[route] = found.plus(self._by_route.get(route))

    def add_compared(self, compared: ComparedDuplicate) -> None:
        """Add a duplicate that was compared with its original."""
        route, result = compared.sample.route, compared.result
        found = RouteCounts(
            route,
            compared=int(result is not Comparison.NOT_COMPARED),
            different=int(result is Comparison.DIFFERENT),
            not_compared=int(result is Comparison.NOT_COMPARED),
        )
        self._by_route[route] = found.plus(self._by_route.get(route))

    @property
    def values(self) -> tuple[RouteCounts, ...]:
        """The counts, sorted by the name of the route."""
        return tuple(self._by_route[route] for route in sorted(self._by_route))


class UncheckedLog:
    """Logs why records of a route have no id: the first cause in each minute."""

    def __init__(self) -> None:
        self._logged_s: dict[str, float] = {}
        self._records: Counter[str] = Counter()
        """Since the last line, by route."""

    def add(self, tally: BatchCounts, now_s: float) -> None:
        """Add the counts of a committed transaction; `now_s` is monotonic."""
        if tally.redriven:
            return
        for route, reason in tally.unchecked_causes:
            self._records[route] += tally.unchecked[route, reason]
        for (route, reason), cause in tally.unchecked_causes.items():
            if now_s - self._logged_s.get(route, float("-inf")) >= LOGGED_EVERY_S:
                self._logged_s[route] = now_s
                records = self._records.pop(route)
                _log.warning(
                    "passed_unchecked", route=route, reason=reason, cause=cause, records=records
                )
