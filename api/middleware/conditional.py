"""Conditional requests: `If-None-Match` and `If-Match` of a read (RFC 9110).

A matching `If-None-Match` is answered 304 without a document, an `If-Match` that does not match
412. `preconditions.py` handles those of a change.
"""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problems
from api.preconditions import names

_OF_A_BODY: Final = ("content-length", "content-type")


class ConditionalMiddleware:
    """ASGI middleware around whatever is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered, and give the answer if the condition holds."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        only, unless = headers.get("if-match"), headers.get("if-none-match")
        if scope.get("method") != "GET" or (only is None and unless is None):
            await self._app(scope, receive, send)
            return
        is_over = False

        async def told(message: Message) -> None:
            nonlocal is_over
            if message["type"] == "http.response.start" and message["status"] == 200:
                etag = Headers(raw=message["headers"]).get("etag", "")
                if only is not None and not names(only, etag):
                    is_over = True
                    await _stale(etag, scope)(scope, receive, send)
                elif unless is not None and names(unless.replace("W/", ""), etag):
                    is_over = True
                    await _not_modified(message, send)
            if not is_over:
                await send(message)

        await self._app(scope, receive, told)


def _stale(etag: str, scope: Scope) -> Response:
    is_now = f"its ETag is {etag}" if etag else "it has no ETag"
    detail = f"What is there is another than If-Match names: {is_now}."
    headers = {"ETag": etag} if etag else {}
    return problems.problem_response(problems.STALE, detail, scope, headers=headers)


async def _not_modified(message: Message, send: Send) -> None:
    headers = MutableHeaders(raw=list(message["headers"]))
    for name in _OF_A_BODY:
        del headers[name]
    await send({**message, "status": 304, "headers": headers.raw})
    await send({"type": "http.response.body", "body": b""})
