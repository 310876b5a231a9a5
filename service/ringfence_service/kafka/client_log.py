"""Client log: events that a Kafka client reports in its log and nowhere else.

A consumer whose topic is deleted and created again continues at the old offset in the new log. A
producer whose connection breaks sends its requests again. Neither raises an error or calls back.
Listening for these events does not change what appears in Ringfence's log.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

_LEVELS: Final = (
    *3 * (logging.CRITICAL,),
    logging.ERROR,
    logging.WARNING,
    *2 * (logging.INFO,),
    logging.DEBUG,
)
"""Python's log levels by syslog level, as the binding translates them."""
_INFO: Final = 6
_DEBUG: Final = 7


class ClientLog(ABC):
    """Receives the log lines of a client, while that client is polled."""

    def __init__(self, properties: Mapping[str, Any], logger: logging.Logger) -> None:
        """Take the client's configured properties: `logger` shows the levels that they enable."""
        self._logger = logger
        self._debug = str(properties.get("debug", ""))
        self._level = _DEBUG if self._debug else min(max(int(properties["log_level"]), 0), _DEBUG)

    @property
    @abstractmethod
    def properties(self) -> dict[str, Any]:
        """Return the properties with which the client logs the lines that are needed here."""

    def log(self, level: int, text: str, facility: str, *rest: object) -> None:
        """Receive one line; the binding calls this."""
        self._handle(level, facility, rest)
        if level >= _LEVELS[self._level]:
            self._logger.log(level, text, facility, *rest)

    @abstractmethod
    def _handle(self, level: int, facility: str, rest: tuple[object, ...]) -> None:
        """Report the event that a line stands for, if any."""


class ConsumerLog(ClientLog):
    """Reports that a partition's topic may have been deleted and created again.

    The line arrives in time: a refused fetch, or another leader or topic id in the metadata, is in
    the consumer's queue before the first record of the new log.
    """

    _FACILITIES: Final = frozenset({"BROKERUA", "BROKER"})
    """A partition's broker is not available; the metadata contain a partition's leader."""

    def __init__(
        self, properties: Mapping[str, Any], on_doubt: Callable[[], None], logger: logging.Logger
    ) -> None:
        """`on_doubt` must not raise."""
        super().__init__(properties, logger)
        self._on_doubt = on_doubt

    @property
    def properties(self) -> dict[str, Any]:
        """Return the properties that enable topic lines; the client logs them only on changes."""
        return {"log_level": _DEBUG, "debug": f"{self._debug},topic".lstrip(",")}

    def _handle(self, level: int, facility: str, rest: tuple[object, ...]) -> None:
        del level, rest
        if facility in self._FACILITIES:
            self._on_doubt()


class ProducerLog(ClientLog):
    """Reports each line as a lost connection.

    A producer without trouble logs nothing at these levels, not even when it closes an idle
    connection.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        on_error: Callable[[KafkaError], None],
        logger: logging.Logger,
    ) -> None:
        """`on_error` must not raise."""
        super().__init__(properties, logger)
        self._on_error = on_error

    @property
    def properties(self) -> dict[str, Any]:
        """Return the properties that enable lines about connections."""
        return {"log_level": max(self._level, _INFO)}

    def _handle(self, level: int, facility: str, rest: tuple[object, ...]) -> None:
        if level >= logging.INFO:
            reason = " ".join((facility, *map(str, rest)))
            self._on_error(KafkaError(KafkaError._TRANSPORT, reason))  # noqa: SLF001 - its name


class SettingsLog(ClientLog):
    """Logs every line at level debug, errors too: the caller of a write gets its errors.

    Writers of the metadata topic fence each other routinely, mostly when a group starts for the
    first time, and a fenced client logs that as fatal.
    """

    @property
    def properties(self) -> dict[str, Any]:
        """Return no properties: no lines are needed here."""
        return {}

    def log(self, level: int, text: str, facility: str, *rest: object) -> None:
        """Log one line at level debug."""
        del level
        self._logger.debug(text, facility, *rest)

    def _handle(self, level: int, facility: str, rest: tuple[object, ...]) -> None:
        """Report nothing."""
