"""Carried: records on their way through the topic by-address, and the header they carry there.

One header more than the input gave them, the last one: where they come from, written as the
original of a duplicate is. Nothing else of a record changes on that way.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence.headers import ORIGIN
from service.record import Record
from service.route import Headers
from state.edit import Source

# Whoever may write the topic may write anything; these fit wherever a place is kept.
_PARTITION_DIGITS_MAX: Final = 9
_OFFSET_DIGITS_MAX: Final = 18

NOWHERE = b""
"""The inlet of a record that does not tell."""


class Carried(NamedTuple):
    """A record as its input has it; see `Record`."""

    record: Record
    own_offset: int
    """In its input."""

    def key(self) -> bytes | None:
        """See `Record.key`."""
        return self.record.key()

    def value(self) -> bytes | None:
        """See `Record.value`."""
        return self.record.value()

    def offset(self) -> int:
        """See `Record.offset`."""
        return self.own_offset

    def timestamp(self) -> tuple[int, int]:
        """See `Record.timestamp`."""
        return self.record.timestamp()


class Traced(NamedTuple):
    """Records with what their traces tell; columns of equal length."""

    inlets: list[bytes]
    """Topic and partition as they were written; `NOWHERE` where nothing tells."""
    own_offsets: list[int]
    headers: list[Headers | None]
    """As the input has them."""


def name_of(source: Source) -> bytes:
    """An inlet as it is written."""
    return b"%b-%d" % (source.topic.encode(), source.partition)


def trace(inlet: bytes, offset: int) -> tuple[str, bytes]:
    """The header that tells where a record comes from."""
    return ORIGIN, b"%b@%d" % (inlet, offset)


def source_of(inlet: bytes) -> Source | None:
    """The partition that is written so; None for anything else."""
    topic, _, digits = inlet.rpartition(b"-")
    if not digits.isdigit() or len(digits) > _PARTITION_DIGITS_MAX:
        return None
    return Source(topic.decode(errors="replace"), int(digits))


def untraced(column: Iterable[Headers | None]) -> Traced:
    """Take the traces off."""
    traced = Traced([], [], [])
    for headers in column:
        name, value = headers[-1] if headers else ("", None)
        inlet, _, digits = (value or b"").rpartition(b"@")
        is_number = digits.isdigit() and len(digits) <= _OFFSET_DIGITS_MAX
        if headers and name == ORIGIN and inlet and is_number:
            traced.inlets.append(inlet)
            traced.own_offsets.append(int(digits))
            traced.headers.append(headers[:-1])
        else:
            traced.inlets.append(NOWHERE)
            traced.own_offsets.append(0)
            traced.headers.append(headers)
    return traced
