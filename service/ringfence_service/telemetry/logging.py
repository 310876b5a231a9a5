"""Logging: named events as JSON lines, or as readable lines on a terminal, all on one stream.

`structlog.stdlib.get_logger(__name__)` returns a logger; lines that libraries log through `logging`
have the same format. In normal operation nothing is logged per record.
"""

import logging
import re
from typing import Final, TextIO

import structlog

_QUIET: Final = {"uvicorn": "ERROR", "asyncio": "WARNING", "httpx2": "WARNING"}
"""Libraries that would log every start, stop and request, including invalid ones."""


class _OncePerMinute(logging.Filter):
    """Passes each line of a client once a minute, since clients repeat it with every attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a line; lines that differ only in numbers are the same."""
        if not record.name.startswith(_REPEATING):
            return True
        line = re.sub(r"[0-9]+", "", record.getMessage())
        last_s = self._logged_s.get(line, float("-inf"))
        if record.created - last_s < _REPEAT_S:
            return False
        if len(self._logged_s) > _LINES_MAX:
            self._logged_s.clear()
        self._logged_s[line] = record.created
        return True


_REPEATING: Final = ("librdkafka", "opentelemetry")
_REPEAT_S: Final = 60.0
"""How long a line of a client is not logged again, though each attempt repeats it.

The log still shows that the trouble lasts.
"""
_LINES_MAX: Final = 1_000
"""How many lines are remembered: they may contain any text.

At more all are forgotten, so each is logged once more.
"""


def configure(stream: TextIO, level: str, form: str = "auto") -> None:
    """Send all logs at or above `level` to `stream`.

    `form` is `json` or `text`; with `auto` a terminal gets text and everything else JSON.
    """
    handler = logging.StreamHandler(stream)
    handler.addFilter(_OncePerMinute())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(
                    as_text=form == "text" or (form == "auto" and stream.isatty()),
                    colors=stream.isatty(),
                ),
            ],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, quiet_level in _QUIET.items():
        logging.getLogger(name).setLevel(quiet_level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


_SHARED: Final[list[structlog.typing.Processor]] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.PositionalArgumentsFormatter(),
]


def _rendering(*, as_text: bool, colors: bool) -> list[structlog.typing.Processor]:
    if as_text:
        console = structlog.dev.ConsoleRenderer(
            colors=colors,
            timestamp_key="ts",
            # Rich tracebacks print local variables, which may hold payloads or secrets.
            exception_formatter=structlog.dev.plain_traceback,
        )
        return [console]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
