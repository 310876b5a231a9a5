"""Body limit: refuses a body that is larger than the configuration allows.

A body that declares its length is refused before any of it is read. The lines of an import are
processed as they arrive, so there is no limit to their number; with an `Idempotency-Key` they are
buffered whole, and limited.
"""

from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.auth.authorize import rule_of
from api.content import NDJSON
from api.middleware.idempotency import HEADER

_IMPORT: Final = ":import"
_INTERNAL: Final = "/v1/internal/"
_GROWTH: Final = 4


class _TooLarge(HTTPException):
    """The body is larger than the limit."""


class BodyLimitMiddleware:
    """ASGI middleware around everything that reads a body."""

    def __init__(self, app: ASGIApp, bytes_max: int) -> None:
        self._app = app
        self._bytes_max = bytes_max
        self._sentence = f"A body has at most {bytes_max} bytes; api.body_bytes_max sets the limit."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count the bytes that are read of its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if _is_streamed(scope, headers):
            await self._app(scope, receive, send)
            return
        declared, bytes_max = headers.get("content-length", ""), self._limit_of(scope)
        if declared.isdecimal() and int(declared) > bytes_max:
            await self._refuse(scope, receive, send)
            return
        read = 0

        async def receive_counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > bytes_max:
                raise _TooLarge(problems.TOO_LARGE.status, self._sentence)
            return message

        try:
            await self._app(scope, receive_counted, send)
        except _TooLarge:
            await self._refuse(scope, receive, send)

    def _limit_of(self, scope: Scope) -> int:
        """Return the limit; a request that an instance forwards to a peer grows by its encoding."""
        is_forwarded = (rule_of(scope).path or "").startswith(_INTERNAL)
        return self._bytes_max * _GROWTH if is_forwarded else self._bytes_max

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"Connection": "close"}
        refusal = problems.problem_response(
            problems.TOO_LARGE, self._sentence, scope, headers=headers
        )
        await refusal(scope, receive, send)


def _is_streamed(scope: Scope, headers: Headers) -> bool:
    """Return whether the body is processed line by line and never held as a whole."""
    rule = rule_of(scope)
    return (
        rule.is_write
        and (rule.path or "").endswith(_IMPORT)
        and headers.get("content-type", "").partition(";")[0].strip().lower() == NDJSON
        and HEADER not in headers
    )
