"""Declared requests: a request may contain only what its operation declares.

A method that a path lacks is answered 405 with those it has. An undeclared query parameter is
refused: a misspelled `dry_run` would make the change. So is a body that the operation does not
take, or of another media type. The declarations are read from the routes, so no handler decides
this.

Pages of the console ignore undeclared query parameters, since reading them changes nothing.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import RouteContext
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from api import problems
from api.auth.authorize import rule_of
from api.principal import AccessRules
from service.config.model import nearest

JSON: Final = "application/json"
ANY_NAME: Final = "NAME"
"""At the end of a documented parameter it stands for any name."""
_BODIES: Final = frozenset({"POST", "PUT", "DELETE"})
_TOLD_MAX: Final = 10
_NAME_CHARS_MAX: Final = 100


class DeclaredRequest(NamedTuple):
    """What one operation takes."""

    query: tuple[str, ...]
    prefixes: tuple[str, ...]
    bodies: tuple[str, ...] | None
    """Media types of its body; none where it takes no body, None where it reads it by itself."""

    @classmethod
    def of(cls, route: RouteContext) -> "DeclaredRequest | None":
        """Read it from a route; None of one that declares nothing, as a page."""
        dependant = getattr(route, "dependant", None)
        if dependant is None or (route.methods == {"GET"} and _is_page(route)):
            return None
        fields = get_flat_params(dependant)
        named = [each.alias for each in fields if isinstance(each.field_info, Query)]
        extra: Mapping[str, Any] = route.openapi_extra or {}
        told = [each["name"] for each in extra.get("parameters", ()) if each["in"] == "query"]
        bodies = list(extra.get("requestBody", {}).get("content", ()))
        return cls(
            query=tuple(sorted({*named, *told})),
            prefixes=tuple(n.removesuffix(ANY_NAME) for n in told if n.endswith(ANY_NAME)),
            bodies=(
                None
                if not route.include_in_schema
                else ()
                if route.body_field is None
                else (JSON, *bodies)
            ),
        )

    def faults(self, query: str) -> tuple[problems.FieldError, ...]:
        """The parameters of a query that are not declared."""
        names = dict(parse_qsl(query, keep_blank_values=True))
        unknown = [each for each in names if not self._has(each)]
        return tuple(self._fault(each[:_NAME_CHARS_MAX]) for each in unknown[:_TOLD_MAX])

    def _has(self, name: str) -> bool:
        return name in self.query or name.startswith(self.prefixes)

    def _fault(self, name: str) -> problems.FieldError:
        known = ", ".join(self.query)
        near = nearest(name.lower().replace("-", "_"), self.query)
        mend = f"did you mean {near}? Known are {known}." if near else f"known are {known}."
        if not known:
            mend = "this takes none."
        detail = f"There is no parameter {name}; {mend}"
        return problems.FieldError(
            pointer=problems.pointer("query", name), detail=detail, code="unknown_parameter"
        )


class DeclaredMiddleware:
    """ASGI middleware between the guard and what reads a request."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules
        self._declared: dict[int, DeclaredRequest | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse what its operation does not declare."""
        answer = self._answer(scope) if scope["type"] == "http" else None
        await (answer or self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        route = rule_of(scope).route
        if route is None:
            return self._other_method(scope)
        if id(route) not in self._declared:
            self._declared[id(route)] = DeclaredRequest.of(route)
        declared = self._declared[id(route)]
        refusal = None if declared is None else _refusal(declared, scope)
        if refusal is not None:
            scope["route"] = route  # by which requests are counted
        return refusal

    def _other_method(self, scope: Scope) -> Response | None:
        """Answer a method that the path has not; None where there is nothing at the path."""
        found = [
            each
            for each in self._rules.routes
            if each.original_route.matches(scope)[0] is Match.PARTIAL
        ]
        if not found:
            return None
        scope["route"] = found[0]
        methods = {"OPTIONS"}.union(*(each.methods or () for each in found))
        methods |= {"HEAD"} if "GET" in methods else set()
        allow = {"Allow": ", ".join(sorted(methods))}
        if scope["method"] == "OPTIONS":
            return Response(status_code=204, headers=allow)
        detail = f"The resource has the methods {allow['Allow']}; see /openapi.json."
        return problems.problem_response(problems.METHOD_NOT_ALLOWED, detail, scope, headers=allow)


def _refusal(declared: DeclaredRequest, scope: Scope) -> Response | None:
    faults = declared.faults(bytes(scope["query_string"]).decode("latin-1"))
    if faults:
        detail = " ".join(each.detail for each in faults)
        extras = problems.ProblemExtras(errors=faults)
        return problems.problem_response(problems.INVALID, detail, scope, extras=extras)
    headers = Headers(scope=scope)
    if declared.bodies is None or scope["method"] not in _BODIES or not _has_body(headers):
        return None
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    taken = " or ".join(declared.bodies)
    if not declared.bodies:
        detail = "This takes no body; leave it out, and tell its parameters in the query."
    elif given in declared.bodies or (given.startswith("application/") and given.endswith("+json")):
        return None
    elif given:
        detail = f"The body is {given[:_NAME_CHARS_MAX]}; send {taken}, and say so in Content-Type."
    else:
        detail = f"The body has no Content-Type; it is taken as {taken}: say so."
    accept = {"Accept": ", ".join(declared.bodies)} if declared.bodies else {}
    return problems.problem_response(problems.UNSUPPORTED, detail, scope, headers=accept)


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _is_page(route: RouteContext) -> bool:
    return route.path in {"/", "/console"} or str(route.path).startswith("/console/")
