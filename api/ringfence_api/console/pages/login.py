"""Login page: the form for a token. Anyone can see it, so it says nothing about the service."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.forms import query_of
from ringfence_api.console.render import bare_page


def add(routes: APIRouter) -> None:
    """Add the route of the page."""

    @routes.get("/console/login")
    async def login(request: Request) -> Response:
        """Show the login form."""
        params = query_of(request)
        failed = bool(params.get("failed"))
        next_url = params.get("next", "/")
        return bare_page("login.html", 401 if failed else 200, next_url=next_url, failed=failed)
