"""Last answers: what a page shows while the loop does not answer in time.

A loop under load can leave a query unanswered, and its operator needs the page most then. The last
answer to the same query of the same user is shown instead, with its time. Invariants: an answer is
never older than `KEPT_S`, and never shown for another query or for a user with other roles; after a
change in the console none from before it is shown.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from starlette.requests import Request

from ringfence_api.console.client import ApiReply, ConsoleClient, Query
from ringfence_api.principal import Principal, principal_of
from ringfence_api.problems import UNAVAILABLE

KEPT_S: Final = 600.0
"""What is older says too little of a loop under load."""
BYTES_MAX: Final = 8 * 1024 * 1024
"""Of all answers. A page of 50 addresses has some 40 KiB."""
ANSWER_BYTES_MAX: Final = BYTES_MAX // 8
"""Of one answer, so that eight of the largest fit and one page does not displace all others."""
_ENTRY_BYTES: Final = 1024
"""Bytes of an entry besides its document and its query."""

_Key = tuple[Principal, str, tuple[tuple[str, str], ...]]


class _LastAnswer(NamedTuple):
    document: bytes
    asked_at: datetime
    asked_s: float
    """The same by the monotonic clock."""
    size: int


class LastAnswers:
    """The last answers of the loops, oldest first; used by the API's thread alone."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = monotonic_s
        self._kept: OrderedDict[_Key, _LastAnswer] = OrderedDict()
        self._changes = 0
        self.kept_bytes = 0

    async def get(self, request: Request, path: str, query: Query) -> ApiReply:
        """Read a resource that the loop answers; if it cannot now, return its last answer."""
        names = ((name, str(value)) for name, value in query.items() if value is not None)
        key = (principal_of(request), path, tuple(sorted(names)))
        asked_at, asked_s, changes = datetime.now(UTC), self._now_s(), self._changes
        reply = await ConsoleClient(request).get(path, query)
        if reply.ok and changes == self._changes:
            document = json.dumps(reply.document).encode()
            size = len(document) + _ENTRY_BYTES + len(path) + sum(map(len, sum(key[2], ())))
            self._keep(key, _LastAnswer(document, asked_at, asked_s, size))
        self._evict()
        if reply.problem is None or reply.problem.kind != UNAVAILABLE.name:
            return reply
        last = self._kept.get(key)
        return reply if last is None else ApiReply(json.loads(last.document), as_of=last.asked_at)

    def clear(self) -> None:
        """Discard all answers, those under way too: something was changed."""
        self._changes += 1
        self._kept.clear()
        self.kept_bytes = 0

    def _keep(self, key: _Key, answer: _LastAnswer) -> None:
        self._drop(key)
        if answer.size <= ANSWER_BYTES_MAX:
            self._kept[key] = answer
            self.kept_bytes += answer.size

    def _drop(self, key: _Key) -> None:
        dropped = self._kept.pop(key, None)
        self.kept_bytes -= dropped.size if dropped else 0

    def _evict(self) -> None:
        """Discard what is too old, and the oldest answers beyond the limit of bytes."""
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            if self.kept_bytes <= BYTES_MAX and self._now_s() - oldest.asked_s <= KEPT_S:
                return
            self._drop(key)


def oldest(*replies: ApiReply | None) -> datetime | None:
    """Return the time of the oldest earlier answer on a page; None if all are of now."""
    return min((each.as_of for each in replies if each and each.as_of), default=None)
