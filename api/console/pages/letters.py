"""Dead letters page: counts, a list, and one dead letter in full."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ConsoleClient
from api.console.forms import REASONS, FilterForm, asked, segment
from api.console.render import page, shown

PAGE_SIZE = 25


def add(routes: APIRouter) -> None:
    """Add the pages."""

    @routes.get("/console/dead-letters")
    @shown("letters")
    async def letters(request: Request) -> Response:
        """Dead letters, the newest first."""
        told, api = asked(request), ConsoleClient(request)
        wanted = FilterForm.of(told)
        query = {"newest": True, "page_size": PAGE_SIZE, "page_token": told.get("page_token")}
        return await page(
            request,
            "letters.html",
            section="letters",
            found=await api.get("/v1/dead-letters", {**wanted.query(), **query}),
            summary=await api.get("/v1/dead-letters:summary", {**wanted.query()}),
            wanted=wanted,
            reasons=REASONS,
        )

    @routes.get("/console/dead-letter")
    @shown("letters")
    async def letter(request: Request) -> Response:
        """One dead letter."""
        told = asked(request)
        place = (told.get(name, "0") for name in ("topic", "partition", "offset"))
        path = "/v1/dead-letters/" + "/".join(map(segment, place))
        found = (await ConsoleClient(request).get(path)).needed()
        return await page(request, "letter.html", section="letters", letter=found)
