"""Traces: what happens to one address, as random as a seed allows and aimed at the edges.

A trace opens an address and goes on with batches, that commit or roll back, and with restarts
under another size. An id is chosen by its distance from the newest one: just inside the ring, just
outside, anywhere; or it is fresh, and then of a kind that a careless ring takes for another id.
"""

import hashlib
import random
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Open(NamedTuple):
    """A new address with a ring of this size."""

    size: int


class Restart(NamedTuple):
    """The process restarts with this size in its settings."""

    size: int


class Batch(NamedTuple):
    """Ids of the messages of one transaction."""

    ids: tuple[bytes, ...]
    committed: bool


Operation = Open | Restart | Batch


def encode(trace: Iterable[Operation]) -> bytes:
    """A trace as RingOracle.java reads it."""
    return b"".join(piece for operation in trace for piece in _pieces(operation))


def _pieces(operation: Operation) -> Iterator[bytes]:
    if isinstance(operation, Batch):
        letter = b"C" if operation.committed else b"A"
        yield struct.pack(">cI", letter, len(operation.ids))
        for identifier in operation.ids:
            yield struct.pack(">I", len(identifier))
            yield identifier
    else:
        letter = b"O" if isinstance(operation, Open) else b"R"
        yield struct.pack(">cI", letter, operation.size)


def random_trace(seed: int, size: int, decisions: int) -> Iterator[Operation]:
    """A trace of at least so many decisions, with restarts under sizes around the given one."""
    chance = random.Random(seed)
    history = _History(chance, size)
    sizes = [size, max(1, size - 1), size + 1, max(1, size // 2), size * 2] if size else [0]
    restart_every = max(200, decisions // 24)
    yield Open(size)
    decided, restart_at = 0, restart_every
    while decided < decisions:
        committed = chance.random() > 0.1
        batch = Batch(history.ids(_batch_size(chance, size), committed=committed), committed)
        yield batch
        decided += len(batch.ids)
        if decided >= restart_at:
            restart_at = decided + chance.randrange(restart_every * 2)
            history.resize(chance.choice(sizes))
            yield Restart(history.size)


def _batch_size(chance: random.Random, size: int) -> int:
    """Mostly small; sometimes more than the ring holds, or than one run does."""
    if chance.random() < 0.02:
        return chance.choice([0, size, size + 1, 600, 1100])
    return chance.randint(1, chance.choice([4, 3 * min(size, 300) + 4]))


class _History:
    """All ids ever accepted, in order, to aim by: it never decides what the right answer is."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self.size = size
        self._chance = chance
        self._accepted: list[bytes] = []
        self._place: dict[bytes, int] = {}
        self._floor = 0
        self._last = b""
        self._long = b""
        self._kinds: list[Callable[[], bytes]] = [
            lambda: b"order-%d" % chance.getrandbits(48),
            lambda: chance.randbytes(16),  # hardly ever UTF-8
            lambda: self._last[:96] + chance.randbytes(1),  # the one before is its prefix
            lambda: b"l" * 64 + b"%d" % chance.getrandbits(48),  # equal in the first 64 bytes
            lambda: b"x" * chance.randint(60, 70) + chance.randbytes(3),
            lambda: hashlib.sha256(self._long).digest(),  # what a long id is remembered by
        ]

    def ids(self, count: int, *, committed: bool) -> tuple[bytes, ...]:
        return tuple(self._id(committed=committed) for _ in range(count))

    def resize(self, size: int) -> None:
        self.size = size
        self._floor = max(self._floor, len(self._accepted) - size)

    def _id(self, *, committed: bool) -> bytes:
        identifier = self._choose()
        self._last = identifier
        if len(identifier) > 64:
            self._long = identifier
        if committed and self._place.get(identifier, -1) < self._floor:
            self._place[identifier] = len(self._accepted)
            self._accepted.append(identifier)
            self.resize(self.size)
        return identifier

    def _choose(self) -> bytes:
        draw = self._chance.random()
        if draw < 0.45 or not self._accepted:
            return self._chance.choice(self._kinds)()
        if draw < 0.75:
            return self._at(self.size + self._chance.randint(-2, 2))
        if draw < 0.90:
            return self._at(self._chance.randint(1, self.size * 2 + 2))
        if draw < 0.95:
            return self._last
        return b"ab"[: self._chance.randrange(3)] * self._chance.randint(1, 2)

    def _at(self, distance: int) -> bytes:
        """The id accepted so long ago; 1 is the newest."""
        return self._accepted[-min(max(distance, 1), len(self._accepted))]
