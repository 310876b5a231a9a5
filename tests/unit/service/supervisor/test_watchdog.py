"""The watchdog: a loop that hangs ends its process, and no other does."""

import subprocess
import sys
from datetime import UTC, datetime

from ringfence_service.errors import ExitCode
from ringfence_service.queries.status import ServiceStatus, StatusBoard
from ringfence_service.supervisor.watchdog import Watchdog

NOTHING = ServiceStatus.starting("0", "g", datetime.fromtimestamp(0, UTC))


class Scene:
    """A loop with scripted beats and CPU time, and a watchdog that looks every second."""

    def __init__(self) -> None:
        self.now_s = self.used_s = 0.0
        self.struck: list[float] = []
        self.board = StatusBoard(NOTHING, lambda: self.now_s)
        self.dog = Watchdog(
            self.board,
            60.0,
            on_hang=self.struck.append,
            clock_s=lambda: self.now_s,
            used_s=lambda: self.used_s,
        )

    def pass_by(self, seconds: int, *, share: float = 0.0) -> None:
        for _ in range(seconds):
            self.now_s += 1
            self.used_s += share
            self.dog.look()


def test_a_loop_that_neither_beats_nor_computes_is_struck_after_the_limit() -> None:
    scene = Scene()
    scene.pass_by(60)
    assert scene.struck == []
    scene.pass_by(1)
    assert scene.struck == [61.0]


def test_a_loop_that_beats_is_never_struck() -> None:
    scene = Scene()
    for _ in range(10):
        scene.pass_by(50)
        scene.board.beat()
    assert scene.struck == []
    assert scene.dog.silent_ms() == 0


def test_a_loop_that_computes_for_minutes_is_not_struck() -> None:
    scene = Scene()
    scene.pass_by(600, share=0.9)
    assert scene.struck == []
    assert scene.dog.silent_ms() == 0


def test_a_loop_that_computes_without_end_is_struck_at_last() -> None:
    scene = Scene()
    scene.pass_by(1000, share=1.0)
    assert scene.struck


def test_a_thread_that_turns_idly_while_it_waits_does_not_compute() -> None:
    scene = Scene()
    scene.pass_by(70, share=0.05)
    assert scene.struck


def test_a_watchdog_that_was_suspended_with_its_process_starts_over() -> None:
    scene = Scene()
    scene.now_s += 600
    scene.dog.look()
    assert scene.struck == []
    scene.pass_by(61)
    assert scene.struck


HANGING = """
import threading, time
from datetime import UTC, datetime
from ringfence_service.queries.status import ServiceStatus, StatusBoard
from ringfence_service.supervisor.watchdog import Watchdog

starting = ServiceStatus.starting("0", "g", datetime.fromtimestamp(0, UTC))
board = StatusBoard(starting, time.monotonic)
Watchdog(board, 0.2).start()
threading.Event().wait()
"""


def test_a_hanging_process_shows_its_threads_and_ends_with_a_code_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == ExitCode.HUNG
    assert "loop_hangs" in done.stdout + done.stderr
    assert 'File "<string>", line 10 in <module>' in done.stderr
