"""Waiting: until a test has what it needs, with one limit that nothing but a fault reaches."""

import json
import time
from collections.abc import Callable
from typing import Final, Protocol

from confluent_kafka import KafkaException

LIMIT_S: Final = 300.0
"""No clock judges: a busy machine has all of this."""
_PAUSE_S: Final = 0.05


class Witness(Protocol):
    """What wrote a log that explains why something did not come."""

    def tail(self) -> str:
        """The end of its log."""


def eventually(true: Callable[[], object], *witnesses: Witness) -> None:
    """Return once it is so; an answer that did not come is asked for again."""
    deadline_s = time.monotonic() + LIMIT_S
    while not _is_so(true):
        if time.monotonic() > deadline_s:
            logs = "\n".join(witness.tail() for witness in witnesses)
            raise AssertionError(f"not so within {LIMIT_S:g} s: {true}\n{logs}")
        time.sleep(_PAUSE_S)  # noqa: TID251 - this is what others call in place of it


def _is_so(true: Callable[[], object]) -> bool:
    try:
        return bool(true())
    except (json.JSONDecodeError, KafkaException, TimeoutError):
        return False
