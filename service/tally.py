"""Tally: what committed batches add up to, for status and metrics. Nothing is counted before."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from service.metrics import Metrics
from service.plan import NO_TIME_MS, Plan


@dataclass(slots=True)
class Totals:
    """Since the process started."""

    records_consumed: int = 0
    records_accepted: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    last_commit_at: datetime | None = None

    def add(self, plan: Plan, now_ms: int) -> None:
        """Count a committed plan."""
        tally = plan.tally
        self.records_consumed += tally.consumed.total()
        self.records_accepted += tally.accepted.total()
        self.duplicates += tally.duplicates.total()
        self.dead_letters += tally.dead_letters.total()
        self.transactions_committed += 1
        self.last_commit_at = datetime.fromtimestamp(now_ms / 1000, UTC)


def count(metrics: Metrics, plan: Plan, now_ms: int) -> None:
    """Tell the metrics of a committed plan, once for each label."""
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
    """Addresses without a label of their own together: there may be one for each record."""
    found: dict[tuple[str, str], int] = {}
    for (route, address), records in tally.items():
        place = (route, metrics.address_label(address))
        found[place] = found.get(place, 0) + records
    return found
