"""Duplicates in the log: one of them every few seconds, and how many went untold since.

All are counted in the metrics, and have their dead letters; a line is for who looks at a log.
"""

from typing import Final

import structlog

from ringfence.headers import id_text
from service.dead_letter import ID_CHARS_MAX
from service.plan import Example, Tally
from service.traceparent import trace_of

PERIOD_S: Final = 10.0
_log = structlog.stdlib.get_logger(__name__)


class DuplicatesLog:
    """See the module."""

    def __init__(self) -> None:
        self._told_s = float("-inf")
        self._untold = 0

    def tell(self, tally: Tally, now_s: float) -> None:
        """A transaction has committed."""
        example = tally.example
        if example is None:
            return
        self._untold += tally.duplicates.total()
        if now_s - self._told_s < PERIOD_S:
            return
        self._told_s = now_s
        _log.info("duplicate", **_fields(example), suppressed=self._untold - 1)
        self._untold = 0


def _fields(example: Example) -> dict[str, object]:
    """Without what is not known."""
    trace = trace_of(example.headers)
    identifier = example.identifier
    fields = {
        "route": example.route,
        "address": example.address,
        "id": None if identifier is None else id_text(identifier)[:ID_CHARS_MAX],
        "topic": example.place.topic,
        "partition": example.place.partition,
        "offset": example.offset,
        "original": example.original,
        "trace_id": None if trace is None else trace.trace_id,
    }
    return {name: value for name, value in fields.items() if value is not None}
