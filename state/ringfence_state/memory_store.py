"""In-memory store: a dict, for state that need not outlive the process."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from pathlib import Path

from ringfence_state.model import Edit
from ringfence_state.store import StorePosition, StoreStats


class MemoryStore:
    """A dict of values, and a sorted list of its keys."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._position: StorePosition | None = None

    derived: Path | None = None
    """There are no files."""

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `start` on whose keys start with the prefix, ascending."""
        for key in self._keys[bisect_left(self._keys, max(prefix, start)) :]:
            if not key.startswith(prefix):
                return
            yield key, self._values[key]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        return self._values.get(key)

    def previous_key(self, key: bytes) -> bytes | None:
        """Return the last key before this one, or None."""
        index = bisect_left(self._keys, key)
        return self._keys[index - 1] if index else None

    def next_key(self, key: bytes) -> bytes | None:
        """Return the first key at or after this one, or None."""
        index = bisect_left(self._keys, key)
        return self._keys[index] if index < len(self._keys) else None

    def position(self) -> StorePosition | None:
        """Return the position of the last `apply`, or None."""
        return self._position

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """Write the edits and the position."""
        self.keep(edits)
        self._position = position

    def replay(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """Write the edits and the position."""
        self.apply(edits, position)

    def keep(self, edits: Iterable[Edit]) -> None:
        """Write edits without a position: state that does not outlive the process needs none."""
        for key, value in edits:
            known = key in self._values
            if value is not None:
                self._values[key] = value
                if not known:
                    insort(self._keys, key)
            elif known:
                del self._values[key]
                del self._keys[bisect_left(self._keys, key)]

    def figures(self) -> StoreStats:
        """Return the number of keys."""
        return StoreStats(keys=len(self._keys))

    def close(self) -> None:
        """Do nothing: a dict holds no files or locks."""
