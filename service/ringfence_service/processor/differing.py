"""Differing duplicates: what their comparison with the originals finds, and a log line about it.

Invariants: the loop offers samples of a committed transaction, takes results later, and never waits
for either.
"""

from collections.abc import Iterable
from typing import Protocol

import structlog

from ringfence_service.dedup.duplicate_samples import (
    ComparedDuplicate,
    Comparison,
    DuplicateSamples,
)

_log = structlog.stdlib.get_logger(__name__)


class Comparer(Protocol):
    """Compares duplicates with their originals while the loop goes on."""

    def offer(self, samples: DuplicateSamples) -> None:
        """Take over samples as far as there is room."""
        ...

    def take(self) -> Iterable[ComparedDuplicate]:
        """Return what was compared since the last call."""
        ...


class DifferingLog:
    """Logs the first duplicate of each route whose content is not that of its original."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def add(self, compared: ComparedDuplicate) -> None:
        """Log a duplicate that differs if it is the first of its route."""
        sample = compared.sample
        if compared.result is Comparison.DIFFERENT and sample.route not in self._logged:
            self._logged.add(sample.route)
            _log.warning(
                "duplicate_differs",
                route=sample.route,
                duplicate=sample.position,
                original=str(sample.original),
            )
