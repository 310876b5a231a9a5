"""Client log: events that a Kafka client reports in its log and nowhere else.

A consumer whose topic is deleted and created again continues at the old offset in the new log. A
producer whose connection breaks sends its requests again. Neither raises an error or calls back.
Listening for these events does not change what appears in our own log.
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
"""Of syslog, as the binding translates them."""
_INFO: Final = 6
_DEBUG: Final = 7


class ClientLog(ABC):
    """Takes the lines of a client, in a poll of that client."""

    def __init__(self, properties: Mapping[str, Any], logger: logging.Logger) -> None:
        """With the properties that the client was to have; `logger` shows what they ask for."""
        self._logger = logger
        self._debug = str(properties.get("debug", ""))
        self._level = _DEBUG if self._debug else min(max(int(properties["log_level"]), 0), _DEBUG)

    @property
    @abstractmethod
    def properties(self) -> dict[str, Any]:
        """What the client needs so that the lines come."""

    def log(self, level: int, text: str, facility: str, *rest: object) -> None:
        """Take one line, as the binding calls it."""
        self._heed(level, facility, rest)
        if level >= _LEVELS[self._level]:
            self._logger.log(level, text, facility, *rest)

    @abstractmethod
    def _heed(self, level: int, facility: str, rest: tuple[object, ...]) -> None:
        """Report what the line means."""


class ConsumerLog(ClientLog):
    """Reports that a partition may not be what it was.

    The line comes first: a fetch that was refused, or another leader or topic id in the metadata,
    stands in the consumer's queue ahead of the first record of the new log.
    """

    _FACILITIES: Final = frozenset({"BROKERUA", "BROKER"})
    """A partition's broker is not available; the metadata name a partition's leader."""

    def __init__(
        self, properties: Mapping[str, Any], on_doubt: Callable[[], None], logger: logging.Logger
    ) -> None:
        """`on_doubt` must not raise."""
        super().__init__(properties, logger)
        self._on_doubt = on_doubt

    @property
    def properties(self) -> dict[str, Any]:
        """See `ClientLog.properties`; while nothing changes the client logs nothing."""
        return {"log_level": _DEBUG, "debug": f"{self._debug},topic".lstrip(",")}

    def _heed(self, level: int, facility: str, rest: tuple[object, ...]) -> None:
        del level, rest
        if facility in self._FACILITIES:
            self._on_doubt()


class ProducerLog(ClientLog):
    """Reports each line, as a loss of the connection.

    A producer that works well logs nothing at these levels, nor does it when it closes an idle
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
        """See `ClientLog.properties`."""
        return {"log_level": max(self._level, _INFO)}

    def _heed(self, level: int, facility: str, rest: tuple[object, ...]) -> None:
        if level >= logging.INFO:
            reason = " ".join((facility, *map(str, rest)))
            self._on_error(KafkaError(KafkaError._TRANSPORT, reason))  # noqa: SLF001 - its name


class SettingsLog(ClientLog):
    """Shows every line at the level debug, errors too: whoever writes settings is told them.

    Writers fence each other as a rule, above all where a group starts for the first time, and a
    client that is fenced calls that fatal.
    """

    @property
    def properties(self) -> dict[str, Any]:
        """See `ClientLog.properties`."""
        return {}

    def log(self, level: int, text: str, facility: str, *rest: object) -> None:
        """See `ClientLog.log`."""
        del level
        self._logger.debug(text, facility, *rest)

    def _heed(self, level: int, facility: str, rest: tuple[object, ...]) -> None:
        """It means nothing."""
