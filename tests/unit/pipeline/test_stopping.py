"""Stop requests of running streams: noted, never raised amid a call."""

import os
import signal
import threading

import pytest

from ringfence_pipeline.stopping import stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_event_and_raises_nothing(number: signal.Signals) -> None:
    with stop_requests() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.is_set()


def test_the_former_handlers_are_back_after_the_block() -> None:
    former = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="of a stream"), stop_requests():
        raise ValueError("of a stream")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == former


def test_in_another_thread_the_handlers_stay() -> None:
    former = signal.getsignal(signal.SIGTERM)
    found: list[object] = []

    def look() -> None:
        with stop_requests() as stop:
            found.extend((stop.is_set(), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [False, former]
