"""Our ring and the dumb model as a trace needs them: batches, restarts, and what survives those."""

import copy
from collections.abc import Iterable
from typing import Final

from ringfence_state.model import Origin, PackedPositions, PartitionId
from ringfence_state.segment import decode
from ringfence_state.strategies.ring_memory import InMemoryRing
from tests.oracle.model import DequeRing

ADDRESS: Final = "oracle"
SOURCE: Final = PartitionId("orders", 0)


class OurRing:
    """Our ring as the service drives it; only `changelog`, with its keys, survives a restart."""

    def __init__(self, size: int) -> None:
        self.changelog: dict[bytes, bytes] = {}
        self.originals: list[Origin] = []
        self._sent = 0
        self.restart(size)

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def memory_bytes(self) -> int:
        """What the ring says that it takes."""
        return self._ring.memory_bytes

    def restart(self, size: int) -> None:
        """Begin again from what survived, under this size."""
        self._ring = InMemoryRing()
        self._ring.absorb([decode(self.changelog[key]) for key in sorted(self.changelog)])
        self.resize(size)

    def resize(self, size: int) -> None:
        """Take another size, with a commit that brings nothing else."""
        self.size = size
        self.decide(())

    def decide(self, ids: Iterable[bytes], *, committed: bool = True) -> bytes:
        """One batch, offsets counted on: for each id 1 if it is a duplicate, else 0.

        `originals` are the places that its duplicates name.
        """
        draft = self._ring.draft(self.size, PackedPositions(SOURCE))
        verdicts = bytearray()
        self.originals = []
        for offset, identifier in enumerate(ids, start=self._sent):
            number = draft.admit(identifier, offset, offset)
            if number is not None:
                self.originals.append(draft.origin(number))
            verdicts.append(number is not None)
        self._sent += len(verdicts)
        if committed:
            runs = draft.seal()
            for key, value in draft.deletions(ADDRESS) + draft.edits(ADDRESS, runs):
                self._write(key, value)
            self._ring.absorb(runs, len(draft.evicted))
        return bytes(verdicts)

    def _write(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.changelog.pop(key, None)
        else:
            self.changelog[key] = value


class OurModel:
    """The dumb model, driven in the same way; it survives a restart as it is."""

    def __init__(self, size: int) -> None:
        self._ring = DequeRing(size)

    def __len__(self) -> int:
        return len(self._ring)

    def restart(self, size: int) -> None:
        """Take another size."""
        self._ring.resize(size)

    def decide(self, ids: Iterable[bytes], *, committed: bool = True) -> bytes:
        """One batch: for each id 1 if it is a duplicate, else 0."""
        draft = copy.deepcopy(self._ring)
        verdicts = bytearray()
        for identifier in ids:
            verdicts.append(draft.judge(identifier))
            if not verdicts[-1]:
                draft.remember(identifier)
        if committed:
            self._ring = draft
        return bytes(verdicts)
