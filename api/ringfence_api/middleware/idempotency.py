"""Idempotency: a POST that is repeated with its `Idempotency-Key` is not executed again.

The same key of the same principal with the same request gets the first response again; with another
request it is refused with 422, and while the first request is running with 409. A 503 is not kept.
Responses are kept in the memory of this replica, for a day at most: another replica or a restarted
process does not have them. Those of queries are kept apart from those of changes, so that a viewer
pushes out no response to a change. Without credentials, nothing is read or kept.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence_api import problems
from ringfence_api.audit_context import actor_in
from ringfence_api.auth.authorize import rule_of
from ringfence_api.principal import FREE, AccessRule

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
KEEP_S: Final = 86_400.0
"""How long a repeated request gets its first response; afterwards it is executed again.

Memory is bounded without it, by `REPLIES_MAX` and `BYTES_MAX`.
"""
KEY_CHARS_MAX: Final = 255
"""Longest key, which is more than a name with a UUID: `REPLIES_MAX` keys take a few megabytes."""
REPLIES_MAX: Final = 10_000
"""Bounds what `BYTES_MAX` does not count: keys, headers, and requests that are running.

Beyond it the oldest key is dropped, and a repetition of its request is executed.
"""
BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of all bodies, once for changes and once for queries: 16 of the largest responses.

Beyond it the oldest response is dropped, and a repetition of its request is executed.
"""
REPLY_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a response that is kept, a small part of `BYTES_MAX`; a stream of lines may be longer.

A request with a larger response is not executed again either: its repetition gets 422.
"""

Key = tuple[str, str]


class _StoredReply(NamedTuple):
    request: bytes
    at_s: float
    reply: tuple[Message, ...] | None
    """The response; None while the request is running, or if it was too large to keep."""
    is_done: bool

    @property
    def bytes(self) -> int:
        return sum(len(message.get("body", b"")) for message in self.reply or ())


class ReplyCache:
    """Responses by idempotency key, oldest first; bounded in number, bytes and age."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = monotonic_s
        self._kept: OrderedDict[Key, _StoredReply] = OrderedDict()
        self.kept_bytes = 0
        """Of all bodies."""

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, key: Key, request: bytes) -> _StoredReply | None:
        """Return the entry of a key; for a new key, add an entry and return None."""
        self._evict()
        kept = self._kept.get(key)
        if kept is None:
            self._kept[key] = _StoredReply(request, self._now_s(), None, is_done=False)
        return kept

    def end(self, key: Key, reply: tuple[Message, ...] | None) -> None:
        """Store the response of the request that began with this key."""
        begun = self._kept.get(key)
        if begun is not None:
            self._kept[key] = done = begun._replace(reply=reply, is_done=True)
            self.kept_bytes += done.bytes
        self._evict()

    def drop(self, key: Key) -> None:
        """Remove a key, so that its request can run again."""
        self.kept_bytes -= kept.bytes if (kept := self._kept.pop(key, None)) else 0

    def _evict(self) -> None:
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            is_old = self._now_s() - oldest.at_s > KEEP_S
            if not (is_old or len(self._kept) > REPLIES_MAX or self.kept_bytes > BYTES_MAX):
                return
            self.drop(key)


class IdempotencyMiddleware:
    """ASGI middleware around POST operations of the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._of_changes = ReplyCache()
        self._of_queries = ReplyCache()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Replay the stored response of a POST, or pass the request on and store its response."""
        name = Headers(scope=scope).get(HEADER) if scope["type"] == "http" else None
        if name is None or scope["method"] != "POST" or not _keeps(rule_of(scope)):
            await self._app(scope, receive, send)
            return
        if not 0 < len(name) <= KEY_CHARS_MAX:
            detail = f"{HEADER} has 1 to {KEY_CHARS_MAX} characters."
            await problems.problem_response(problems.MALFORMED, detail, scope)(scope, receive, send)
            return
        body = await _read_body(receive)
        if body is None:  # the client has disconnected
            return
        key = (actor_in(scope), name)
        replies = self._of_changes if rule_of(scope).is_write else self._of_queries
        known = replies.begin(key, _fingerprint(scope, body))
        if known is None:
            await self._run(replies, key, scope, _replayed(body, receive), send)
        else:
            await _known(known, _fingerprint(scope, body), scope)(scope, receive, send)

    async def _run(
        self, replies: ReplyCache, key: Key, scope: Scope, receive: Receive, send: Send
    ) -> None:
        kept: list[Message] = []
        size = 0

        async def keep(message: Message) -> None:
            nonlocal size
            size += len(message.get("body", b""))
            if size <= REPLY_BYTES_MAX:  # a stream of lines has no limit
                kept.append(message)
            await send(message)

        try:
            await self._app(scope, receive, keep)
        except BaseException:
            replies.drop(key)
            raise
        if not kept or kept[0]["status"] == problems.UNAVAILABLE.status:
            replies.drop(key)
            return
        replies.end(key, tuple(kept) if size <= REPLY_BYTES_MAX else None)


def _keeps(rule: AccessRule) -> bool:
    return rule.in_api and rule.role != FREE


class _Replay(Response):
    """A stored response."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        super().__init__()
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stored response again, marked by `Idempotency-Replayed`."""
        del scope, receive
        for message in self._messages:
            copy = dict(message)
            if "headers" in copy:
                copy["headers"] = list(copy["headers"])
                MutableHeaders(scope=copy)[REPLAYED] = "true"
            await send(copy)


def _known(known: _StoredReply, request: bytes, scope: Scope) -> Response:
    """Return the response to a known key."""
    if known.request != request:
        detail = "This key was used for another request; use a new key for each change."
        return problems.problem_response(problems.KEY_REUSED, detail, scope)
    if not known.is_done:
        detail = "The first request with this key is still running; try again."
        wait = {"Retry-After": "1"}
        return problems.problem_response(problems.KEY_IN_PROGRESS, detail, scope, headers=wait)
    if known.reply is None:
        detail = "The request is done, but its response was too large to keep; read the resource."
        return problems.problem_response(problems.KEY_REUSED, detail, scope)
    return _Replay(known.reply)


def _fingerprint(scope: Scope, body: bytes) -> bytes:
    parts = (str(scope["path"]).encode(), bytes(scope["query_string"]), body)
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d:" % len(part) + part)
    return whole.digest()


async def _read_body(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns the body in one message, then later messages."""
    is_read = False

    async def read() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read
