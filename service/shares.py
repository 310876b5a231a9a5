"""Shares: what the members of a group were given, as the group keeps it.

In Kafka's consumer protocol: a version, then each topic with its partitions, then bytes that
belong to whoever shared them out.
"""

import struct
from collections.abc import Iterator
from typing import Final

from state.edit import Source

_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
_VERSION_BYTES: Final = 2


def shared_out(assignment: bytes) -> Iterator[Source]:
    """The partitions of one member; struct.error for what is no assignment."""
    if not assignment:
        return  # a member that was given nothing yet
    position = _VERSION_BYTES
    topics, position = _number(_COUNT, assignment, position)
    for _ in range(topics):
        length, position = _number(_LENGTH, assignment, position)
        name = assignment[position : position + length].decode()
        count, position = _number(_COUNT, assignment, position + length)
        for _ in range(count):
            partition, position = _number(_COUNT, assignment, position)
            yield Source(name, partition)


def _number(kind: struct.Struct, text: bytes, position: int) -> tuple[int, int]:
    (number,) = kind.unpack_from(text, position)
    return int(number), position + kind.size
