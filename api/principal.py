"""Principals and roles: who makes a request, and which role each operation needs.

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

from api.audit_context import ANONYMOUS
from service.config.tokens import LEVELS, PAYLOAD_READ, ROLES

EXTRA: Final = "x-role"
FREE: Final = "none"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LOGIN_PAGE: Final = "/console/login"
_API: Final = "/v1/"
_METRICS: Final = "/metrics"
_OPEN: Final = frozenset(
    {"/livez", "/readyz", "/startupz", LOGIN_PAGE, "/console/assets/{version}/{name}"}
)
"""Probes bear no token, and who logs in has none yet."""
_TELLING: Final = frozenset({"/readyz", _METRICS})
"""What anybody may ask, and tells more to somebody who is known."""
_PRINCIPAL: Final = "ringfence.principal"

How = Literal["nobody", "off", "token", "oidc"]


class Principal(NamedTuple):
    """Who asks."""

    name: str
    roles: frozenset[str]
    how: How
    by_cookie: bool = False
    """A browser sends it along, whoever made the page that asks."""

    def may(self, role: str) -> bool:
        """Whether a role, or a higher one, is among those held."""
        if role == FREE or role in self.roles:
            return True
        return role in LEVELS and any(
            held in self.roles for held in LEVELS[LEVELS.index(role) + 1 :]
        )


NOBODY: Final = Principal(ANONYMOUS, frozenset(), "nobody")
ANYBODY: Final = Principal(ANONYMOUS, frozenset(ROLES), "off")
"""Who asks where nobody is asked who he is."""


def principal_of(request: Request) -> Principal:
    """Who asks, and with which roles."""
    return principal_in(request.scope)


def principal_in(scope: Scope) -> Principal:
    """Who asks, by the scope of the request."""
    found = scope.get(_PRINCIPAL, NOBODY)
    assert isinstance(found, Principal)
    return found


def set_principal(scope: Scope, principal: Principal) -> None:
    """Name who asks, once it is known."""
    scope[_PRINCIPAL] = principal


class AccessRule(NamedTuple):
    """What an operation needs."""

    role: str
    path: str | None
    """The template of the route; None where there is no such route."""
    route: RouteContext | None = None
    """The one that answers."""

    @property
    def tells_more(self) -> bool:
        """Whether it tells more to who may read than to who need not say who he is."""
        return self.role == FREE and self.path in _TELLING

    @property
    def is_write(self) -> bool:
        """Whether it may change something: a POST that readers may send only asks."""
        return self.in_api and self.role not in {FREE, LEVELS[0], PAYLOAD_READ}

    @property
    def in_api(self) -> bool:
        """Whether it is for programs."""
        return self.path is not None and self.path.startswith(_API)


class AccessRules:
    """The roles that all routes of an application need."""

    def __init__(self, routes: Sequence[BaseRoute], *, protect_metrics: bool) -> None:
        self._listed = routes
        self._protect_metrics = protect_metrics

    @cached_property
    def routes(self) -> tuple[RouteContext, ...]:
        """In the order in which the router asks them; all are there at the first request."""
        return tuple(iter_route_contexts(self._listed))

    def of(self, scope: Scope) -> AccessRule:
        """The rule of a request: that of the route that will answer it.

        What no route answers has no secret, but whoever asks has to be somebody.
        """
        for route in self.routes:
            if route.original_route.matches(scope)[0] is Match.FULL:
                path, extra = str(route.path), getattr(route, "openapi_extra", None)
                return AccessRule(self.role(path, str(scope["method"]), extra or {}), path, route)
        return AccessRule(LEVELS[0], None)

    def role(self, path: str, method: str, extra: Mapping[str, Any]) -> str:
        """Which role an operation needs."""
        if path in _OPEN or (path == _METRICS and not self._protect_metrics):
            return FREE
        named = extra.get(EXTRA)
        if named is None:
            return LEVELS[0] if method in SAFE or not path.startswith(_API) else LEVELS[1]
        assert named in {*ROLES, FREE}, f"{path} names a role that there is not: {named}"
        return str(named)
