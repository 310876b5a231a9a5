"""Documents: the OpenAPI description, held to what the API really answers.

FastAPI would describe errors as it makes them by default; ours are all problems. A resource names
the errors that are its own; `default` stands for those that any request can meet.
"""

from typing import Any, Final

from fastapi import FastAPI

from api import problems
from api.idempotency import HEADER, KEY_CHARS_MAX
from api.roles import EXTRA, FREE, Rules

Responses = dict[int | str, dict[str, Any]]

DESCRIPTION: Final = """\
What Ringfence does and remembers. Every error is a problem (RFC 9457) of type
`application/problem+json`. Every response carries `X-Request-Id`: yours, or one made here.
Times are RFC 3339 in UTC; numbers carry their unit in their name.
"""
_SCHEMAS: Final = "#/components/schemas/{model}"
_ANY_ERROR: Final = (
    problems.MALFORMED,
    problems.UNAUTHENTICATED,
    problems.FORBIDDEN,
    problems.ORIGIN_REFUSED,
    problems.KEY_IN_PROGRESS,
    problems.TOO_LARGE,
    problems.WRONG_HOST,
    problems.KEY_REUSED,
    problems.TOO_MANY_FAILURES,
    problems.INTERNAL,
    problems.NOT_AUDITED,
)


def errors(*kinds: problems.Kind) -> Responses:
    """Describe the errors of a resource, and those that any request can meet."""
    described: Responses = {kind.status: _described(kind) for kind in kinds}
    described["default"] = {
        "description": "; ".join(f"{kind.status}: {kind.title}" for kind in _ANY_ERROR) + ".",
        "content": _PROBLEM,
    }
    return described


class Documented(FastAPI):
    """An application whose OpenAPI document holds the schema of a problem, and who may do what."""

    rules: Rules

    def openapi(self) -> dict[str, Any]:
        """Return the document; FastAPI makes it once and keeps it."""
        document = super().openapi()
        problem = problems.Problem.model_json_schema(ref_template=_SCHEMAS)
        document["components"]["schemas"].update(problem.pop("$defs"), Problem=problem)
        document["components"]["securitySchemes"] = _SCHEMES
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                self._tell_rules(path, method.upper(), operation)
        return document

    def _tell_rules(self, path: str, method: str, operation: dict[str, Any]) -> None:
        role = self.rules.role(path, method, operation)
        operation[EXTRA] = role
        if role != FREE:
            operation["security"] = [{name: []} for name in _SCHEMES]
        named = {each["name"] for each in operation.get("parameters", ())}
        if method == "POST" and HEADER not in named:
            operation["parameters"] = [*operation.get("parameters", ()), _KEY]


_PROBLEM: Final = {
    problems.MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS.format(model="Problem")}},
}
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token, or a JWT."}
}
_KEY: Final = {
    "name": HEADER,
    "in": "header",
    "description": "A name for this change: sent again under it, it is not made again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
}
_RETRY_AFTER: Final = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
}


def _described(kind: problems.Kind) -> dict[str, Any]:
    described: dict[str, Any] = {"description": kind.title + ".", "content": _PROBLEM}
    if kind.status == problems.UNAVAILABLE.status:
        described["headers"] = _RETRY_AFTER
    return described
