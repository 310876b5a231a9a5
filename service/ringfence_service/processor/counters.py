"""Counters of a process: records by result, by metric label and by address, since it started.

Invariant: only committed plans are counted, so each record counts once.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from ringfence_client.headers import REPEATED
from ringfence_service.config.addresses import home_of
from ringfence_service.dedup.plan import NO_TIME_MS, BatchCounts, Plan
from ringfence_service.processor.unchecked import RouteTotals, count_unchecked
from ringfence_service.queries.status import NO_COUNTS, Counts
from ringfence_service.telemetry.metrics import Metrics


@dataclass(slots=True)
class RunningTotals:
    """Totals since the process started."""

    counts: Counts = NO_COUNTS
    routes: RouteTotals = field(default_factory=RouteTotals)

    def add(self, plan: Plan, now_ms: int) -> None:
        """Count a committed plan; a redrive has plans of its own, which consume no records."""
        tally = plan.tally
        accepted = tally.accepted.total()
        if tally.redriven:
            found = {"redriven": tally.redriven.total(), "redriven_accepted": accepted}
        else:
            self.routes.add(tally)
            refused = sum(
                records
                for (_, reason), records in tally.dead_letters.items()
                if reason not in REPEATED
            )
            duplicates = tally.duplicates.total()
            found = {"records_accepted": accepted, "duplicates": duplicates, "refused": refused}
        self.counts = self.counts.more(
            datetime.fromtimestamp(now_ms / 1000, UTC),
            records_consumed=tally.consumed.total(),
            dead_letters=tally.dead_letters.total(),
            transactions_committed=1,
            **found,
        )


def count(metrics: Metrics, plan: Plan, now_ms: int) -> None:
    """Add a committed plan to the metrics, once for each label."""
    tally = plan.tally
    for route, records in tally.consumed.items():
        metrics.consumed(route, records, tally.bytes_consumed[route])
    for route, records in tally.carried.items():
        metrics.carried(route, records)
    for (route, label), records in _by_label(metrics, tally.accepted).items():
        metrics.forwarded(route, label, records)
    for (route, label), records in _by_label(metrics, tally.duplicates).items():
        metrics.duplicates(route, label, records)
    for (route, reason), records in tally.dead_letters.items():
        metrics.dead_letters(route, reason, records)
    count_unchecked(metrics, tally)
    for (route, result), records in tally.replies.items():
        metrics.replies(route, result, records)
    for (mode, result), records in tally.redriven.items():
        metrics.redriven(mode, result, records)
    if tally.oldest_ms != NO_TIME_MS:
        ages_ms = (now_ms - tally.oldest_ms, now_ms - tally.newest_ms)
        metrics.latency(*(max(0, age_ms) / 1000 for age_ms in ages_ms))
    if tally.distances_ms:
        metrics.distances(tally.distances_ms)


def _by_label(
    metrics: Metrics, tally: Mapping[tuple[str, str], int]
) -> Mapping[tuple[str, str], int]:
    """Sum up by label, which is that of a cache's address; some addresses share one."""
    found: dict[tuple[str, str], int] = {}
    for (route, cache), records in tally.items():
        key = (route, metrics.address_label(home_of(cache)))
        found[key] = found.get(key, 0) + records
    return found


class AddressCount(NamedTuple):
    """Record counts of one cache."""

    accepted: int
    duplicates: int


class AddressCounters:
    """Record counts by cache since the process started; usually a cache has its address's name."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        """When counting started."""
        self._accepted: Counter[str] = Counter()
        self._duplicates: Counter[str] = Counter()

    def __contains__(self, address: object) -> bool:
        """Whether an address has any count."""
        return address in self._accepted or address in self._duplicates

    def of(self, address: str) -> AddressCount:
        """Return the counts of an address."""
        return AddressCount(self._accepted[address], self._duplicates[address])

    @property
    def addresses(self) -> AbstractSet[str]:
        """The addresses with any count."""
        return self._accepted.keys() | self._duplicates.keys()

    def counts(self, addresses: Sequence[str]) -> tuple[list[int], list[int]]:
        """Return for each address how many records were accepted, and how many duplicates."""
        accepted, duplicates = self._accepted.get, self._duplicates.get
        return [accepted(each, 0) for each in addresses], [
            duplicates(each, 0) for each in addresses
        ]

    def forget(self, caches: Iterable[str]) -> None:
        """Forget the counts of these caches."""
        for cache in caches:
            self._accepted.pop(cache, None)
            self._duplicates.pop(cache, None)

    def add(self, tally: BatchCounts, held: Collection[AbstractSet[str]]) -> None:
        """Add a committed tally; `held` are the addresses that its partitions hold."""
        _add(self._accepted, tally.accepted, held)
        _add(self._duplicates, tally.duplicates, held)


def _add(
    counts: Counter[str], tally: Mapping[tuple[str, str], int], held: Collection[AbstractSet[str]]
) -> None:
    for (_route, address), records in tally.items():
        if records and (address in counts or any(address in each for each in held)):
            counts[address] += records
