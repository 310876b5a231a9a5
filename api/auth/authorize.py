"""Authorization: checks the role of every request before anything of it is read or done.

The answer is 401 without a known principal, 403 without the role, 429 after too many failed
attempts, and 503 while the issuer does not answer. No handler makes such a decision.
"""

from typing import Final, Protocol
from urllib.parse import quote

import structlog
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api import problems
from api.audit_context import actor_in, set_actor
from api.auth.authenticate import MISSING, Authenticator, bearer_of
from api.auth.oidc import TokenRefused
from api.hosts import authority, origin_authority
from api.principal import (
    ANYBODY,
    FREE,
    LOGIN_PAGE,
    SAFE,
    AccessRule,
    AccessRules,
    Principal,
    set_principal,
)
from service.queries.errors import Unavailable

CHALLENGE: Final = 'Bearer realm="ringfence"'
RULE: Final = "ringfence.rule"

_log = structlog.stdlib.get_logger(__name__)


class RefusalCounts(Protocol):
    """Where refusals are counted."""

    def http_auth_failure(self, reason: str) -> None:
        """Count a request that was refused for who makes it."""
        ...


class Authorizer:
    """ASGI middleware between the envelope and the resources."""

    def __init__(
        self, app: ASGIApp, rules: AccessRules, access: Authenticator | None, counts: RefusalCounts
    ) -> None:
        """Without `access` anybody may do anything."""
        self._app = app
        self._rules = rules
        self._access = access
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
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
            return self._foreign(scope, headers, ANYBODY)
        if rule.role == FREE:
            if rule.tells_more:
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
        return self._foreign(scope, headers, principal)

    async def _recognise(self, scope: Scope, headers: Headers, access: Authenticator) -> None:
        """Name who asks what anybody may ask; a probe is never refused for what it presents."""
        try:
            set_principal(scope, await access.principal(headers))
        except TokenRefused as refused:
            if refused.reason != MISSING:
                self._counts.http_auth_failure(refused.reason)
        except Unavailable:
            self._counts.http_auth_failure("keys-unavailable")

    def _unknown(self, scope: Scope, headers: Headers, reason: str) -> Response:
        """Answer who is not known: a person is sent to log in, a program is told."""
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
        detail = "Say who you are: `Authorization: Bearer TOKEN`."
        if reason != MISSING:
            detail = f"What was presented lets nobody in ({reason}); present a token that holds."
        challenge = CHALLENGE if reason == MISSING else f'{CHALLENGE}, error="invalid_token"'
        return problems.problem_response(
            problems.UNAUTHENTICATED, detail, scope, headers={"WWW-Authenticate": challenge}
        )

    def _is_page(self, scope: Scope, headers: Headers) -> bool:
        """Whether a person looks at a page, in an application that has a page to log in."""
        if scope["method"] != "GET" or "text/html" not in headers.get("accept", ""):
            return False
        return self._rules.of({**scope, "path": LOGIN_PAGE}).path == LOGIN_PAGE

    def _lacking(self, scope: Scope, principal: Principal, role: str) -> Response:
        self._counts.http_auth_failure("role")
        _log.warning("http_role_missing", role=role, actor=principal.name, source=client_of(scope))
        has = ", ".join(sorted(principal.roles)) or "none"
        return problems.problem_response(
            problems.FORBIDDEN,
            f"This needs the role {role}; you have {has}. Ask who administrates the service.",
            scope,
            extras=problems.ProblemExtras(missing_role=role),
            headers={
                "WWW-Authenticate": f'{CHALLENGE}, error="insufficient_scope", scope="{role}"'
            },
        )

    def _foreign(self, scope: Scope, headers: Headers, principal: Principal) -> Response | None:
        """Refuse a change that a page of somebody else's has a browser ask for."""
        if scope["method"] in SAFE or not (principal.by_cookie or principal.how == "off"):
            return None
        return foreign(scope, headers, must_tell=principal.by_cookie)


def rule_of(scope: Scope) -> AccessRule:
    """What the guard has found that a request needs."""
    rule = scope[RULE]
    assert isinstance(rule, AccessRule)
    return rule


def client_of(scope: Scope) -> str:
    """Where a request comes from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def too_many(access: Authenticator | None, address: str, scope: Scope) -> Response | None:
    """Count a failure; answer where it is one too many."""
    wait_s = None if access is None else access.attempts.failed(address)
    if wait_s is None:
        return None
    detail = f"Too many requests from {address} were refused; wait {wait_s} s."
    wait = {"Retry-After": str(wait_s)}
    return problems.problem_response(problems.TOO_MANY_FAILURES, detail, scope, headers=wait)


def foreign(scope: Scope, headers: Headers, *, must_tell: bool) -> Response | None:
    """Refuse what a page of another origin than ours asks for.

    Who bears a token is no browser that a page has misled; who bears a cookie may be one.
    """
    origin = headers.get("origin")
    if origin is None and not must_tell:
        return None
    ours = authority(headers.get("host", ""))
    if origin is not None and ours is not None and origin_authority(origin) == ours:
        return None
    detail = "A change that a browser asks for has to come from a page of this service."
    return problems.problem_response(problems.ORIGIN_REFUSED, detail, scope)
