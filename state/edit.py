"""The vocabulary of change: a key with its new value, or with none.

A decision yields edits, the transaction writes them to the changelog, and the same `apply`
brings them into a store after a commit and in a restore.
"""

from typing import Final, NamedTuple


class Edit(NamedTuple):
    """Set `key` to `value`; delete it when the value is None (a tombstone in the changelog)."""

    key: bytes
    value: bytes | None


class Source(NamedTuple):
    """Where a record came from: a topic and one of its partitions."""

    topic: str
    partition: int


IMPORTED: Final = -1
"""In place of an offset: the id was imported without one."""


class Origin(NamedTuple):
    """The place and time of an accepted record; a duplicate's dead letter names it.

    `time_ms` is the deciding partition's time in milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"
