"""Deferred work: the threads that write runs, as one seed has them be late.

A task is done when its owner looks for its result, now or at one of the next looks. Before it and
after it are steps at which the process may die.
"""

import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Deferred(Future[T]):
    """The result of a task that may not have been done yet."""

    def __init__(self, task: Callable[[], T], step: Callable[[str], None], looks: int) -> None:
        super().__init__()
        self._task, self._step, self._looks = task, step, looks

    def done(self) -> bool:
        """See `Future.done`: the task has been done after some looks."""
        self._looks -= 1
        if self._looks < 0:
            self._do()
        return super().done()

    def result(self, timeout: float | None = None) -> T:
        """See `Future.result`."""
        self._do()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `Future.exception`."""
        self._do()
        return super().exception(timeout)

    def _do(self) -> None:
        if super().done():
            return
        try:
            self._step("run.write")
            made = self._task()
            self._step("run.write.done")
        except Exception as error:  # noqa: BLE001 - the ring that asks for the result raises it
            self.set_exception(error)
        else:
            self.set_result(made)


class DeferringThread:
    """In place of a thread: no task is done before somebody looks."""

    def __init__(self, seed: int, step: Callable[[str], None]) -> None:
        self._chance = random.Random(seed)
        self._step = step

    def submit(self, task: Callable[[], T]) -> Deferred[T]:
        """Have a task done some looks later."""
        return Deferred(task, self._step, self._chance.choice((0, 0, 1, 5)))
