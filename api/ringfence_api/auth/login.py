"""Login: a browser exchanges a token for a session cookie (`/login`, `/logout`).

The form is a page of the console. A program sends its token with every request instead.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from ringfence_api import problems
from ringfence_api.auth.authenticate import Authenticator
from ringfence_api.auth.authorize import RefusalCounts, client_of, cross_origin_refusal, too_many
from ringfence_api.auth.cookies import NAME, SECURE_NAME
from ringfence_api.auth.oidc import TokenRefused
from ringfence_api.form import read_fields
from ringfence_api.principal import EXTRA, FREE, LOGIN_PAGE
from ringfence_api.problems import INVALID, ProblemError
from ringfence_service.queries.errors import Unavailable

_log = structlog.stdlib.get_logger(__name__)
_SEE_OTHER: Final = 303
_CHARS_MAX: Final = {"token": 20_000, "next": 2_000}
_PUBLIC: Final = {EXTRA: FREE}


def router(access: Authenticator, counts: RefusalCounts) -> APIRouter:
    """Return the routes for signing in and out."""
    routes = APIRouter(include_in_schema=False)

    @routes.post("/login", openapi_extra=_PUBLIC)
    async def log_in(request: Request) -> Response:
        """Set the session cookie for a token, and redirect to the requested page."""
        refusal = cross_origin_refusal(request.scope, request.headers, requires_origin=False)
        if refusal is not None:
            return refusal
        fields = await read_fields(request)
        token, after = (_field(fields, name) for name in ("token", "next"))
        response = RedirectResponse(_local_path(after), _SEE_OTHER)
        if not access.asks_who:
            return response
        try:
            cookie = await access.log_in(token)
        except TokenRefused as refused:
            return _refused(request, refused.reason, after)
        except Unavailable as error:
            return problems.on_unavailable(request, error)
        _set_cookie(response, cookie, access, request)
        return response

    @routes.post("/logout", openapi_extra=_PUBLIC)
    async def log_out(request: Request) -> Response:
        """Delete the session cookie of a browser, and revoke it in this process."""
        refusal = cross_origin_refusal(request.scope, request.headers, requires_origin=False)
        return refusal or _signed_out(access, request)

    def _refused(request: Request, reason: str, after: str) -> Response:
        address = client_of(request.scope)
        counts.http_auth_failure(reason)
        limited = too_many(access, address, request.scope)
        if limited is not None:
            counts.http_auth_failure("too-many")
            return limited
        _log.warning("http_auth_failed", reason=reason, source=address)
        if "text/html" in request.headers.get("accept", ""):
            url = f"{LOGIN_PAGE}?failed=true&next={quote(_local_path(after))}"
            return RedirectResponse(url, _SEE_OTHER)
        detail = f"The token is not accepted ({reason}); send a valid one."
        return problems.problem_response(problems.UNAUTHENTICATED, detail, request.scope)

    return routes


def _field(fields: Mapping[str, str], name: str) -> str:
    """Return a field of the form. Raise ProblemError if it is too long, or the token is missing."""
    value = fields.get(name, "")
    if len(value) > _CHARS_MAX[name]:
        raise ProblemError(INVALID, f"The field {name} has at most {_CHARS_MAX[name]} characters.")
    if name == "token" and not value:
        raise ProblemError(INVALID, "The field token is missing; send the token in it.")
    return value


def _signed_out(access: Authenticator, request: Request) -> Response:
    access.log_out(request.headers)
    response = RedirectResponse(LOGIN_PAGE if access.asks_who else "/", _SEE_OTHER)
    response.delete_cookie(NAME, httponly=True, samesite="strict")
    response.delete_cookie(SECURE_NAME, httponly=True, samesite="strict", secure=True)
    return response


def _set_cookie(response: Response, cookie: str, access: Authenticator, request: Request) -> None:
    """Set the cookie; a page that came over TLS, ours or a proxy's, gets a secure one."""
    settings = access.settings
    is_tls = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")
    response.set_cookie(
        SECURE_NAME if is_tls else NAME,
        cookie,
        max_age=settings.session_max_s,
        httponly=True,
        samesite="strict",
        secure=is_tls,
    )


def _local_path(url: str) -> str:
    """Return `url` if it is a path of this service, else `/`: no redirect leaves the service."""
    is_path = url.startswith("/") and not url.startswith(("//", "/\\"))
    return url if is_path and url.isprintable() and "\\" not in url else "/"
