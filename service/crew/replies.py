"""Replies: questions under way to one process, by their numbers; each ends once."""

import threading
from concurrent.futures import Future

from service.families import Family
from service.queries.table import Answer

Told = Answer | tuple[Family, ...]


class Replies:
    """Safe on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._waiting: dict[int, Future[Told]] = {}

    def add(self) -> tuple[int, "Future[Told]"]:
        """A question more. Whoever does not wait for the reply any more cancels it."""
        reply: Future[Told] = Future()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = reply
        reply.add_done_callback(lambda _reply: self._waiting.pop(number, None))
        return number, reply

    def settle(self, number: int, outcome: Told | Exception) -> None:
        """The reply to one, or why there is none; nothing where nobody waits for it."""
        reply = self._waiting.pop(number, None)
        if reply is None or not reply.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            reply.set_exception(outcome)
        else:
            reply.set_result(outcome)

    def end(self, reason: Exception) -> None:
        """All that are under way."""
        for number in list(self._waiting):
            self.settle(number, reason)
