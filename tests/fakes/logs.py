"""What the service logs, in memory; afterwards logging is as it was."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from ringfence_service.telemetry import logging as log


@contextmanager
def logging_to(stream: io.StringIO | None) -> Iterator[None]:
    """As it logs in production, or as the block says itself."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    if stream is not None:
        log.configure(stream, "info")
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(level)
