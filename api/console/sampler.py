"""The sampler: every few seconds it takes a sample of the service, for as long as the API runs.

It reads what `/v1/status` and `/metrics` read, so the charts tell what these tell.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog
from prometheus_client.parser import text_string_to_metric_families

from api.console.history import SAMPLE_EVERY_S, History, Sample
from api.view import ServiceView
from ringfence.headers import REPEATED

LATENCY: Final = "ringfence_end_to_end_latency_seconds_bucket"
BY_ADDRESS: Final = ("ringfence_records_forwarded_total", "ringfence_duplicates_total")
DEAD_LETTERS: Final = "ringfence_dead_letters_total"

_log = structlog.stdlib.get_logger(__name__)


async def sample_for_ever(view: ServiceView, history: History) -> None:
    """Add a sample to the history at each beat, until the task is cancelled."""
    while True:
        try:
            history.add(await taken(view, time.time()))
        except Exception:  # noqa: BLE001 - a chart without a point is better than none for good
            if not history.is_failing:
                _log.warning("sample_failed", exc_info=True)
            history.is_failing = True
        await asyncio.sleep(SAMPLE_EVERY_S)


async def taken(view: ServiceView, now_s: float) -> Sample:
    """What the service tells of itself now."""
    metrics = read(await view.metrics.scrape())
    now = view.board.read()
    lags = [each.lag_records for each in now.partitions if each.lag_records is not None]
    return Sample(
        now_s,
        now.records_consumed,
        now.records_accepted,
        now.duplicates,
        now.dead_letters,
        sum(lags) if lags else None,
        metrics.latency,
        metrics.by_address,
        metrics.repeats,
    )


class Read(NamedTuple):
    """What is needed of the metrics."""

    latency: tuple[tuple[float, float], ...]
    by_address: dict[str, float]
    repeats: float


def read(exposition: bytes) -> Read:
    """The latency's buckets, what each address has had, dead letters that repeat; out of text."""
    buckets: defaultdict[float, float] = defaultdict(float)
    by_address: defaultdict[str, float] = defaultdict(float)
    repeats = 0.0
    for family in text_string_to_metric_families("\n".join(_wanted(exposition.decode()))):
        for sample in family.samples:
            if sample.name == LATENCY:
                buckets[float(sample.labels["le"])] += sample.value
            elif sample.name == DEAD_LETTERS:
                repeats += sample.value if sample.labels["reason"] in REPEATED else 0.0
            else:
                by_address[sample.labels["address"]] += sample.value
    return Read(tuple(sorted(buckets.items())), dict(by_address), repeats)


def _wanted(text: str) -> Iterator[str]:
    """The few lines of many that are read; parsing is what costs.

    A line ends at LF alone: an address may hold whatever else ends a line for Python.
    """
    return (
        line for line in text.split("\n") if line.startswith((LATENCY, DEAD_LETTERS, *BY_ADDRESS))
    )
