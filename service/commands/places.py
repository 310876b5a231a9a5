"""Places: where a record stands, written as topic-partition@offset, as dead letters tell it."""

import re
from typing import Final, NamedTuple

from service.errors import ExitCode, ExitError

_PLACE: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})@(?P<offset>[0-9]{1,19})")


class Place(NamedTuple):
    """A record's."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def place_of(text: str) -> Place:
    """Return the place that a text names."""
    found = _PLACE.fullmatch(text)
    if found is None:
        sentence = (
            f"{text!r} is no place of a record; write topic-partition@offset, as orders-3@42."
        )
        raise ExitError(ExitCode.USAGE, sentence)
    return Place(found["topic"], int(found["partition"]), int(found["offset"]))
