"""Knobs: the sizes at which the service changes its ways, as one seed sets them, and what it met.

They are constants of modules, made for millions of ids; here a few are many. This is the one place
that changes them, and it puts them back after the run.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ringfence_service.native.compiled
import ringfence_service.native.runs
import ringfence_service.processor.poll
import ringfence_service.processor.settings_follower
import ringfence_state.cache
import ringfence_state.segment
import ringfence_state.strategies.ring
import ringfence_state.strategies.window
from ringfence_service.dedup.fast_paths import FastPaths
from ringfence_service.native.compiled import StoredCompiledIds
from ringfence_service.native.runs import ReplayedRuns, RingRuns
from ringfence_service.processor.counters import AddressCounters
from ringfence_service.processor.failures import FailureHandler
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.standby import StandbyCopies
from ringfence_state.cache import Cache
from tests.fakes.log import FakeCluster
from tests.simulation.deferred import DeferringThread
from tests.simulation.disk import Disk


@dataclass(frozen=True, slots=True)
class Knobs:
    """Sizes; None leaves one as it is."""

    whole_ids_max: int | None = None
    small_ids_max: int | None = None
    run_ids_max: int | None = None
    cache_bytes: int | None = None
    at_once: int | None = None
    piece_caches_max: int | None = None
    young_ids: int | None = None
    """Ids of a ring that are in no file; None: there are no files."""
    seed: int = 0

    @classmethod
    def of(cls, seed: int) -> "Knobs":
        """Return what a seed has: each is as it is in production now and then."""
        chance = random.Random(seed + 6)
        compact = chance.random() < 0.4
        return cls(
            whole_ids_max=chance.choice((0, 1, 4)) if compact else None,
            small_ids_max=chance.choice((None, 0, 2)),
            run_ids_max=chance.choice((None, 1, 2, 5)),
            cache_bytes=chance.choice((None, 0, 400, 2_000)),
            at_once=chance.choice((None, 1, 3, 10)),
            piece_caches_max=chance.choice((None, 1, 2)),
            young_ids=chance.choice((None, 1, 2, 4)) if compact else None,
            seed=seed,
        )


@contextmanager
def turned(knobs: Knobs, log: FakeCluster) -> Iterator[None]:
    """Set the sizes for as long as this lasts, and count what they lead to.

    What stands between a commit and the end of its application are steps as well.
    """
    met = log.met
    runs = (
        ringfence_state.segment,
        ringfence_state.strategies.ring,
        ringfence_state.strategies.window,
        ringfence_service.native.compiled,
    )
    sizes = (
        (ringfence_state.cache, "WHOLE_IDS_MAX", knobs.whole_ids_max),
        (ringfence_state.cache, "SMALL_IDS_MAX", knobs.small_ids_max),
        *((module, "SEGMENT_IDS_MAX", knobs.run_ids_max) for module in runs),
        (ringfence_service.processor.poll, "_AT_ONCE", knobs.at_once),
        (ringfence_service.processor.settings_follower, "PIECE_CACHES_MAX", knobs.piece_caches_max),
    )
    with ExitStack() as undo:
        for module, name, value in sizes:
            if value is not None:
                undo.enter_context(patch.object(module, name, value))

        def told(owner: type, name: str, tell: Callable[..., object]) -> None:
            undo.enter_context(patch.object(owner, name, _told(getattr(owner, name), tell)))

        told(FastPaths, "open", lambda lane, *_: met.update(["lanes opened"] if lane else []))
        told(
            StandbyCopies,
            "take",
            lambda copy, *_: met.update(["copies taken over"] if copy else []),
        )
        told(Reporter, "aborted", lambda *_: met.update(["aborted"]))
        told(FailureHandler, "refused", lambda *_: met.update(["refused by the broker"]))
        told(StoredCompiledIds, "__init__", lambda *_: met.update(["ids left in the store"]))
        told(Reporter, "committed", lambda *_: log.step("applying"))
        told(Cache, "apply", lambda *_: log.step("applying"))
        told(AddressCounters, "add", lambda *_: log.step("applying"))
        if knobs.young_ids is not None:
            told(RingRuns, "_placed", lambda *_: met.update(["runs"]))
            told(RingRuns, "_merge", lambda *_: met.update(["runs merged"]))
            thread = DeferringThread(knobs.seed, log.step)
            for name in ("_writing", "_merging"):
                undo.enter_context(
                    patch.object(ringfence_service.native.runs, name, lambda: thread)
                )
            undo.enter_context(patch.object(RingRuns, "young_ids", knobs.young_ids))
            undo.enter_context(patch.object(RingRuns, "built_ids", 2 * knobs.young_ids))
            undo.enter_context(patch.object(ReplayedRuns, "ids_max", 3 * knobs.young_ids))
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
            undo.enter_context(patch.object(Disk, "files_under", folder))
        undo.enter_context(patch.object(Cache, "__init__", _limited(knobs.cache_bytes)))
        undo.enter_context(patch.object(Cache, "shrink", _shrinking(met)))
        yield


def _told(genuine: Callable[..., Any], tell: Callable[..., object]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        result = genuine(*given, **named)
        tell(result, *given)
        return result

    return call


def _limited(cache_bytes: int | None) -> Callable[..., None]:
    genuine = Cache.__init__

    def init(cache: Cache, memory_bytes_max: int, **rest: Any) -> None:
        genuine(cache, memory_bytes_max if cache_bytes is None else cache_bytes, **rest)

    return init


def _shrinking(met: Counter[str]) -> Callable[[Cache], None]:
    genuine = Cache.shrink

    def shrink(cache: Cache) -> None:
        before = cache.memory_bytes
        genuine(cache)
        met["evictions"] += cache.memory_bytes < before
        states = [state.memory_bytes for _, state in cache.recent(1_000_000)]
        assert cache.memory_bytes == sum(states), "the account of the cache"
        assert cache.memory_bytes <= cache.memory_bytes_max + max(states, default=0)

    return shrink
