"""Login: a browser presents a token once and gets a cookie for it: `/login`, `/logout`.

The form is a page of the console. A program sends its token with every request instead.
"""

from typing import Annotated, Final
from urllib.parse import quote

import structlog
from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from api import problems
from api.auth.authenticate import Authenticator
from api.auth.authorize import RefusalCounts, client_of, foreign, too_many
from api.auth.cookies import NAME, SECURE_NAME
from api.auth.oidc import TokenRefused
from api.principal import EXTRA, FREE, LOGIN_PAGE
from service.queries.errors import Unavailable

_log = structlog.stdlib.get_logger(__name__)
_SEE_OTHER: Final = 303
_ANYBODY: Final = {EXTRA: FREE}


def router(access: Authenticator, counts: RefusalCounts) -> APIRouter:
    """Return the routes by which a browser comes and goes."""
    routes = APIRouter(include_in_schema=False)

    @routes.post("/login", openapi_extra=_ANYBODY)
    async def log_in(
        request: Request,
        token: Annotated[str, Form(max_length=20_000)],
        next: Annotated[str, Form(max_length=2_000)] = "/",  # noqa: A002 - the field's name
    ) -> Response:
        """Give a browser the cookie of a token, and send it to where it wanted to go."""
        refusal = foreign(request.scope, request.headers, must_tell=False)
        if refusal is not None:
            return refusal
        answer = RedirectResponse(_ours(next), _SEE_OTHER)
        if not access.asks_who:
            return answer
        try:
            cookie = await access.log_in(token.strip())
        except TokenRefused as refused:
            return _refused(request, refused.reason, next)
        except Unavailable as error:
            return problems.on_unavailable(request, error)
        _set(answer, cookie, access, request)
        return answer

    @routes.post("/logout", openapi_extra=_ANYBODY)
    async def log_out(request: Request) -> Response:
        """Have a browser forget its cookie, which lets nobody in here any more."""
        refusal = foreign(request.scope, request.headers, must_tell=False)
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
            place = f"{LOGIN_PAGE}?failed=true&next={quote(_ours(after))}"
            return RedirectResponse(place, _SEE_OTHER)
        detail = f"The token lets nobody in ({reason}); present one that holds."
        return problems.problem_response(problems.UNAUTHENTICATED, detail, request.scope)

    return routes


def _signed_out(access: Authenticator, request: Request) -> Response:
    access.log_out(request.headers)
    answer = RedirectResponse(LOGIN_PAGE if access.asks_who else "/", _SEE_OTHER)
    answer.delete_cookie(NAME, httponly=True, samesite="strict")
    answer.delete_cookie(SECURE_NAME, httponly=True, samesite="strict", secure=True)
    return answer


def _set(answer: Response, cookie: str, access: Authenticator, request: Request) -> None:
    """Of a page that came over TLS, ours or a proxy's, the cookie never goes another way."""
    settings = access.settings
    is_tls = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")
    answer.set_cookie(
        SECURE_NAME if is_tls else NAME,
        cookie,
        max_age=settings.session_max_s,
        httponly=True,
        samesite="strict",
        secure=is_tls,
    )


def _ours(place: str) -> str:
    """A path of this service: never an address of somebody else's."""
    is_path = place.startswith("/") and not place.startswith(("//", "/\\"))
    return place if is_path and place.isprintable() and "\\" not in place else "/"
