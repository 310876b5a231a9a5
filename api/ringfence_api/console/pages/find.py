"""Find page: the addresses, ids and positions that a text may name."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.client import ConsoleClient, Query
from ringfence_api.console.forms import query_of, redirect
from ringfence_api.console.last_answers import LastAnswers, oldest
from ringfence_api.console.render import page, shows_problems
from ringfence_api.parameters import is_position

ADDRESSES: Final = 10
SEARCHED: Final = 200
"""How many addresses one page searches for an id."""
LETTERS: Final = 25


def add(routes: APIRouter, last: LastAnswers) -> None:
    """Add the route of the page."""

    @routes.get("/console/find")
    @shows_problems("find")
    async def find(request: Request) -> Response:
        """Show what a text may name: a position, addresses that begin with it, an id."""
        params = query_of(request)
        text, token = params.get("q", ""), params.get("page_token")
        if not text:
            return redirect("/console/addresses")
        named: Query = {"prefix": text, "page_size": ADDRESSES}
        searched: Query = {"id": text, "page_size": SEARCHED, "page_token": token}
        addresses = await last.get(request, "/v1/addresses", named) if token is None else None
        ids = await last.get(request, "/v1/ids:search", searched)
        letters = None
        if "letters" in params:
            query: Query = {"id": text, "newest": True, "page_size": LETTERS}
            letters = await ConsoleClient(request).get("/v1/dead-letters", query)
        return await page(
            request,
            "find.html",
            section="find",
            q=text,
            is_position=is_position(text),
            addresses=addresses,
            ids=ids,
            as_of=oldest(addresses, ids),
            letters=letters,
            params=params,
        )
