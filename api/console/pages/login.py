"""Login page: the form for a token. Anyone can see it, so it says nothing about the service."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.forms import asked
from api.console.render import bare


def add(routes: APIRouter) -> None:
    """Add the page."""

    @routes.get("/console/login")
    async def login(request: Request) -> Response:
        """The form."""
        told = asked(request)
        failed = bool(told.get("failed"))
        place = told.get("next", "/")
        return bare("login.html", 401 if failed else 200, place=place, failed=failed)
