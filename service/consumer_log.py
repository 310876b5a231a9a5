"""Consumer log: where the client reports that a partition it reads may not be what it was.

A topic that is deleted and created again while it is read brings no error among the messages: the
client goes on at the old offset of the new log. Only the log shows it, and it comes first: a fetch
that was refused, or another leader or topic id in the metadata, stands in the consumer's queue
ahead of the first record of the new log.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

_FACILITIES: Final = frozenset({"BROKERUA", "BROKER"})
"""The codes of such lines: a partition's broker is not available, a partition's leader is told."""
_LEVELS: Final = (50, 50, 50, 40, 30, 20, 20, 10)
"""Of syslog, as the binding translates them."""
_DEBUG: Final = 7


class ConsumerLog:
    """A logger for the client; passes on what would be logged without it."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        on_doubt: Callable[[], None],
        logger: logging.Logger,
    ) -> None:
        """With the consumer's own properties; `on_doubt` must not raise."""
        self._logger = logger
        self._debug = str(properties.get("debug", ""))
        self._least = _LEVELS[_DEBUG if self._debug else int(properties["log_level"])]
        self._on_doubt = on_doubt

    @property
    def properties(self) -> dict[str, Any]:
        """What the client needs so that the lines come; it logs nothing while all is quiet."""
        return {"log_level": _DEBUG, "debug": f"{self._debug},topic".lstrip(",")}

    def log(self, level: int, text: str, facility: str, *rest: object) -> None:
        """Take one line, as the binding calls it."""
        if facility in _FACILITIES:
            self._on_doubt()
        if level >= self._least:
            self._logger.log(level, text, facility, *rest)
