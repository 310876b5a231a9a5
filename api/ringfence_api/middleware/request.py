"""Request middleware: the checks and headers that apply to every request and response.

Every response has X-Request-Id, `no-store` and a strict content policy; every request is counted;
an unexpected exception becomes a problem, with the stack in the log only. The path is matched as
it was sent, percent-encoded: an address or an id may contain `/`, which would become a separator if
it were decoded first.
"""

import re
import time
import uuid
from typing import Final
from urllib.parse import unquote_to_bytes

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence_api import problems
from ringfence_api.hosts import host_name, is_allowed, origin_name
from ringfence_api.ports import MetricsPort
from ringfence_service.telemetry.gauges import OTHER

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}")
_ONCE: Final = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Origin",
)
"""Headers that decide what a request does: a proxy may read another one of two than we do."""
_HSTS: Final = "max-age=31536000"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class RequestMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, metrics: MetricsPort, allowed_hosts: frozenset[str] | None
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._allowed_hosts = allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.monotonic()
        headers = Headers(scope=scope)
        request_id = _request_id(headers.get("x-request-id"))
        # HEAD is handled as GET; the server omits the body, so every GET resource has HEAD too.
        method = str(scope["method"])
        path = bytes(scope["raw_path"]).decode("ascii")
        inner = {**scope, "path": path, "method": "GET" if method == "HEAD" else method}
        problems.set_trace_id(inner, request_id)
        reply = _Reply(send, request_id, is_tls=scope.get("scheme") == "https")
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await self._respond(inner, headers, receive, reply)
        if reply.status:  # else the client was gone before it had sent its request
            self._metrics.http_request(
                str(getattr(inner.get("route"), "path", OTHER)),
                method if method in _METHODS else OTHER,
                reply.status,
                time.monotonic() - started_s,
            )

    async def _respond(
        self, scope: Scope, headers: Headers, receive: Receive, reply: "_Reply"
    ) -> None:
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy may see the end of the request elsewhere than we do (RFC 9112, 6.3).
            detail = "Send either Content-Length or Transfer-Encoding, not both."
            close = {"Connection": "close"}
            rejection = problems.problem_response(problems.MALFORMED, detail, scope, headers=close)
            await rejection(scope, receive, reply)
            return
        repeated = next((each for each in _ONCE if len(headers.getlist(each)) > 1), None)
        if repeated is not None:
            detail = f"The header {repeated} is given more than once; give it once."
            await problems.problem_response(problems.MALFORMED, detail, scope)(
                scope, receive, reply
            )
            return
        refusal = _refusal(scope, headers, self._allowed_hosts)
        if refusal is not None:
            await problems.problem_response(*refusal, scope)(scope, receive, reply)
            return
        try:
            await self._app(scope, receive, reply)
        except ClientDisconnect:
            return  # nobody reads an answer, and the service has not failed
        except Exception:
            structlog.stdlib.get_logger(__name__).exception(
                "request_failed", path=scope["path"], trace_id=reply.request_id
            )
            if reply.status:  # the response has begun: the server closes the connection
                raise
            detail = f"An internal error; the log of the service has it under {reply.request_id}."
            failure = problems.problem_response(problems.INTERNAL, detail, scope)
            await failure(scope, receive, reply)


class _Reply:
    """Sends a response with the headers that all responses have, and records its status."""

    def __init__(self, send: Send, request_id: str, *, is_tls: bool) -> None:
        self._send = send
        self._is_tls = is_tls
        self.request_id = request_id
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.request_id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)  # console pages set their own policy
            if self._is_tls:
                headers["Strict-Transport-Security"] = _HSTS
        await self._send(message)


def _request_id(sent: str | None) -> str:
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent
    return uuid.uuid4().hex


def _refusal(
    scope: Scope, headers: Headers, allowed_hosts: frozenset[str] | None
) -> tuple[problems.ProblemKind, str] | None:
    """Return the kind and detail of the problem if the request must be refused, else None."""
    if allowed_hosts is not None:
        names, host = ", ".join(sorted(allowed_hosts)), host_name(headers.get("host", ""))
        if not is_allowed(host, allowed_hosts):
            detail = f"The Host may be an IP address or {names}; api.allowed_hosts adds names."
            return problems.WRONG_HOST, detail
        origin = headers.get("origin")
        if origin is not None and origin_name(origin) not in allowed_hosts | {host}:
            return problems.ORIGIN_REFUSED, f"The API accepts requests only from pages of {names}."
    sent = f"{scope['path']}?{bytes(scope['query_string']).decode('latin-1')}"
    try:
        unquote_to_bytes(sent).decode("utf-8")
    except UnicodeDecodeError:
        detail = "The percent-encoding is not UTF-8; write an id of any bytes as hex: or base64:."
        return problems.MALFORMED, detail
    return None
