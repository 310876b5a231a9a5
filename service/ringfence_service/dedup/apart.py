"""Apart rows: the records of a slice that the fast paths must leave to the full path.

The broker has refused such a record, or its topic may refuse it: for want of a key, for its time or
for its size. The full path decides it in its place in the order. The records between two of them
stay on the fast path.
Invariant: a slice is examined record by record only if it may have such a record.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from ringfence_client.headers import Headers
from ringfence_service.dedup.output import OutputResolver, size_bytes
from ringfence_service.dedup.record import Record
from ringfence_service.kafka.model import UNLIMITED, Present
from ringfence_service.native.records import Records
from ringfence_state.model import PartitionId

_AHEAD_MS: Final = 60_000
"""Clocks of publishers differ by less. A slice without a later record is not examined."""

_SLOW_MS_MAX: Final = 24 * 60 * 60 * 1000
"""The present is corrected by no more. Local times of two zones rarely differ by more."""


class Bounds(NamedTuple):
    """What no record of a slice exceeds; the records of a part of it do not either."""

    present: Present
    largest_bytes: int
    """No record takes more memory than this."""
    oldest_ms: int
    newest_ms: int
    """Its smallest and its largest timestamp."""


def present(now_ms: int, times_ms: Sequence[int], newest_ms: int) -> Present:
    """Return the present, later than by our clock if most records of a slice are ahead of it.

    A clock may be slow, as that of a machine that was suspended, or one with the local time of
    another zone. No record is at fault then, so what is up to a day ahead is left to the broker.
    Microseconds in place of milliseconds are further ahead.
    """
    if newest_ms <= now_ms + _AHEAD_MS:
        return Present.at(now_ms)
    usual_ms = sorted(times_ms)[len(times_ms) // 2]
    return Present(now_ms, min(max(now_ms, usual_ms), now_ms + _SLOW_MS_MAX))


class Rows(Protocol):
    """Records of one partition, in order; columns of equal length."""

    @property
    def messages(self) -> Sequence[Record]:
        """The records."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """Offsets in the partition that decides."""
        ...

    @property
    def times_ms(self) -> Sequence[int]:
        """Their timestamps."""
        ...

    @property
    def headers(self) -> Sequence[Headers | None]:
        """Their headers."""
        ...


class ApartRows:
    """Finds the apart rows among the records that one partition decides in one transaction."""

    def __init__(
        self, resolver: OutputResolver, source: PartitionId, targets: tuple[str, ...]
    ) -> None:
        """`targets` are the topics that a fast path writes."""
        self._offsets = resolver.noted(source)
        self._limits = limits = resolver.limits(targets)
        self.limits_times = min(limits.past_ms, limits.future_ms) < UNLIMITED
        """Whether the times of a slice matter."""

    def of(self, rows: Rows, bounds: Bounds) -> list[int]:
        """Return the indexes of the apart rows, ascending."""
        limits, found = self._limits, set[int]()
        if self._offsets:
            found.update(at for at, offset in enumerate(rows.offsets) if offset in self._offsets)
        oldest_ms = bounds.present.now_ms - limits.past_ms
        newest_ms = bounds.present.latest_ms + limits.future_ms
        if bounds.oldest_ms < oldest_ms or bounds.newest_ms > newest_ms:
            times_ms = enumerate(rows.times_ms)
            found.update(at for at, time_ms in times_ms if not oldest_ms <= time_ms <= newest_ms)
        may_be_large = bounds.largest_bytes > limits.room_bytes
        if isinstance(rows.messages, Records):
            if limits.needs_key or may_be_large:
                bytes_max = limits.room_bytes
                found.update(rows.messages.beyond(needs_key=limits.needs_key, bytes_max=bytes_max))
            return sorted(found)
        if limits.needs_key:
            found.update(at for at, record in enumerate(rows.messages) if record.key() is None)
        if may_be_large:
            found.update(_larger(rows, limits.room_bytes))
        return sorted(found)


def _larger(rows: Rows, bytes_max: int) -> Iterable[int]:
    columns = enumerate(zip(rows.messages, rows.headers, strict=True))
    for at, (record, headers) in columns:
        if size_bytes(record.key(), record.value(), headers or ()) > bytes_max:
            yield at
