"""Waiting: until a test has what it needs, with one limit that nothing but a fault reaches."""

import json
import time
from collections.abc import Callable
from typing import Final, Protocol

from confluent_kafka import KafkaException

LIMIT_S: Final = 300.0
"""No clock judges: a busy machine has all of this."""
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 0.25
_PAUSE_SHARE: Final = 0.1
"""The pause as a share of what was waited for so far: who waits for long asks less often."""


class Witness(Protocol):
    """What wrote a log that explains why something did not come."""

    def tail(self) -> str:
        """The end of its log."""


def eventually(
    true: Callable[[], object], *witnesses: Witness, pause_max_s: float = _PAUSE_MAX_S
) -> None:
    """Return once it is so; an answer that did not come is asked for again."""
    began_s = time.monotonic()
    while not _is_so(true):
        waited_s = time.monotonic() - began_s
        if waited_s > LIMIT_S:
            logs = "\n".join(witness.tail() for witness in witnesses)
            raise AssertionError(f"not so within {LIMIT_S:g} s: {true}\n{logs}")
        pause_s = min(max(_PAUSE_S, waited_s * _PAUSE_SHARE), pause_max_s)
        time.sleep(pause_s)  # noqa: TID251 - this is what others call in place of it


def _is_so(true: Callable[[], object]) -> bool:
    try:
        return bool(true())
    except (json.JSONDecodeError, KafkaException, TimeoutError):
        return False
