"""A blocking call on a daemon thread."""

import asyncio
import threading

import pytest

from ringfence_service.dead_letters.daemon_thread import run_in_daemon_thread


def test_others_go_on_while_it_blocks() -> None:
    async def both() -> list[str]:
        done: list[str] = []
        released = threading.Event()

        async def beside() -> None:
            await asyncio.sleep(0.01)  # noqa: TID251 - the other blocks by then
            done.append("beside")
            released.set()

        other = asyncio.create_task(beside())
        assert await run_in_daemon_thread(lambda: released.wait(60)), "the others stood still"
        done.append("aside")
        await other
        return done

    assert asyncio.run(both()) == ["beside", "aside"]


def test_what_it_gives_or_raises_comes_through() -> None:
    assert asyncio.run(run_in_daemon_thread(lambda: 7)) == 7
    with pytest.raises(ValueError, match="no number"):
        asyncio.run(run_in_daemon_thread(lambda: _refuse("no number")))


def _refuse(sentence: str) -> int:
    raise ValueError(sentence)


def test_no_process_waits_for_its_end() -> None:
    assert asyncio.run(run_in_daemon_thread(lambda: threading.current_thread().daemon))


def test_nobody_waits_for_what_was_given_up() -> None:
    released = threading.Event()

    async def given_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_in_daemon_thread(released.wait), 0.05)

    asyncio.run(given_up())
    released.set()  # its end finds no loop, and nothing is raised
