"""Audit page: who changed what, when and why."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.client import ConsoleClient
from ringfence_api.console.diff import between
from ringfence_api.console.forms import query_of
from ringfence_api.console.render import page, shows_problems

PAGE_SIZE = 50


def add(routes: APIRouter) -> None:
    """Add the route of the page."""

    @routes.get("/console/audit")
    @shows_problems("audit")
    async def audit(request: Request) -> Response:
        """Show the audit log, newest first."""
        params = query_of(request)
        query = {name: params.get(name) for name in ("actor", "resource", "page_token")}
        since = params.get("since")
        found = await ConsoleClient(request).get(
            "/v1/audit",
            {
                **query,
                "since": f"{since}Z" if since else None,
                "changes": "all" not in params,
                "page_size": PAGE_SIZE,
            },
        )
        return await page(
            request,
            "audit.html",
            section="audit",
            found=found.required(),
            params=params,
            between=between,
        )
