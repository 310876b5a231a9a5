"""Internal API: one instance asks another what its own workers know. Not part of the public API.

With a peer secret, a request needs its signature, and that signature is valid nowhere else (ADR
19). Without one, only a service without authentication answers here, and makes changes for this
machine alone.
"""

from urllib.parse import unquote

import structlog
from fastapi import APIRouter, Request
from starlette.responses import Response

from api.auth.authorize import client_of
from api.ports import MetricsPort, PeerPort, ServiceView
from api.principal import EXTRA, FREE, principal_of
from api.problems import MALFORMED, PEERS_ONLY, problem_response, trace_id
from service.peers.protocol import ACTOR, FORWARDED, PATH, SIGNATURE, CodecError, decode_query
from service.peers.server import is_change
from service.peers.signing import RequestOrigin, SignedRequest
from service.urls import is_loopback

_log = structlog.stdlib.get_logger(__name__)


def router(view: ServiceView) -> APIRouter:
    """Return the route by which instances ask each other."""
    routes = APIRouter(include_in_schema=False)
    peer_server = view.peer_server
    if peer_server is None:  # there are no others
        return routes

    @routes.post(PATH, openapi_extra={EXTRA: FREE})
    async def question(request: Request) -> Response:
        """Answer another instance from the own processes alone."""
        asker = _asker(request)
        signed = _signed(request, peer_server, asker)
        if signed is None and (peer_server.key is not None or not _asks_openly(request)):
            return _refused(request, view.metrics)
        body = await request.body()
        if signed is not None and not signed.covers(body):
            return _refused(request, view.metrics)
        try:
            asked = decode_query(body)
        except CodecError as error:
            detail = f"The question is none that this version knows: {error}."
            return problem_response(MALFORMED, detail, request.scope)
        may_change = signed is not None or is_loopback(client_of(request.scope))
        actor = unquote(asker.actor) if signed is not None and asker.actor else "anonymous"
        with structlog.contextvars.bound_contextvars(actor=actor):
            if may_change and is_change(asked.query):
                _log.info("audit", via=f"instance {asker.instance}", **_told(asked.query))
            reply = await peer_server.reply(asked, may_change=may_change)
        headers = {}
        if peer_server.key is not None and signed is not None:
            headers[SIGNATURE] = peer_server.key.of_reply(signed.nonce, reply)
        return Response(reply, media_type="application/json", headers=headers)

    return routes


def _asker(request: Request) -> RequestOrigin:
    sent = request.headers
    return RequestOrigin(sent.get(FORWARDED, ""), sent.get(ACTOR, ""), trace_id(request.scope))


def _signed(request: Request, peer_server: PeerPort, asker: RequestOrigin) -> SignedRequest | None:
    if peer_server.key is None:
        return None
    return peer_server.key.admitted(PATH, asker, request.headers.get("authorization", ""))


def _asks_openly(request: Request) -> bool:
    """Whether nobody is asked who he is. The header keeps out a page that a browser shows."""
    return FORWARDED in request.headers and principal_of(request).how == "off"


def _refused(request: Request, metrics: MetricsPort) -> Response:
    metrics.http_auth_failure("peer")
    detail = "Only instances of this service ask here; see api.peer_token_file."
    return problem_response(PEERS_ONLY, detail, request.scope)


def _told(query: object) -> dict[str, object]:
    """What is changed, as the log tells it: no ids and no letters."""
    return {"change": type(query).__name__, "address": getattr(query, "address", None)}
