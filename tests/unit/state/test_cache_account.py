"""The account of the cache: what it says that all states take is what each of them says."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringfence_service.native.compiled
import ringfence_state.cache
import ringfence_state.strategies.ring
from ringfence_service.config.addresses import AddressSettings
from ringfence_state.cache import BatchTooLargeError, Cache
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import NO_CLAIM, Claim, Origin, PackedPositions, PartitionId
from ringfence_state.store import Identity, StorePosition
from ringfence_state.strategies.registry import STRATEGIES
from tests.support.native import native_rings, needs_native

SOURCES = (PartitionId("orders", 0), PartitionId("orders", 1))
POSITION = StorePosition(Identity("c", "i", "l", 1), 0, 0, 0)
STEPS = (
    "decide",
    "decide",
    "abort",
    "redrive with forget",
    "abort a redrive",
    "forget an id",
    "clear",
    "shrink",
    "drop a partition",
    "drop an address",
    "begin",
)


class Step(NamedTuple):
    """What is done next, and with which ids of which address."""

    what: str
    partition: int
    address: str
    ids: list[int]
    size: int


IDS = st.lists(st.integers(0, 40), max_size=12)
STEP = st.builds(
    Step,
    st.sampled_from(STEPS),
    st.integers(0, 1),
    st.sampled_from("abc"),
    IDS,
    st.sampled_from((0, 3, 20, 1_000)),
)


class Scene:
    """A cache over two partitions, and what a service does with it."""

    def __init__(self, strategy: str, limit_bytes: int) -> None:
        self.strategy, self.cache = strategy, Cache(limit_bytes)
        self.stores = {source: MemoryStore() for source in SOURCES}
        self._offset = 0

    def do(self, step: Step) -> None:
        """Take a step; a transaction that needs too much memory ends in an abort."""
        source, cache = SOURCES[step.partition], self.cache
        with suppress(BatchTooLargeError):
            if step.what == "shrink":
                cache.shrink()
            elif step.what == "drop a partition":
                cache.drop(source)
            elif step.what == "drop an address":
                cache.dismiss_where(lambda address: address == step.address)
            elif step.what == "begin":
                cache.begin(is_bounded=step.size < 20)
            else:
                self._change(step, source)

    def _change(self, step: Step, source: PartitionId) -> None:
        cache, store, rules = self.cache, self.stores[source], STRATEGIES[self.strategy]
        memory = cache.memory(source, store, step.address, rules)
        if step.what == "clear":
            store.apply(rules.clear(store, step.address), POSITION)
            cache.dismiss(source, step.address)
            return
        given = AddressSettings(
            strategy=self.strategy, id_cache_size=step.size, window_size=max(1, step.size)
        )
        draft = memory.begin(given, PackedPositions(source))
        for number in step.ids:
            self._offset += 1
            claim = Claim(b"%d" % number, None, f"P{number % 3}", self._offset, 0, 0)
            at = Origin(*source, self._offset, self._offset)
            if "forget" in step.what or "redrive" in step.what:
                claim = draft.renew(claim)
                if step.what == "forget an id":
                    continue  # its record never comes
            if claim != NO_CLAIM and draft.verdict(claim, at) is None:
                draft.remember(claim, at)
        if "abort" in step.what:
            return
        if step.what == "forget an id":
            store.apply(rules.renewals(store, step.address, draft), POSITION)
            cache.reread(source, step.address)
            return
        change = draft.change(step.address)
        renewals = rules.renewals(store, step.address, draft)
        edits = draft.deletions(step.address) + (change.edits if change else []) + renewals
        store.apply(edits, POSITION)
        if change is not None:
            cache.apply(source, step.address, memory, change.content)

    def check(self) -> None:
        """The account is the sum, and all that is used are parts of it."""
        states = [state for _, state in self.cache.recent(100)]
        assert self.cache.memory_bytes == sum(state.memory_bytes for state in states)
        assert 0 <= self.cache.used_bytes <= self.cache.memory_bytes


@contextmanager
def small(path: str, whole_ids_max: int) -> Iterator[None]:
    """A few ids make a segment and a large ring; on either path."""
    with native_rings() if path == "native" else pytest.MonkeyPatch.context() as patch:
        for module in (ringfence_state.strategies.ring, ringfence_service.native.compiled):
            patch.setattr(module, "SEGMENT_IDS_MAX", 3)
        patch.setattr(ringfence_state.cache, "WHOLE_IDS_MAX", whole_ids_max)
        patch.setattr(ringfence_state.cache, "SMALL_IDS_MAX", 2)
        yield


def run(strategy: str, limit_bytes: int, steps: list[Step]) -> None:
    scene = Scene(strategy, limit_bytes)
    for step in steps:
        scene.do(step)
        scene.check()
    scene.cache.shrink()
    scene.check()
    sizes = [each.memory_bytes for _, each in scene.cache.recent(100)]
    assert scene.cache.memory_bytes <= limit_bytes + max(sizes, default=0)


@pytest.mark.parametrize("whole_ids_max", [0, 5, 100_000], ids=["stored", "both", "whole"])
@pytest.mark.parametrize(
    ("path", "strategy"),
    [
        ("python", "ring"),
        pytest.param("native", "ring", marks=needs_native),
        pytest.param("native", "window", marks=needs_native),
    ],
)
@settings(max_examples=40, deadline=None)
@given(limit_bytes=st.sampled_from((0, 2_000, 1 << 30)), steps=st.lists(STEP, max_size=40))
def test_after_any_steps_the_cache_counts_what_its_rings_take(
    path: str, strategy: str, whole_ids_max: int, limit_bytes: int, steps: list[Step]
) -> None:
    with small(path, whole_ids_max):
        run(strategy, limit_bytes, steps)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in {"off", "ring"}])
@settings(max_examples=20, deadline=None)
@given(limit_bytes=st.sampled_from((0, 2_000, 1 << 30)), steps=st.lists(STEP, max_size=30))
def test_after_any_steps_the_cache_counts_what_other_states_take(
    strategy: str, limit_bytes: int, steps: list[Step]
) -> None:
    run(strategy, limit_bytes, steps)


@needs_native
@pytest.mark.parametrize("step", ["forget an id", "redrive with forget", "abort a redrive"])
def test_ids_that_are_forgotten_for_ever_neither_evict_the_ring_nor_end_the_worker(
    step: str,
) -> None:
    with small("native", whole_ids_max=0):
        scene = Scene("ring", 20_000)
        for number in range(150):
            new = list(range(40 * number, 40 * number + 40))
            scene.do(Step("decide", 0, "a", new, 300))
            ring = scene.cache.look(SOURCES[0], "a")
            scene.do(Step(step, 0, "a", new[:1], 300))
            scene.cache.shrink()
            scene.check()
            if number > 10:  # it has its size and its form
                assert scene.cache.look(SOURCES[0], "a") is ring
