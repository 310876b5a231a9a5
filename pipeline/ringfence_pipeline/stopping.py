"""Stop requests: Ctrl-C and SIGTERM, noted while streams run and obeyed between two calls.

An exception that is raised amid a call into Spark breaks the connection to its process; then the
streams could not be stopped in order.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set, instead of what they do outside the block.

    Python handles signals in its main thread only; in another one nothing sets the event.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested
        return
    former = {each: signal.signal(each, lambda *_: requested.set()) for each in _SIGNALS}
    try:
        yield requested
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
