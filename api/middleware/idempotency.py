"""Idempotency: a POST that is repeated with its `Idempotency-Key` is not executed again.

The same key of the same principal with the same request gets the first response again; with another
request it is refused; while the first request runs, the repeated one is told so. A 503 is not kept.
Responses are kept in the memory of this replica, for a day at most: neither another replica nor the
next process has them.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.audit_context import actor_in
from api.auth.authorize import rule_of

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
KEEP_S: Final = 86_400.0
KEY_CHARS_MAX: Final = 255
REPLIES_MAX: Final = 10_000
BYTES_MAX: Final = 16 * 1024 * 1024
REPLY_BYTES_MAX: Final = 1024 * 1024

Key = tuple[str, str]


class _StoredReply(NamedTuple):
    request: bytes
    at_s: float
    reply: tuple[Message, ...] | None
    """None while it is made, and where it was too large to be kept."""
    is_done: bool

    @property
    def bytes(self) -> int:
        return sum(len(message.get("body", b"")) for message in self.reply or ())


class ReplyCache:
    """What was replied, the oldest first. Bounded by number, bytes and time."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = monotonic_s
        self._kept: OrderedDict[Key, _StoredReply] = OrderedDict()
        self._bytes = 0

    def begin(self, key: Key, request: bytes) -> _StoredReply | None:
        """What is known of a key; None for a new one, which is then begun."""
        self._forget_old()
        kept = self._kept.get(key)
        if kept is None:
            self._kept[key] = _StoredReply(request, self._now_s(), None, is_done=False)
        return kept

    def end(self, key: Key, reply: tuple[Message, ...] | None) -> None:
        """Keep the reply of what was begun."""
        begun = self._kept.get(key)
        if begun is not None:
            self._kept[key] = done = begun._replace(reply=reply, is_done=True)
            self._bytes += done.bytes
        self._forget_old()

    def drop(self, key: Key) -> None:
        """Forget what was begun: nothing came of it."""
        self._bytes -= kept.bytes if (kept := self._kept.pop(key, None)) else 0

    def _forget_old(self) -> None:
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            is_old = self._now_s() - oldest.at_s > KEEP_S
            if not (is_old or len(self._kept) > REPLIES_MAX or self._bytes > BYTES_MAX):
                return
            self.drop(key)


class IdempotencyMiddleware:
    """ASGI middleware around whatever changes something."""

    def __init__(self, app: ASGIApp, replies: ReplyCache | None = None) -> None:
        self._app = app
        self._replies = replies or ReplyCache()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a POST as it was answered before, or have it answered."""
        named = Headers(scope=scope).get(HEADER) if scope["type"] == "http" else None
        if named is None or scope["method"] != "POST" or not rule_of(scope).in_api:
            await self._app(scope, receive, send)
            return
        if not 0 < len(named) <= KEY_CHARS_MAX:
            detail = f"{HEADER} has 1 to {KEY_CHARS_MAX} characters."
            await problems.problem_response(problems.MALFORMED, detail, scope)(scope, receive, send)
            return
        body = await _whole(receive)
        if body is None:  # who asked is gone
            return
        key = (actor_in(scope), named)
        known = self._replies.begin(key, _fingerprint(scope, body))
        if known is None:
            await self._first(key, scope, _again(body, receive), send)
        else:
            await _known(known, _fingerprint(scope, body), scope)(scope, receive, send)

    async def _first(self, key: Key, scope: Scope, receive: Receive, send: Send) -> None:
        kept: list[Message] = []
        size = 0

        async def keep(message: Message) -> None:
            nonlocal size
            size += len(message.get("body", b""))
            if size <= REPLY_BYTES_MAX:  # lines may be as many as one likes
                kept.append(message)
            await send(message)

        try:
            await self._app(scope, receive, keep)
        except BaseException:
            self._replies.drop(key)
            raise
        if not kept or kept[0]["status"] == problems.UNAVAILABLE.status:
            self._replies.drop(key)
            return
        self._replies.end(key, tuple(kept) if size <= REPLY_BYTES_MAX else None)


class _Replay(Response):
    """A reply that was given before."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        super().__init__()
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it again, as what it is."""
        del scope, receive
        for message in self._messages:
            copy = dict(message)
            if "headers" in copy:
                copy["headers"] = list(copy["headers"])
                MutableHeaders(scope=copy)[REPLAYED] = "true"
            await send(copy)


def _known(known: _StoredReply, request: bytes, scope: Scope) -> Response:
    """The answer to a key that is known."""
    if known.request != request:
        detail = "Another request was made under this key; make a key for each change."
        return problems.problem_response(problems.KEY_REUSED, detail, scope)
    if not known.is_done:
        detail = "The first request under this key is still being answered; ask again."
        wait = {"Retry-After": "1"}
        return problems.problem_response(problems.KEY_IN_PROGRESS, detail, scope, headers=wait)
    if known.reply is None:
        detail = "This was done; its reply was too large to be kept. See what came of it."
        return problems.problem_response(problems.KEY_REUSED, detail, scope)
    return _Replay(known.reply)


def _fingerprint(scope: Scope, body: bytes) -> bytes:
    parts = (str(scope["path"]).encode(), bytes(scope["query_string"]), body)
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d:" % len(part) + part)
    return whole.digest()


async def _whole(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """The body as if it came now, and then what comes after it."""
    is_read = False

    async def read() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read
