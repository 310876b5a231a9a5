"""Dead letters pages: counts, a list, and one dead letter in full."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ConsoleClient
from api.console.forms import REASONS, FilterForm, query_of, segment
from api.console.render import page, shows_problems

PAGE_SIZE = 25


def add(routes: APIRouter) -> None:
    """Add the routes of the pages."""

    @routes.get("/console/dead-letters")
    @shows_problems("letters")
    async def letters(request: Request) -> Response:
        """Show dead letters, newest first."""
        params, api = query_of(request), ConsoleClient(request)
        criteria = FilterForm.of(params)
        query = {"newest": True, "page_size": PAGE_SIZE, "page_token": params.get("page_token")}
        return await page(
            request,
            "letters.html",
            section="letters",
            found=await api.get("/v1/dead-letters", {**criteria.query(), **query}),
            summary=await api.get("/v1/dead-letters:summary", {**criteria.query()}),
            criteria=criteria,
            reasons=REASONS,
        )

    @routes.get("/console/dead-letter")
    @shows_problems("letters")
    async def letter(request: Request) -> Response:
        """Show one dead letter."""
        params = query_of(request)
        position = (params.get(name, "0") for name in ("topic", "partition", "offset"))
        path = "/v1/dead-letters/" + "/".join(map(segment, position))
        found = (await ConsoleClient(request).get(path)).required()
        return await page(request, "letter.html", section="letters", letter=found)
