"""History: samples of the last hour, for the charts of the console.

A sample holds totals since the start of the service; charts show their differences, so a missed
sample loses a point but no count. Invariant: at most the samples of one hour are kept.
"""

import asyncio
import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import structlog
from prometheus_client.parser import text_string_to_metric_families

from ringfence_api.ports import ServiceView
from ringfence_client.headers import REPEATED

SAMPLE_EVERY_S: Final = 5.0
"""How often a sample is taken, and so how old the current rates of a page may be.

Each sample asks every worker for its metrics and parses them. The shortest span of a chart,
300 s, has 30 intervals of two samples; with a longer time its line would be coarse.
"""

KEPT_S: Final = 3600.0
"""The longest span of a chart: the 721 samples of an hour are in memory.

A longer history is the task of Prometheus, which reads the same metrics.
"""

POINTS: Final = 120

SPANS_S: Final = (300.0, 900.0, KEPT_S)
"""Time spans of a chart: the shortest one that contains all samples is used."""

ADDRESS_POINTS: Final = 60

Buckets = tuple[tuple[float, float], ...]
"""A histogram: upper bounds, and the number of observations at or below each."""


class HistorySample(NamedTuple):
    """The totals at one time."""

    time_s: float
    consumed: float
    accepted: float
    duplicates: float
    dead_letters: float
    lag_records: float | None
    latency: Buckets = ()
    by_address: Mapping[str, float] = {}
    """Decided records by address: accepted ones and duplicates."""
    repeats: float = 0.0
    """Dead letters that are duplicates, which are expected and no errors."""
    unchecked: float = 0.0
    """Accepted records without an id that can be read."""


class HistoryPoint(NamedTuple):
    """Rates in one interval of a chart; None if there were no samples."""

    until_s: float
    consumed: float | None = None
    accepted: float | None = None
    duplicates: float | None = None
    dead_letters: float | None = None
    lag_records: float | None = None
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    repeats: float | None = None
    faults: float | None = None
    """Dead letters for any reason other than being a duplicate."""
    unchecked: float | None = None


class AddressPoint(NamedTuple):
    """What an address did between two samples."""

    since_s: float
    until_s: float
    decided_per_minute: float

    @property
    def middle_s(self) -> float:
        """The time at which a chart shows it."""
        return (self.since_s + self.until_s) / 2


class History:
    """The samples of the last hour. Used by one thread only."""

    def __init__(self, kept_s: float = KEPT_S, every_s: float = SAMPLE_EVERY_S) -> None:
        self._kept_s = kept_s
        self._samples: deque[HistorySample] = deque(maxlen=math.ceil(kept_s / every_s) + 1)
        self._addresses: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=ADDRESS_POINTS + 1)
        self.is_failing = False
        """Whether the last attempt to take a sample failed."""

    def add(self, sample: HistorySample) -> None:
        """Add a sample; its totals by address are kept only once per minute."""
        self.is_failing = False
        self._samples.append(sample._replace(by_address={}))
        step_s = self._kept_s / ADDRESS_POINTS
        if not self._addresses or sample.time_s - self._addresses[-1][0] >= step_s:
            self._addresses.append((sample.time_s, sample.by_address))

    def last(self) -> HistoryPoint | None:
        """Return the rates between the last two samples; None before there are two."""
        if len(self._samples) < 2:
            return None
        return _point(self._samples[-1].time_s, (self._samples[-2], self._samples[-1]))

    def span_s(self, now_s: float) -> float:
        """Return the time span that a chart should show."""
        age_s = now_s - self._samples[0].time_s if self._samples else 0.0
        return next((span_s for span_s in SPANS_S if age_s <= span_s), KEPT_S)

    def points(self, now_s: float, span_s: float, count: int = POINTS) -> tuple[HistoryPoint, ...]:
        """Return the rates up to now, in at most `count` intervals of equal length."""
        # Two samples per interval, so that a late one leaves no gap.
        count = min(count, round(span_s / (2 * SAMPLE_EVERY_S)))
        step_s = span_s / count
        start_s = now_s - span_s
        inside: list[list[HistorySample]] = [[] for _ in range(count)]
        before: HistorySample | None = None
        for sample in self._samples:
            index = math.ceil((sample.time_s - start_s) / step_s) - 1
            if 0 <= index < count:
                if not inside[index] and before is not None:
                    inside[index].append(before)
                inside[index].append(sample)
            before = sample
        return tuple(_point(start_s + (n + 1) * step_s, group) for n, group in enumerate(inside))

    def of_address(self, address: str) -> tuple[AddressPoint, ...]:
        """Return the rates of an address that has its own metric label."""
        totals = [(time_s, by_address.get(address)) for time_s, by_address in self._addresses]
        return tuple(
            AddressPoint(
                since_s, until_s, 60 * _growth(before, after) / max(until_s - since_s, 1e-3)
            )
            for (since_s, before), (until_s, after) in pairwise(totals)
        )


def _growth(before: float | None, after: float | None) -> float:
    return 0.0 if after is None else max(0.0, after - (before or 0.0))


def _point(until_s: float, samples: Sequence[HistorySample]) -> HistoryPoint:
    if len(samples) < 2:
        return HistoryPoint(until_s)
    first, last = samples[0], samples[-1]
    elapsed_s = max(last.time_s - first.time_s, 1e-3)
    observed = _difference(last.latency, first.latency)
    dead_letters = max(0.0, last.dead_letters - first.dead_letters) / elapsed_s
    repeats = min(dead_letters, max(0.0, last.repeats - first.repeats) / elapsed_s)
    return HistoryPoint(
        until_s,
        consumed=max(0.0, last.consumed - first.consumed) / elapsed_s,
        accepted=max(0.0, last.accepted - first.accepted) / elapsed_s,
        duplicates=max(0.0, last.duplicates - first.duplicates) / elapsed_s,
        dead_letters=dead_letters,
        lag_records=last.lag_records,
        latency_p50_s=quantile(observed, 0.5),
        latency_p99_s=quantile(observed, 0.99),
        repeats=repeats,
        faults=dead_letters - repeats,
        unchecked=max(0.0, last.unchecked - first.unchecked) / elapsed_s,
    )


def _difference(after: Buckets, before: Buckets) -> Buckets:
    earlier = dict(before)
    return tuple((bound, max(0.0, count - earlier.get(bound, 0.0))) for bound, count in after)


def quantile(buckets: Iterable[tuple[float, float]], share: float) -> float | None:
    """Return a quantile of a histogram, interpolated linearly within its bucket.

    Return None without observations, and the last finite bound for a quantile beyond it.
    """
    ordered = sorted(buckets)
    total = ordered[-1][1] if ordered else 0.0
    if total <= 0:
        return None
    rank, lower, below = share * total, 0.0, 0.0
    for bound, count in ordered:
        if count >= rank:
            if math.isinf(bound):
                return lower
            inside = count - below
            return lower + (bound - lower) * ((rank - below) / inside if inside else 1.0)
        lower, below = bound, count
    return lower


LATENCY: Final = "ringfence_end_to_end_latency_seconds_bucket"

BY_ADDRESS: Final = ("ringfence_records_forwarded_total", "ringfence_duplicates_total")

DEAD_LETTERS: Final = "ringfence_dead_letters_total"

_log = structlog.stdlib.get_logger(__name__)


async def sample_periodically(view: ServiceView, history: History) -> None:
    """Add a sample to the history every 5 s, until the task is cancelled."""
    while True:
        try:
            history.add(await take_sample(view, time.time()))
        except Exception:  # noqa: BLE001 - a failure must not end the sampling
            if not history.is_failing:
                _log.warning("sample_failed", exc_info=True)
            history.is_failing = True
        await asyncio.sleep(SAMPLE_EVERY_S)


async def take_sample(view: ServiceView, now_s: float) -> HistorySample:
    """Take a sample of the metrics and the status."""
    metrics = read(await view.metrics.scrape())
    now = view.board.read()
    lags = [each.lag_records for each in now.partitions if each.lag_records is not None]
    return HistorySample(
        now_s,
        now.counts.records_consumed,
        now.counts.records_accepted + now.counts.redriven_accepted,
        now.counts.duplicates,
        now.counts.dead_letters,
        sum(lags) if lags else None,
        metrics.latency,
        metrics.by_address,
        metrics.repeats,
        sum(each.no_id + each.unreadable for each in now.routes),
    )


class MetricsReading(NamedTuple):
    """The metrics that a sample needs."""

    latency: tuple[tuple[float, float], ...]
    by_address: dict[str, float]
    repeats: float


def read(exposition: bytes) -> MetricsReading:
    """Parse the latency histogram, the records by address and the duplicates among dead letters."""
    buckets: defaultdict[float, float] = defaultdict(float)
    by_address: defaultdict[str, float] = defaultdict(float)
    repeats = 0.0
    for family in text_string_to_metric_families("\n".join(_relevant_lines(exposition.decode()))):
        for sample in family.samples:
            if sample.name == LATENCY:
                buckets[float(sample.labels["le"])] += sample.value
            elif sample.name == DEAD_LETTERS:
                repeats += sample.value if sample.labels["reason"] in REPEATED else 0.0
            else:
                by_address[sample.labels["address"]] += sample.value
    return MetricsReading(tuple(sorted(buckets.items())), dict(by_address), repeats)


def _relevant_lines(text: str) -> Iterator[str]:
    """Yield only the lines that are needed, because parsing is expensive.

    Lines end with LF only: an address may contain other characters that Python treats as line ends.
    """
    return (
        line for line in text.split("\n") if line.startswith((LATENCY, DEAD_LETTERS, *BY_ADDRESS))
    )
