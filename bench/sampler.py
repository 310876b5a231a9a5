"""Sampling profiler: runs the real `serve` and notes in which stage its loop spends CPU time.

    python -m bench.sampler CONFIG FOUND        the supervisor, which starts as its child
    python -m bench.sampler FOUND FD PID        the worker that runs the loop and is sampled

A timer interrupts the main thread, which runs the loop. The CPU time of that thread since the
previous interruption is added to the stage of the innermost function that the table contains. So
waiting adds nothing, and a long call into C counts in full although it is interrupted only once.
"""

import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from ringfence_main.serve import serve
from ringfence_service.config.load import load
from ringfence_service.supervisor import worker_process as child

INTERVAL_S: Final = 0.0017
"""Not a divisor of any period of the loop."""

REST: Final = "rest of the loop"
STAGES: Final = {
    "consume": ("poll.py:", "batch.py:batch_of"),
    "headers": ("io.py:read_headers", "claim.py:", "field.py:"),
    "route": ("address.py:", "fast_paths.py:", "route.py:", "output.py:", "addresses.py:"),
    "decide": ("decider.py:", "evaluator.py:", "checks.py:", "dead_letter.py:", "record.py:"),
    "produce": ("transaction.py:TransactionManager._write",),
    "changelog": (
        "transaction.py:_ChangelogWriter",
        "decider.py:_Decider.seal",
        "segment.py:encode",
    ),
    "commit": (
        "transaction.py:TransactionManager",
        "committer.py:Committer.commit.<locals>.build_offsets",
    ),
    "apply": (
        "apply.py:apply",
        "cache.py:",
        "rocksdb_store.py:RocksStore.apply",
        "ring_memory.py:InMemoryRing.absorb",
    ),
    REST: ("committer.py:Committer", "loop.py:Loop.turn", "loop_runner.py:LoopRunner.turn"),
}
"""Stage → functions as `file:qualified name`, or a prefix of that; the longest match counts.

A function that is not listed counts for its caller.
"""

_ROOT: Final = Path(__file__).parents[1]
_OURS: Final = ("service", "state")


def stage_of(functions: Iterable[str]) -> str | None:
    """Return the stage of a stack, innermost function first; None if it is not the loop's."""
    return next((stage for name in functions if (stage := _stage_of_function(name))), None)


def _stage_of_function(name: str) -> str | None:
    fitting = [
        (len(start), stage)
        for stage, starts in STAGES.items()
        for start in starts
        if name.startswith(start)
    ]
    return max(fitting)[1] if fitting else None


class Sampler:
    """CPU seconds of the main thread by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.samples = 0
        self._stages: dict[CodeType, str | None] = {}
        self._used_s = 0.0

    def start(self) -> None:
        """Start sampling; to be called by the main thread, which receives the signals."""
        self._used_s = time.thread_time()
        signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)

    def stop(self) -> None:
        """Stop sampling."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _tick(self, _signal: int, frame: FrameType | None) -> None:
        now_s = time.thread_time()
        stage = next((stage for code in _codes(frame) if (stage := self._known(code))), None)
        if stage is not None:
            self.seconds[stage] += now_s - self._used_s
            self.samples += 1
        self._used_s = now_s

    def _known(self, code: CodeType) -> str | None:
        """Return the stage of a function, which is looked up once."""
        if code not in self._stages:
            path = Path(code.co_filename)
            is_ours = path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _OURS
            name = f"{path.name}:{code.co_qualname}"
            self._stages[code] = _stage_of_function(name) if is_ours else None
        return self._stages[code]


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def supervise(config_path: str, found_path: str) -> int:
    """Run the supervisor until SIGTERM."""
    config = load(Path(config_path), os.environ)
    return serve(config, ("-m", "bench.sampler", found_path))


def work(found_path: str, fd: str, supervisor_pid: str) -> int:
    """Run a worker; at its end, write the samples."""
    sampler = Sampler()
    sampler.start()
    try:
        return child.main(fd, supervisor_pid)
    finally:
        sampler.stop()
        found = {"samples": sampler.samples, "seconds": dict(sampler.seconds)}
        Path(found_path).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit((supervise if len(sys.argv) == 3 else work)(*sys.argv[1:]))
