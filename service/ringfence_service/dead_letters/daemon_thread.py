"""Daemon thread for a blocking call that a coroutine waits for."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon_thread(work: Callable[[], T]) -> T:
    """Run a blocking call on a daemon thread; return its result or raise its exception.

    A daemon thread, unlike one of an executor, does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # of T, where nothing was raised

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (work(), None)
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting coroutine
            outcome = (None, error)
        with suppress(RuntimeError):  # the event loop is closed: no coroutine waits any more
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="ringfence-aside", daemon=True).start()
    return await done
