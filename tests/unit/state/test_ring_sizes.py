"""What a full ring takes at most: the sizes that plans are made of, against real rings."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from ringfence_service.config.addresses import AddressSettings
from ringfence_service.native.compiled import CompiledIds
from ringfence_service.native.extension import loaded
from ringfence_service.native.ring import NativeRing, NativeStoredRing
from ringfence_service.native.window import NativeStoredWindow, NativeWindow
from ringfence_service.queries.sizing import (
    ID_BYTES,
    NAME_BYTES,
    SIZE_MAX,
    AcceptRates,
    memory_bytes,
    sized,
)
from ringfence_state.cache import FULL, WHOLE_IDS_MAX
from ringfence_state.keys import SEGMENTS
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import PackedPositions, PartitionId
from ringfence_state.ring_sizes import NATIVE, PYTHON, slots_max
from ringfence_state.stored_segments import StoredSegments
from ringfence_state.strategies.base import CommittedState, Draft
from ringfence_state.strategies.ring_memory import InMemoryRing
from ringfence_state.strategies.window import WINDOW
from tests.support.helpers import some
from tests.support.native import needs_native

SOURCE = PartitionId("orders", 0)
MIB = 1024 * 1024


def rounded_sizes(least: int) -> Iterator[int]:
    """All sizes of two digits from there to the largest that may be set."""
    for digits in range(1, 10):
        for leading in range(10, 100):
            if least <= leading * 10**digits <= SIZE_MAX:
                yield leading * 10**digits
    yield SIZE_MAX


def most_bytes(memory: CommittedState, size: int, store: MemoryStore) -> int:
    """The most that a ring or window takes, from its first id until all were evicted twice."""
    most, number = 0, 0
    limits = AddressSettings(id_cache_size=size, window_size=size)
    while number < 3 * size + 2_000:
        draft = some(memory.begin(limits, PackedPositions(SOURCE)).by_id)
        batch = [b"%0*d" % (ID_BYTES, n) for n in range(number, number + 512)]
        rows = list(range(number, number + 512))
        assert not any(map(draft.admit, batch, rows, rows))
        change = some(cast("Draft", draft).change("a"))
        store.keep([*cast("Draft", draft).deletions("a"), *change.edits])
        memory.apply(change.content)
        most, number = max(most, memory.memory_bytes), number + 512
    return most


SIZES = (600, 1_000, 1_365, 1_366, 2_700, 2_731, 5_461, 5_500, 9_000, 10_922, 10_923, 20_000)


@needs_native
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", [NativeRing, NativeStoredRing, NativeWindow, NativeStoredWindow])
def test_a_compiled_ring_or_window_takes_at_most_its_size(
    size: int, form: type[CompiledIds]
) -> None:
    store = MemoryStore()
    segments = StoredSegments(SOURCE, store, WINDOW if form.is_window else SEGMENTS, "a")
    memory = form() if form.is_whole else cast("Any", form)(segments)
    most = most_bytes(cast("CommittedState", memory), size, store)
    sizes = NATIVE.whole if form.is_whole else NATIVE.stored
    assert most <= sizes(size, ID_BYTES + NAME_BYTES * form.is_window)
    assert most >= 8 * slots_max(size), "the table has grown to what is said of it"


@pytest.mark.parametrize("size", SIZES)
def test_a_ring_in_python_takes_at_most_its_size(size: int) -> None:
    most = most_bytes(InMemoryRing(), size, MemoryStore())
    assert PYTHON.whole(size, ID_BYTES) / 3 < most <= PYTHON.whole(size, ID_BYTES)


@needs_native
def test_a_table_grows_by_the_rule_of_the_extension() -> None:
    slots_for = cast("Callable[[int], int]", cast("Any", loaded().module).slots_for)
    powers = [(1 << power) * 2 // 3 + more for power in range(4, 31) for more in (-1, 0, 1)]
    for size in (*range(1, 2_000), *powers, *rounded_sizes(2_000)):
        # The number that is being added counts too.
        assert slots_max(size) == slots_for(size - 1)


@pytest.mark.parametrize("path", ["native", "python"])
def test_what_a_plan_writes_holds_a_ring_that_has_grown(path: Any) -> None:
    for size in rounded_sizes(15_000_000):
        rate = AcceptRates(size // 1.5, size // 1.5)
        plan = some(sized(rate, 1_000, 1, path, is_window=False))
        assert plan.size == size
        limit_bytes = plan.cache_memory_mb * MIB
        held = size * 20 // 8 if path == "native" else 200 * size
        assert held <= plan.memory_bytes <= FULL * limit_bytes


def test_a_ring_that_is_kept_whole_is_sized_so() -> None:
    for rings, path in ((NATIVE, "native"), (PYTHON, "python")):
        for size, form in ((WHOLE_IDS_MAX, rings.whole), (WHOLE_IDS_MAX + 1, rings.stored)):
            assert memory_bytes(size, cast("Any", path), is_window=False) == form(size, ID_BYTES)
