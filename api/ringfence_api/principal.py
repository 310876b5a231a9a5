"""Principals and roles: who sends a request, and which role each operation needs.

A route names its role as `x-role` in its `openapi_extra`: a level, `payload:read`, or `none` for
anyone. By default GET needs `viewer`, and an operation that may make a change `operator`. Pages of
the console need `viewer`: their changes are requests to the API with the credentials of the
browser.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from fastapi.routing import RouteContext, iter_route_contexts
from starlette.requests import Request
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from ringfence_api.audit_context import ANONYMOUS
from ringfence_service.config.tokens import LEVELS, PAYLOAD_READ, ROLES

EXTRA: Final = "x-role"
FREE: Final = "none"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LOGIN_PAGE: Final = "/console/login"
_API: Final = "/v1/"
_METRICS: Final = "/metrics"
_OPEN: Final = frozenset(
    {"/livez", "/readyz", "/startupz", LOGIN_PAGE, "/console/assets/{version}/{name}"}
)
"""Probes carry no token, and the login page is needed before there is one."""
_MORE_WITH_ROLE: Final = frozenset({"/readyz", _METRICS})
"""Public paths whose responses contain more for an authenticated client."""
_PRINCIPAL: Final = "ringfence.principal"

How = Literal["nobody", "off", "token", "oidc"]


class Principal(NamedTuple):
    """The authenticated sender of a request."""

    name: str
    roles: frozenset[str]
    how: How
    by_cookie: bool = False
    """A browser attaches the cookie to requests of any page, so the origin must be checked."""

    def may(self, role: str) -> bool:
        """Return whether the principal has this role or a higher level."""
        if role == FREE or role in self.roles:
            return True
        return role in LEVELS and any(
            held in self.roles for held in LEVELS[LEVELS.index(role) + 1 :]
        )


NOBODY: Final = Principal(ANONYMOUS, frozenset(), "nobody")
ANYBODY: Final = Principal(ANONYMOUS, frozenset(ROLES), "off")
"""The principal of every request when authentication is off."""


def principal_of(request: Request) -> Principal:
    """Return the principal of a request."""
    return principal_in(request.scope)


def principal_in(scope: Scope) -> Principal:
    """Return the principal of a request, given its scope."""
    found = scope.get(_PRINCIPAL, NOBODY)
    assert isinstance(found, Principal)
    return found


def set_principal(scope: Scope, principal: Principal) -> None:
    """Store the authenticated principal in the scope."""
    scope[_PRINCIPAL] = principal


class AccessRule(NamedTuple):
    """The access rule of an operation."""

    role: str
    path: str | None
    """Path template of the route; None if no route matches."""
    route: RouteContext | None = None
    """The route that handles the request."""

    @property
    def varies_by_role(self) -> bool:
        """Whether a public response contains more for an authenticated client."""
        return self.role == FREE and self.path in _MORE_WITH_ROLE

    @property
    def is_write(self) -> bool:
        """Whether it may change something; a POST that a viewer may send is only a query."""
        return self.in_api and self.role not in {FREE, LEVELS[0], PAYLOAD_READ}

    @property
    def in_api(self) -> bool:
        """Whether it belongs to the REST API, not to the console or the probes."""
        return self.path is not None and self.path.startswith(_API)


class AccessRules:
    """The access rules of all routes of an application."""

    def __init__(self, routes: Sequence[BaseRoute], *, protect_metrics: bool) -> None:
        self._routes = routes
        self._protect_metrics = protect_metrics

    @cached_property
    def routes(self) -> tuple[RouteContext, ...]:
        """All routes in the order of matching; complete by the first request."""
        return tuple(iter_route_contexts(self._routes))

    def of(self, scope: Scope) -> AccessRule:
        """Return the rule of the route that will handle a request.

        A path without a route reveals nothing, but still requires an authenticated client.
        """
        for route in self.routes:
            if route.original_route.matches(scope)[0] is Match.FULL:
                path, extra = str(route.path), getattr(route, "openapi_extra", None)
                return AccessRule(self.role(path, str(scope["method"]), extra or {}), path, route)
        return AccessRule(LEVELS[0], None)

    def role(self, path: str, method: str, extra: Mapping[str, Any]) -> str:
        """Return the role that an operation needs."""
        if path in _OPEN or (path == _METRICS and not self._protect_metrics):
            return FREE
        named = extra.get(EXTRA)
        if named is None:
            return LEVELS[0] if method in SAFE or not path.startswith(_API) else LEVELS[1]
        assert named in {*ROLES, FREE}, f"{path} requires an unknown role: {named}"
        return str(named)
