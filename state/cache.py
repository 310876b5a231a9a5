"""Cache: rings in memory, loaded from their store when they are needed, bounded in bytes.

A ring in memory equals what its store holds of the address: it is loaded from the store's runs,
and after each commit it absorbs the very runs that went into the store.
"""

from collections import OrderedDict
from collections.abc import Sequence

from state.edit import Source
from state.run import Run, UnknownFormatError, decode, prefix
from state.store import Store, StoreCorruptError
from state.strategies.ring import Ring


class Cache:
    """Rings of all partitions of a worker, least recently used first."""

    def __init__(self, memory_bytes_max: int) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._memory_bytes = 0
        self._rings: OrderedDict[tuple[Source, str], Ring] = OrderedDict()

    @property
    def memory_bytes(self) -> int:
        """What the rings in memory take, estimated."""
        return self._memory_bytes

    def ring(self, source: Source, store: Store, address: str) -> Ring:
        """The committed ring of an address on a deciding partition."""
        place = (source, address)
        ring = self._rings.get(place)
        if ring is None:
            ring = self._rings[place] = _loaded(source, store, address)
            self._memory_bytes += ring.memory_bytes
        self._rings.move_to_end(place)
        return ring

    def absorb(self, source: Source, address: str, ring: Ring, runs: Sequence[Run]) -> None:
        """Bring committed runs into a ring that this batch was decided on."""
        before = ring.memory_bytes
        ring.absorb(runs)
        if (source, address) in self._rings:
            self._memory_bytes += ring.memory_bytes - before

    def shrink(self) -> None:
        """Forget the least recently used rings until the rest fits; call it between batches."""
        while self._memory_bytes > self._memory_bytes_max and self._rings:
            _, ring = self._rings.popitem(last=False)
            self._memory_bytes -= ring.memory_bytes

    def drop(self, source: Source) -> None:
        """Forget a partition's rings: it is owned by somebody else now, or read anew."""
        for place in [place for place in self._rings if place[0] == source]:
            self._memory_bytes -= self._rings.pop(place).memory_bytes


def _loaded(source: Source, store: Store, address: str) -> Ring:
    ring = Ring()
    try:
        ring.absorb([decode(value) for _, value in store.scan(prefix(address))])
    except UnknownFormatError as error:
        # The changelog was checked on its way in, so it is this copy that is damaged.
        raise StoreCorruptError(source, error) from error
    return ring
