"""Record: what decisions read of a Kafka message, its headers aside; they may be read once only."""

from typing import Protocol


class Record(Protocol):
    """A message as it came, or one that waited in the state."""

    def key(self) -> bytes | None:
        """Its key; empty is not absent."""
        ...

    def value(self) -> bytes | None:
        """Its value; empty is not absent."""
        ...

    def offset(self) -> int | None:
        """Its place in the partition; a record that was read always has one."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """The kind of its timestamp, and milliseconds since the epoch."""
        ...
