"""Apart rows: the records of a slice that no fast path may take, among those that it may.

The broker refused them, or they may be too large for their topics. They are decided by the full
path, in their place in the order; the records between them stay on the fast path.
Invariant: a slice is looked at record by record only if it may have such a record.
"""

from collections.abc import Iterable, Sequence

from ringfence.headers import Headers
from service.dedup.output import OutputResolver, size_bytes
from service.dedup.record import Record
from service.native.records import Records
from state.model import PartitionId


class ApartRows:
    """Finds the apart rows among the records that one partition decides in one transaction."""

    def __init__(
        self, resolver: OutputResolver, source: PartitionId, targets: Iterable[str | None]
    ) -> None:
        """`targets` are the topics that a fast path writes; None for one that records decide."""
        self._offsets = resolver.noted(source)
        self._bytes_max = resolver.room_bytes(targets)

    def of(
        self,
        messages: Sequence[Record],
        offsets: Sequence[int],
        headers: Sequence[Headers | None],
        largest_bytes: int,
    ) -> list[int]:
        """Return the indexes of the apart rows, ascending; no record exceeds `largest_bytes`."""
        found = set[int]()
        if self._offsets:
            found.update(at for at, offset in enumerate(offsets) if offset in self._offsets)
        if largest_bytes > self._bytes_max:
            found.update(_larger(messages, headers, self._bytes_max))
        return sorted(found)


def _larger(
    messages: Sequence[Record], column: Sequence[Headers | None], bytes_max: int
) -> Iterable[int]:
    """Return the rows that may be larger than this."""
    if isinstance(messages, Records):
        return messages.larger(bytes_max)
    return (
        at
        for at, (message, headers) in enumerate(zip(messages, column, strict=True))
        if size_bytes(message.key(), message.value(), headers or ()) > bytes_max
    )
