"""Bulk: a histogram that takes what a batch brings in one call, at a tenth of the price."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import accumulate

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class BulkHistogram(Collector):
    """See the module. What is measured is in whole milliseconds, what is told in seconds."""

    def __init__(self, name: str, help_text: str, bounds_s: Sequence[float]) -> None:
        self._name, self._help = name, help_text
        self._labels = [*map(floatToGoString, bounds_s), "+Inf"]
        self._bucket = partial(bisect_left, [round(bound * 1000) for bound in bounds_s])
        self._counts = [0] * len(self._labels)
        self._sum_ms = 0
        self._lock = threading.Lock()

    def observe(self, values_ms: Collection[int]) -> None:
        """Add all of a batch."""
        found = Counter(map(self._bucket, values_ms))
        with self._lock:
            for bucket, count in found.items():
                self._counts[bucket] += count
            self._sum_ms += sum(values_ms)

    def describe(self) -> Iterator[Metric]:
        """Name nothing before it is asked for."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The buckets of this moment, each with all below it."""
        with self._lock:
            counts, sum_ms = list(self._counts), self._sum_ms
        buckets = list(zip(self._labels, map(float, accumulate(counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._help, buckets, sum_value=sum_ms / 1000)
