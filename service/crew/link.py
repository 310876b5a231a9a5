"""Link: one end of a connection. Sending never waits, and receiving is a thread's work.

Whoever is at the other end may be stopped or hang: what is sent waits in a queue with a bound, and
what does not fit is told to the sender.
"""

import contextlib
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import Full, Queue
from typing import Final, Generic, TypeVar

_DEPTH: Final = 256
_CLOSE_S: Final = 2.0

In = TypeVar("In")
Out = TypeVar("Out")


class Link(Generic[In, Out]):
    """Hands every message to `heard`, and calls `ended` once there will be no more."""

    def __init__(
        self,
        connection: "Connection[Out, In]",
        heard: Callable[[In], None],
        ended: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._heard = heard
        self._ended = ended
        self._waiting: Queue[Out | None] = Queue(_DEPTH)
        self._sender = threading.Thread(target=self._send, name="ringfence-sender", daemon=True)
        self._reader = threading.Thread(target=self._receive, name="ringfence-reader", daemon=True)

    def start(self) -> None:
        """Hear from now on."""
        self._sender.start()
        self._reader.start()

    def send(self, message: Out) -> bool:
        """Have it sent; False where too much waits already."""
        try:
            self._waiting.put_nowait(message)
        except Full:
            return False
        return True

    @property
    def is_free(self) -> bool:
        """Whether all that was to be sent is sent."""
        return self._waiting.empty()

    def flush(self) -> None:
        """Have what waits sent, within a limit; nothing is sent after it."""
        with contextlib.suppress(Full):
            self._waiting.put(None, timeout=_CLOSE_S)
        self._sender.join(_CLOSE_S)

    def close(self) -> None:
        """Hear what the other end, which has ended, had still to say; within a limit."""
        self._reader.join(_CLOSE_S)
        self.flush()
        self._connection.close()

    def _send(self) -> None:
        while (message := self._waiting.get()) is not None:
            try:
                self._connection.send(message)
            except OSError:
                return  # the other end is gone; the reader tells

    def _receive(self) -> None:
        try:
            while True:
                self._heard(self._connection.recv())
        except (EOFError, OSError):
            self._ended()
