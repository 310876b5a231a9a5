"""Cache: rings in memory, loaded from their store when they are needed, bounded in bytes.

A ring in memory equals what its store holds of the address: it is loaded from the store's runs,
and after each commit it absorbs the very runs that went into the store. Small ones are held whole;
large ones, and all but the smallest when memory is short, as a `CompactRing`.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from state.edit import Source
from state.run import Row, Run, UnknownFormatError, decode, first_of, key, outline, prefix, row_of
from state.store import Store, StoreCorruptError
from state.strategies.compact_ring import CompactRing
from state.strategies.whole_ring import WholeRing

AnyRing = WholeRing | CompactRing

WHOLE_IDS_MAX: Final = 100_000
"""A ring of more ids is held compact, however much memory there is."""
SMALL_IDS_MAX: Final = 1_000
"""A ring of so few ids gains nothing by being compact."""
_RECENT_MAX: Final = 128
_AFTER_ALL: Final = b"\xff" * 9


class Cache:
    """Rings of all partitions of a worker, least recently used first."""

    def __init__(self, memory_bytes_max: int) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._memory_bytes = 0
        self._rings: OrderedDict[tuple[Source, str], AnyRing] = OrderedDict()
        self._untidy: list[AnyRing] = []
        self._recent: OrderedDict[tuple[Source, bytes], bytes] = OrderedDict()
        """Runs that were read last, for compact rings."""

    @property
    def memory_bytes(self) -> int:
        """What the rings in memory take, estimated."""
        return self._memory_bytes

    def ring(self, source: Source, store: Store, address: str) -> AnyRing:
        """The committed ring of an address on a deciding partition."""
        place = (source, address)
        ring = self._rings.get(place)
        if ring is None:
            ring = self._rings[place] = self._loaded(source, store, address)
            self._memory_bytes += ring.memory_bytes
        self._rings.move_to_end(place)
        return ring

    def absorb(
        self, source: Source, address: str, ring: AnyRing, runs: Sequence[Run], deleted: int
    ) -> None:
        """Bring committed runs into a ring that this batch was decided on."""
        before = ring.memory_bytes
        ring.absorb(runs, deleted)
        self._untidy.append(ring)
        if (source, address) in self._rings:
            self._memory_bytes += ring.memory_bytes - before
            if _has_outgrown(ring):
                self._forget(source, address)  # it is loaded anew, as it should be by now

    def tidy(self) -> None:
        """What commits left to do and no verdict waits for."""
        for ring in self._untidy:
            ring.forget()
        self._untidy.clear()

    def shrink(self) -> None:
        """Forget the least recently used rings until the rest fits; call it between batches."""
        while self._memory_bytes > self._memory_bytes_max and self._rings:
            self._forget(*next(iter(self._rings)))

    def drop(self, source: Source) -> None:
        """Forget a partition's rings: it is owned by somebody else now, or read anew."""
        for place in [place for place in self._rings if place[0] == source]:
            self._forget(*place)
        for run in [run for run in self._recent if run[0] == source]:
            del self._recent[run]

    def _forget(self, source: Source, address: str) -> None:
        self._memory_bytes -= self._rings.pop((source, address)).memory_bytes

    def _loaded(self, source: Source, store: Store, address: str) -> AnyRing:
        try:
            ids, capacity = _extent(store, address)
            is_short = self._memory_bytes > self._memory_bytes_max / 2
            if ids > WHOLE_IDS_MAX or (is_short and ids > SMALL_IDS_MAX):
                compact = CompactRing(self._reader(source, store, address), ids, capacity)
                for _, value in store.scan(prefix(address)):
                    compact.take(outline(value))
                return compact
            ring = WholeRing()
            ring.absorb([decode(value) for _, value in store.scan(prefix(address))])
        except UnknownFormatError as error:
            # The changelog was checked on its way in, so it is this copy that is damaged.
            raise StoreCorruptError(source, error) from error
        return ring

    def _reader(self, source: Source, store: Store, address: str) -> Callable[[int, int], Row]:
        def read(first: int, number: int) -> Row:
            try:
                return row_of(self._value(source, store, key(address, first)), number)
            except UnknownFormatError as error:
                raise StoreCorruptError(source, error) from error

        return read

    def _value(self, source: Source, store: Store, run_key: bytes) -> bytes:
        value = self._recent.get((source, run_key))
        if value is None:
            value = store.get(run_key)
            if value is None:
                raise StoreCorruptError(source, f"there is no run {run_key.hex()}")
            self._recent[source, run_key] = value
            if len(self._recent) > _RECENT_MAX:
                self._recent.popitem(last=False)
        return value


def _extent(store: Store, address: str) -> tuple[int, int]:
    """How many ids the runs of an address span, outlived ones included, and its newest capacity.

    Never less than its ring holds: a ring that was dropped for its size must not come back whole.
    """
    begin = prefix(address)
    oldest, newest = store.next_key(begin), store.previous_key(begin + _AFTER_ALL)
    if oldest is None or newest is None or not oldest.startswith(begin):
        return 0, 0
    last = outline(store.get(newest) or b"")
    return last.first + len(last.ids) - first_of(oldest), last.capacity


def _has_outgrown(ring: AnyRing) -> bool:
    if isinstance(ring, CompactRing):
        return ring.is_crowded
    return len(ring) > WHOLE_IDS_MAX
