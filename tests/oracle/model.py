"""The rule of a ring as the slowest obvious model: a deque of limited length."""

from collections import deque
from collections.abc import Iterator


class DequeRing:
    """The last `capacity` ids in the order of their acceptance; `copy.deepcopy` it to try out."""

    def __init__(self, capacity: int) -> None:
        self._ids: deque[bytes] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._ids)

    @property
    def capacity(self) -> int:
        """How many ids it may hold."""
        return self._ids.maxlen or 0

    def judge(self, identifier: bytes) -> bool:
        """Whether it is a duplicate."""
        return identifier in self._ids

    def remember(self, identifier: bytes) -> None:
        """Add an id that was judged new."""
        self._ids.append(identifier)

    def resize(self, capacity: int) -> None:
        """The newest ids stay; a larger ring fills up from what was held."""
        self._ids = deque(self._ids, maxlen=capacity)

    def forget(self, identifier: bytes, hole: bytes) -> None:
        """Put a hole, which is no id, into the place of one that it holds."""
        self._ids[self._ids.index(identifier)] = hole

    def clear(self) -> None:
        """Forget all."""
        self._ids.clear()
