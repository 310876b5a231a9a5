"""Authorization: checks the role of every request before its body is read.

The response is 401 without a known principal, 403 without the role, 429 after too many failed
attempts, and 503 while the issuer does not respond. No handler makes such a decision.
"""

from typing import Final, Protocol
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ringfence_api import problems
from ringfence_api.audit_context import actor_in, set_actor
from ringfence_api.auth.authenticate import MISSING, Authenticator, bearer_of
from ringfence_api.auth.oidc import TokenRefused
from ringfence_api.hosts import authority, origin_authority
from ringfence_api.principal import (
    ANYBODY,
    FREE,
    LOGIN_PAGE,
    SAFE,
    AccessRule,
    AccessRules,
    Principal,
    set_principal,
)
from ringfence_service.queries.errors import Unavailable

CHALLENGE: Final = 'Bearer realm="ringfence"'
RULE: Final = "ringfence.rule"

_log = structlog.stdlib.get_logger(__name__)


class RefusalCounts(Protocol):
    """Counter of refused requests."""

    def http_auth_failure(self, reason: str) -> None:
        """Count a request that failed authentication or authorization."""
        ...


class Authorizer:
    """ASGI middleware between the request middleware and the resources."""

    def __init__(
        self, app: ASGIApp, rules: AccessRules, access: Authenticator | None, counts: RefusalCounts
    ) -> None:
        """Without `access`, everything is permitted to everyone."""
        self._app = app
        self._rules = rules
        self._access = access
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rule = self._rules.of(scope)
        scope[RULE] = rule
        refusal = await self._refusal(scope, rule)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        with structlog.contextvars.bound_contextvars(actor=actor_in(scope)):
            await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope, rule: AccessRule) -> Response | None:
        headers, access = Headers(scope=scope), self._access
        if access is None or not access.asks_who:
            set_principal(scope, ANYBODY)
            return self._check_origin(scope, headers, ANYBODY)
        if rule.role == FREE:
            if rule.varies_by_role:
                await self._recognise(scope, headers, access)
            return None
        try:
            principal = await access.principal(headers)
        except TokenRefused as refused:
            return self._unknown(scope, headers, refused.reason)
        except Unavailable as error:
            self._counts.http_auth_failure("keys-unavailable")
            return problems.try_later(error, scope)
        set_principal(scope, principal)
        set_actor(scope, principal.name)
        if not principal.may(rule.role):
            return self._lacking(scope, principal, rule.role)
        return self._check_origin(scope, headers, principal)

    async def _recognise(self, scope: Scope, headers: Headers, access: Authenticator) -> None:
        """Authenticate a public request if possible; a bad token never fails a probe."""
        try:
            set_principal(scope, await access.principal(headers))
        except TokenRefused as refused:
            if refused.reason != MISSING:
                self._counts.http_auth_failure(refused.reason)
        except Unavailable:
            self._counts.http_auth_failure("keys-unavailable")

    def _unknown(self, scope: Scope, headers: Headers, reason: str) -> Response:
        """Refuse an unauthenticated request; a browser is redirected to the login page."""
        self._counts.http_auth_failure(reason)
        address = client_of(scope)
        if reason != MISSING and bearer_of(headers) is not None:
            limited = too_many(self._access, address, scope)
            if limited is not None:
                self._counts.http_auth_failure("too-many")
                return limited
            _log.warning("http_auth_failed", reason=reason, source=address)
        if self._is_page(scope, headers):
            return RedirectResponse(f"{LOGIN_PAGE}?next={quote(str(scope['path']))}", 303)
        detail = "Authenticate with the header `Authorization: Bearer TOKEN`."
        if reason != MISSING:
            detail = f"The credentials are not accepted ({reason}); send a valid token."
        challenge = CHALLENGE if reason == MISSING else f'{CHALLENGE}, error="invalid_token"'
        return problems.problem_response(
            problems.UNAUTHENTICATED, detail, scope, headers={"WWW-Authenticate": challenge}
        )

    def _is_page(self, scope: Scope, headers: Headers) -> bool:
        """Return whether a browser loads a page, in an application that has a login page."""
        if scope["method"] != "GET" or "text/html" not in headers.get("accept", ""):
            return False
        return self._rules.of({**scope, "path": LOGIN_PAGE}).path == LOGIN_PAGE

    def _lacking(self, scope: Scope, principal: Principal, role: str) -> Response:
        self._counts.http_auth_failure("role")
        _log.warning("http_role_missing", role=role, actor=principal.name, source=client_of(scope))
        has = ", ".join(sorted(principal.roles)) or "none"
        return problems.problem_response(
            problems.FORBIDDEN,
            f"This needs the role {role}; you have {has}. Ask the administrator of the service.",
            scope,
            extras=problems.ProblemExtras(missing_role=role),
            headers={
                "WWW-Authenticate": f'{CHALLENGE}, error="insufficient_scope", scope="{role}"'
            },
        )

    def _check_origin(
        self, scope: Scope, headers: Headers, principal: Principal
    ) -> Response | None:
        """Refuse a change that a page of another origin sends through a browser."""
        if scope["method"] in SAFE or not (principal.by_cookie or principal.how == "off"):
            return None
        return cross_origin_refusal(scope, headers, requires_origin=principal.by_cookie)


def rule_of(scope: Scope) -> AccessRule:
    """Return the access rule that the authorizer stored in the scope."""
    rule = scope[RULE]
    assert isinstance(rule, AccessRule)
    return rule


def client_of(scope: Scope) -> str:
    """Return the address of the client; empty if unknown."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def too_many(access: Authenticator | None, address: str, scope: Scope) -> Response | None:
    """Count a failed attempt; return a refusal if there were too many."""
    wait_s = None if access is None else access.attempts.failed(address)
    if wait_s is None:
        return None
    detail = f"Too many attempts to authenticate from {address} failed; wait {wait_s} s."
    wait = {"Retry-After": str(wait_s)}
    return problems.problem_response(problems.TOO_MANY_FAILURES, detail, scope, headers=wait)


def cross_origin_refusal(
    scope: Scope, headers: Headers, *, requires_origin: bool
) -> Response | None:
    """Refuse a request of a page of another origin.

    A foreign page can make a browser send its cookie, but never a bearer token. With
    `requires_origin`, a request without the header is refused too.
    """
    origin = headers.get("origin")
    if origin is None and not requires_origin:
        return None
    own = authority(headers.get("host", ""))
    if origin is not None and own is not None and origin_authority(origin) == own:
        return None
    detail = "A browser may send changes only from a page of this service."
    return problems.problem_response(problems.ORIGIN_REFUSED, detail, scope)
