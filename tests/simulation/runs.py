"""Runs: consecutive seeds of a simulation, shared out over the processors.

RINGFENCE_SEED=n replays one seed; RINGFENCE_SIM_RUNS=n makes as many runs, 10,000 in `make sim`, of
the seeds from RINGFENCE_FIRST_SEED on.
"""

import faulthandler
import gc
import logging
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final, NamedTuple

import structlog

RUNS: Final = int(os.environ.get("RINGFENCE_SIM_RUNS") or 1_000)
FIRST: Final = int(os.environ.get("RINGFENCE_FIRST_SEED") or 1)
SEED: Final = os.environ.get("RINGFENCE_SEED") or ""
TIMEOUT_S: Final = max(900, RUNS // 5)
"""For all runs together, on a busy machine."""
_CHUNK: Final = 100
_CHUNK_S_MAX: Final = 300
_SHOWN_MAX: Final = 30
"""Faults are printed as they are found, until there are so many."""
_TOLD: Final = 10_000
"""After so many runs a line shows the progress."""

Simulate = Callable[[int], Counter[str]]
"""Run one seed; returns what it met, and raises where something does not hold."""


class Found(NamedTuple):
    """What came of some runs."""

    faults: list[str]
    met: Counter[str]


def be_quiet() -> None:
    """Log nothing: the service logs every fault, and here nearly everything is one."""
    silent = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=silent)


def faults_of(simulate: Simulate, runs: int) -> list[str]:
    """Run the first seeds here, where a test may have broken something; what did not hold."""
    return _found(1, runs, simulate).faults


def found_by(simulate: Simulate, runs: int) -> Found:
    """Run the first seeds in processes of their own, or the one seed that was asked for."""
    if SEED:
        return Found([], simulate(int(SEED)))
    firsts = range(FIRST, FIRST + runs, _CHUNK)
    counts = [min(_CHUNK, FIRST + runs - first) for first in firsts]
    apart = get_context("spawn")
    faults, met = list[str](), Counter[str]()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=apart, initializer=_prepare) as pool:
        each = pool.map(partial(_found_in_time, simulate=simulate), firsts, counts)
        for first, found in zip(firsts, each, strict=True):
            faults += found.faults
            met += found.met
            for fault in found.faults if len(faults) < _SHOWN_MAX else ():
                print(fault, flush=True)
            done = first - FIRST
            if done and not done % _TOLD:
                print(f"{done:,} runs, {len(faults)} faults", flush=True)
    return Found(faults, met)


def told(met: Counter[str]) -> str:
    """How often the rare things happened, the most frequent first."""
    return ", ".join(f"{name}: {count:,}" for name, count in met.most_common())


def _prepare() -> None:
    be_quiet()
    # A run leaves few cycles behind, and looking for them costs a tenth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _found(first: int, runs: int, simulate: Simulate) -> Found:
    """Run consecutive seeds; an exception that nothing foresaw is a fault as well."""
    faults, met = list[str](), Counter[str]()
    for seed in range(first, first + runs):
        try:
            met += simulate(seed)
        except Exception as error:  # noqa: BLE001 - the seed is worth more than the traceback
            faults.append(f"seed {seed}: {error!r}")
    return Found(faults, met)


def _found_in_time(first: int, runs: int, simulate: Simulate) -> Found:
    """As `_found`; where it hangs, the process says where and ends."""
    faulthandler.dump_traceback_later(_CHUNK_S_MAX, exit=True)
    try:
        return _found(first, runs, simulate)
    finally:
        faulthandler.cancel_dump_traceback_later()
