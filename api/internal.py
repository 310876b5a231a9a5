"""Between instances: one asks another what its own processes know. No part of the public API.

Whoever may ask here may change anything. Where a peer token is configured it lets in, and nothing
else does; without one, only a service that asks nobody who he is answers here.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from api.problems import MALFORMED, PEERS_ONLY, problem_response
from api.roles import principal_of
from api.view import Hearing, ServiceView
from service.fleet.codec import CodecError
from service.fleet.messages import FORWARDED, PATH


def router(view: ServiceView) -> APIRouter:
    """Return the route by which instances ask each other."""
    routes = APIRouter(include_in_schema=False)
    hearing = view.hearing
    if hearing is None:  # there are no others
        return routes

    @routes.post(PATH, openapi_extra={"x-role": "viewer"})
    async def question(request: Request) -> Response:
        """Answer another instance from the own processes alone."""
        if not _is_peer(request, hearing):
            detail = "Only instances of this service ask here; see api.peer_token_file."
            return problem_response(PEERS_ONLY, detail, request.scope)
        try:
            reply = await hearing.reply(await request.body())
        except CodecError as error:
            detail = f"The question is none that this version knows: {error}."
            return problem_response(MALFORMED, detail, request.scope)
        return Response(reply, media_type="application/json")

    return routes


def _is_peer(request: Request, hearing: Hearing) -> bool:
    """Whether another instance asks. The header keeps out a page that a browser shows."""
    if FORWARDED not in request.headers:
        return False
    if hearing.admits is not None:
        return hearing.admits(request.headers.get("authorization"))
    return principal_of(request).how == "off"
