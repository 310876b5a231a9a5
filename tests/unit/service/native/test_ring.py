"""The compiled ring against the one in Python: verdicts, origins, and what both write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.native.extension import loaded
from service.native.ring import NativeRing, indexed, whole
from state.id_index import HashIndex
from state.memory_store import MemoryStore
from state.model import Claim, Edit, PackedPositions, PartitionId
from state.segment import SegmentEntry, decode, row_of
from state.strategies.base import StoredSize
from state.strategies.ring_admin import forget_all
from state.strategies.ring_memory import InMemoryRing
from tests.unit.state.strategies.test_ring import POSITION, STEPS, Step

pytestmark = pytest.mark.skipif(loaded().module is None, reason=loaded().why)

SOURCES = [PartitionId("orders", 1), PartitionId("payments", 7), PartitionId("héron", 0)]
STEPS_OF_SOURCES = st.lists(
    st.tuples(STEPS, st.lists(st.integers(0, 2), min_size=12, max_size=12), st.booleans()),
    max_size=12,
)
BIG = st.sampled_from([0, 1, -1, 255, 256, 65_536, 1 << 33, 1 << 61, -(1 << 61)])


class Written:
    """One ring, and the values that it has written."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.values: dict[bytes, bytes] = {}
        self.load()

    def load(self) -> None:
        """As it is after a restart."""
        entries = sorted(self.values.items())
        self.ring: InMemoryRing | NativeRing
        if self.form == "python":
            self.ring = InMemoryRing()
            self.ring.absorb([decode(value) for _, value in entries])
        elif self.form == "whole":
            self.ring = whole(entries)
        else:
            self.ring = indexed(entries, StoredSize(1, 1), self._read, HashIndex)

    def _read(self, first: int, number: int) -> SegmentEntry:
        value = next(v for k, v in self.values.items() if int.from_bytes(k[-8:]) == first)
        return row_of(value, number)

    def decide(self, step: Step, rows: list[tuple[int, int, int]]) -> list[object]:
        """All that a batch tells: origins, edits, counts, the bounds afterwards."""
        if step.restart:
            self.load()
        positions = PackedPositions(SOURCES[0])
        draft = self.ring.draft(step.size, positions)
        told: list[object] = []
        for identifier, (source, offset, time_ms) in zip(step.ids, rows, strict=False):
            position = positions.base(SOURCES[source]) + offset
            number = draft.admit(identifier, position, time_ms)
            told += [number, None if number is None else draft.origin(number)]
            told.append(draft.judge(identifier))
            if source == 2 and offset % 2 and step.size:
                claim = draft.renew(Claim(identifier))
                told += [draft.judge(identifier), claim, list(draft.renewed)]
                draft.admit(identifier, position, time_ms)
        told += [dict(draft.accepted()), list(draft.evicted), draft.extent() if step.size else 0]
        change = draft.change("a")
        if change is not None:
            told += change.edits
        if step.committed and change is not None:
            for edit in (*draft.deletions("a"), *change.edits):
                if edit.value is None:
                    self.values.pop(edit.key, None)
                else:
                    self.values[edit.key] = edit.value
            renewed = list(draft.renewed)
            self.ring.apply(change.content)
            self.ring.forget()
            if renewed:
                self.forget(renewed)
        told += [self.ring.ids_held, self.ring.ids_evicted]
        return told

    def forget(self, renewed: list[int]) -> None:
        """As the service does with what was renewed: rewrite the segments, and read them again."""
        store = MemoryStore()
        store.apply([Edit(k, v) for k, v in self.values.items()], POSITION)
        for edit in forget_all(store, "a", renewed):
            if edit.value is not None:
                self.values[edit.key] = edit.value
        self.load()


@pytest.mark.parametrize("form", ["whole", "indexed"])
@settings(max_examples=60, deadline=None)
@given(steps=STEPS_OF_SOURCES, data=st.data())
def test_a_compiled_ring_tells_and_writes_what_the_one_in_python_does(
    form: str, steps: list[tuple[Step, list[int], bool]], data: st.DataObject
) -> None:
    ours, theirs = Written(form), Written("python")
    offset = 0
    for step, sources, is_wide in steps:
        rows = []
        for source in sources:
            offset += 1
            wide = data.draw(BIG) if is_wide else 0
            rows.append((source, offset + wide, offset + 3 * wide))
        assert ours.decide(step, rows) == theirs.decide(step, rows)
        assert ours.values == theirs.values
