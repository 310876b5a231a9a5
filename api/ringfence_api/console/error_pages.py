"""Error pages: a problem that a browser gets from the console is shown as a page.

A page shows its own errors (`render.py`). This module handles requests that never reach a page or
fail in it: refused by a middleware, an unreadable form, an internal error.
"""

import json
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence_api.console.client import problem_in
from ringfence_api.console.render import problem_page
from ringfence_api.problems import MEDIA_TYPE

_ASSETS: Final = "/console/assets/"
_OF_THE_BODY: Final = (b"content-type", b"content-length", b"content-security-policy")


class ErrorPages:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; if the response is a problem, render it as a page."""
        if scope["type"] != "http" or not _is_page(scope):
            await self._app(scope, receive, send)
            return
        problem: list[Message] = []

        async def send_or_hold(message: Message) -> None:
            is_start = message["type"] == "http.response.start"
            if problem or (is_start and _is_problem(message)):
                problem.append(message)
            else:
                await send(message)

        await self._app(scope, receive, send_or_hold)
        if problem:
            start, *rest = problem
            document = json.loads(b"".join(each.get("body", b"") for each in rest))
            converted = problem_in(document, int(start["status"]))
            page = await problem_page(Request(scope, receive), converted)
            page.raw_headers += [each for each in start["headers"] if each[0] not in _OF_THE_BODY]
            await page(scope, receive, send)


def _is_page(scope: Scope) -> bool:
    path = str(scope["path"])
    if not path.startswith("/console/"):  # programs may use the login too
        is_form = path in {"/login", "/logout"}
        return path == "/" or (is_form and "text/html" in Headers(scope=scope).get("accept", ""))
    return not path.startswith(_ASSETS)


def _is_problem(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type") == MEDIA_TYPE
