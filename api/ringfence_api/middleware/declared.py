"""Declared requests: a request may contain only what its operation declares.

A method that the path does not support is refused with 405 and an `Allow` header. An undeclared
query parameter is refused, because a misspelled `dry_run` would make the change. So is one that is
given twice, of which a proxy and the handler may read different values, unless it is declared as a
list; and a body that the operation does not accept, or one of another media type. The declarations
are read from the routes, so no handler checks this.

Pages of the console ignore undeclared query parameters, since reading them changes nothing.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from fastapi._compat import field_annotation_is_sequence
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import RouteContext
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from ringfence_api import problems
from ringfence_api.auth.authorize import rule_of
from ringfence_api.principal import AccessRules
from ringfence_service.config.keys import nearest

JSON: Final = "application/json"
ANY_NAME: Final = "NAME"
"""Suffix of a documented parameter that matches any name, as in `header.NAME`."""
_BODIES: Final = frozenset({"POST", "PUT", "DELETE"})
_REPORTED_MAX: Final = 10
"""Faults that a response names: a query of 256 KiB may have many thousands of names.

For each fault the nearest valid name is searched; after the last one the search ends.
"""
_NAME_CHARS_MAX: Final = 100
"""Characters of a name that are compared and quoted: more than any declared name has.

What the client sent comes back in the response, and comparing takes time by its length.
"""


class DeclaredRequest(NamedTuple):
    """The query parameters and media types that one operation accepts."""

    query: tuple[str, ...]
    lists: frozenset[str]
    """Those of `query` that may be given several times."""
    prefixes: tuple[str, ...]
    bodies: tuple[str, ...] | None
    """Media types of its body; empty if it takes none, None if the handler parses the body."""

    @classmethod
    def of(cls, route: RouteContext) -> "DeclaredRequest | None":
        """Read the declarations of a route; None for a route that has none, such as a page."""
        dependant = getattr(route, "dependant", None)
        if dependant is None or (route.methods == {"GET"} and _is_page(route)):
            return None
        fields = get_flat_params(dependant)
        params = [each for each in fields if isinstance(each.field_info, Query)]
        named = [each.alias for each in params]
        lists = (e.alias for e in params if field_annotation_is_sequence(e.field_info.annotation))
        extra: Mapping[str, Any] = route.openapi_extra or {}
        documented = [each["name"] for each in extra.get("parameters", ()) if each["in"] == "query"]
        bodies = list(extra.get("requestBody", {}).get("content", ()))
        return cls(
            query=tuple(sorted({*named, *documented})),
            lists=frozenset(lists),
            prefixes=tuple(n.removesuffix(ANY_NAME) for n in documented if n.endswith(ANY_NAME)),
            bodies=(
                None
                if not route.include_in_schema
                else ()
                if route.body_field is None
                else (JSON, *bodies)
            ),
        )

    def faults(self, query: str) -> tuple[problems.FieldError, ...]:
        """Return an error for each parameter of a query that is undeclared or given twice."""
        given = Counter(name for name, _ in parse_qsl(query, keep_blank_values=True))
        faults = (self._fault(name[:_NAME_CHARS_MAX], count) for name, count in given.items())
        return tuple(islice(filter(None, faults), _REPORTED_MAX))

    def _fault(self, name: str, count: int) -> problems.FieldError | None:
        if name.startswith(self.prefixes):
            return None
        if name not in self.query:
            return self._unknown(name)
        if count == 1 or name in self.lists:
            return None
        detail = f"The parameter {name} is given {count} times; give it once."
        pointer = problems.pointer("query", name)
        return problems.FieldError(pointer=pointer, detail=detail, code="repeated_parameter")

    def _unknown(self, name: str) -> problems.FieldError:
        known = ", ".join(self.query)
        near = nearest(name.lower().replace("-", "_"), self.query)
        hint = f"valid parameters: {known}." if known else "this operation takes none."
        if near:
            hint = f"did you mean {near}? Valid parameters: {known}."
        detail = f"There is no parameter {name}; {hint}"
        return problems.FieldError(
            pointer=problems.pointer("query", name), detail=detail, code="unknown_parameter"
        )


class DeclaredMiddleware:
    """ASGI middleware between authorization and the resources."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules
        self._declared: dict[int, DeclaredRequest | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse one that its operation does not declare."""
        response = self._respond(scope) if scope["type"] == "http" else None
        await (response or self._app)(scope, receive, send)

    def _respond(self, scope: Scope) -> Response | None:
        route = rule_of(scope).route
        if route is None:
            return self._other_method(scope)
        if id(route) not in self._declared:
            self._declared[id(route)] = DeclaredRequest.of(route)
        declared = self._declared[id(route)]
        refusal = None if declared is None else _refusal(declared, scope)
        if refusal is not None:
            scope["route"] = route  # the label under which the request is counted
        return refusal

    def _other_method(self, scope: Scope) -> Response | None:
        """Respond to a method that the path does not support; None for an unknown path."""
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
        detail = f"The resource supports {allow['Allow']}; see /openapi.json."
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
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    accepted = " or ".join(declared.bodies)
    if not declared.bodies:
        detail = "This operation takes no body; send its parameters in the query."
    elif media_type in declared.bodies or _is_json(media_type):
        return None
    elif media_type:
        detail = f"The body is {media_type[:_NAME_CHARS_MAX]}; send {accepted}."
    else:
        detail = f"The body has no Content-Type; send {accepted}, and name it there."
    accept = {"Accept": ", ".join(declared.bodies)} if declared.bodies else {}
    return problems.problem_response(problems.UNSUPPORTED, detail, scope, headers=accept)


def _is_json(media_type: str) -> bool:
    return media_type.startswith("application/") and media_type.endswith("+json")


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _is_page(route: RouteContext) -> bool:
    return route.path in {"/", "/console"} or str(route.path).startswith("/console/")
