"""Audit page: who changed what, when and why."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ConsoleClient
from api.console.diff import between
from api.console.forms import asked
from api.console.render import page, shown

PAGE_SIZE = 50


def add(routes: APIRouter) -> None:
    """Add the page."""

    @routes.get("/console/audit")
    @shown("audit")
    async def audit(request: Request) -> Response:
        """The trail, the newest first."""
        told = asked(request)
        query = {name: told.get(name) for name in ("actor", "resource", "page_token")}
        since = told.get("since")
        found = await ConsoleClient(request).get(
            "/v1/audit",
            {
                **query,
                "since": f"{since}Z" if since else None,
                "changes": "all" not in told,
                "page_size": PAGE_SIZE,
            },
        )
        return await page(
            request,
            "audit.html",
            section="audit",
            found=found.needed(),
            told=told,
            between=between,
        )
