"""Internal API: queries between instances, answered by the workers of one instance.

It is not part of the public API. With a peer secret, a request must be signed with it, and the
signature is valid nowhere else (ADR 19). Without one, only a service without authentication
responds here, and it accepts changes from this machine only.
"""

from urllib.parse import unquote

import structlog
from fastapi import APIRouter, Request
from starlette.responses import Response

from ringfence_api.auth.authorize import client_of
from ringfence_api.ports import MetricsPort, PeerPort, ServiceView
from ringfence_api.principal import EXTRA, FREE, principal_of
from ringfence_api.problems import MALFORMED, PEERS_ONLY, problem_response, trace_id
from ringfence_service.peers.protocol import (
    ACTOR,
    FORWARDED,
    PATH,
    SIGNATURE,
    CodecError,
    decode_query,
)
from ringfence_service.peers.server import is_change
from ringfence_service.peers.signing import RequestOrigin, SignedRequest
from ringfence_service.urls import is_loopback

_log = structlog.stdlib.get_logger(__name__)


def router(view: ServiceView) -> APIRouter:
    """Build the router for queries of other instances."""
    routes = APIRouter(include_in_schema=False)
    peer_server = view.peer_server
    if peer_server is None:  # there are no others
        return routes

    @routes.post(PATH, openapi_extra={EXTRA: FREE})
    async def query(request: Request) -> Response:
        """Answer a query of another instance from our own workers only."""
        origin = _origin(request)
        signed = _signed(request, peer_server, origin)
        if signed is None and (peer_server.key is not None or not _is_unauthenticated(request)):
            return _refused(request, view.metrics)
        body = await request.body()
        if signed is not None and not signed.covers(body):
            return _refused(request, view.metrics)
        try:
            peer_query = decode_query(body)
        except CodecError as error:
            detail = f"This version does not know the query: {error}."
            return problem_response(MALFORMED, detail, request.scope)
        may_change = signed is not None or is_loopback(client_of(request.scope))
        actor = unquote(origin.actor) if signed is not None and origin.actor else "anonymous"
        with structlog.contextvars.bound_contextvars(actor=actor):
            if may_change and is_change(peer_query.query):
                _log.info(
                    "audit", via=f"instance {origin.instance}", **_log_fields(peer_query.query)
                )
            reply = await peer_server.reply(peer_query, may_change=may_change)
        headers = {}
        if peer_server.key is not None and signed is not None:
            headers[SIGNATURE] = peer_server.key.of_reply(signed.nonce, reply)
        return Response(reply, media_type="application/json", headers=headers)

    return routes


def _origin(request: Request) -> RequestOrigin:
    headers = request.headers
    return RequestOrigin(
        headers.get(FORWARDED, ""), headers.get(ACTOR, ""), trace_id(request.scope)
    )


def _signed(request: Request, peer_server: PeerPort, origin: RequestOrigin) -> SignedRequest | None:
    if peer_server.key is None:
        return None
    return peer_server.key.admitted(PATH, origin, request.headers.get("authorization", ""))


def _is_unauthenticated(request: Request) -> bool:
    """Return whether authentication is off; the header, which no web page can send, is needed."""
    return FORWARDED in request.headers and principal_of(request).how == "off"


def _refused(request: Request, metrics: MetricsPort) -> Response:
    metrics.http_auth_failure("peer")
    detail = "Only instances of this service may send this; set api.peer_token_file on all of them."
    return problem_response(PEERS_ONLY, detail, request.scope)


def _log_fields(query: object) -> dict[str, object]:
    """Return the log fields of a change, without ids and dead letters."""
    return {"change": type(query).__name__, "address": getattr(query, "address", None)}
