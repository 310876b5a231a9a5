"""Conditional requests: `If-None-Match` and `If-Match` of a read (RFC 9110).

A matching `If-None-Match` results in 304 without a document, a non-matching `If-Match` in 412.
`preconditions.py` handles the preconditions of changes.
"""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence_api import problems
from ringfence_api.preconditions import names

_OF_A_BODY: Final = ("content-length", "content-type")


class ConditionalMiddleware:
    """ASGI middleware around GET requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and replace its response if a condition requires that."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if_match, if_none_match = headers.get("if-match"), headers.get("if-none-match")
        if scope.get("method") != "GET" or (if_match is None and if_none_match is None):
            await self._app(scope, receive, send)
            return
        is_replaced = False

        async def send_conditionally(message: Message) -> None:
            nonlocal is_replaced
            if message["type"] == "http.response.start" and message["status"] == 200:
                etag = Headers(raw=message["headers"]).get("etag", "")
                if if_match is not None and not names(if_match, etag):
                    is_replaced = True
                    await _stale(etag, scope)(scope, receive, send)
                elif if_none_match is not None and names(if_none_match.replace("W/", ""), etag):
                    is_replaced = True
                    await _not_modified(message, send)
            if not is_replaced:
                await send(message)

        await self._app(scope, receive, send_conditionally)


def _stale(etag: str, scope: Scope) -> Response:
    current = f"its ETag is {etag}" if etag else "it has no ETag"
    detail = f"The document does not match If-Match: {current}."
    headers = {"ETag": etag} if etag else {}
    return problems.problem_response(problems.STALE, detail, scope, headers=headers)


async def _not_modified(message: Message, send: Send) -> None:
    headers = MutableHeaders(raw=list(message["headers"]))
    for name in _OF_A_BODY:
        del headers[name]
    await send({**message, "status": 304, "headers": headers.raw})
    await send({"type": "http.response.body", "body": b""})
