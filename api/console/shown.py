"""Shown: a handler becomes a page that shows also what the API refuses.

Who is not known never comes so far: the guard sends him to the page where one signs in.
"""

from collections.abc import Awaitable, Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response

from api.console.client import Failed
from api.console.render import refusal

Handler = Callable[[Request], Awaitable[Response]]


def shown(section: str) -> Callable[[Handler], Handler]:
    """Show the problem of a handler that fails, as a page of its section."""

    def around(handler: Handler) -> Handler:
        @wraps(handler)
        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except Failed as failed:
                return await refusal(request, failed.problem, section)

        return answered

    return around
