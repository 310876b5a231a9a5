"""Problems: every error of the API, as `application/problem+json` (RFC 9457).

Invariant: a problem contains no stack, no secret and nothing that the client sent except the path.
`type` is stable; `title` says what the type means, `detail` what happened this time and what to do
next.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from ringfence_service.queries.errors import NameInUse, NotPossible, Unavailable

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:ringfence:problem:"


class FieldError(BaseModel):
    """An error in one part of the request."""

    model_config = ConfigDict(frozen=True)

    pointer: str = Field(description="JSON Pointer into the request: /path/…, /query/….")
    detail: str = Field(description="What is wrong.")
    code: str = Field(description="The kind of error, as a code.")


class Check(BaseModel):
    """A health check and its result."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="The name of the check.")
    ok: bool = Field(description="Whether the check passes.")
    detail: str = Field(description="The result, and what to do.")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(description="A stable URN that names the kind of error.")
    title: str = Field(description="The kind of error, in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What happened, and what to do next.")
    instance: str = Field(description="The path of the request.")
    trace_id: str = Field(
        description="The request id, as in the header X-Request-Id and in the log of the service."
    )
    errors: tuple[FieldError, ...] | None = Field(
        default=None, description="The errors by part of the request; with status 422."
    )
    checks: tuple[Check, ...] | None = Field(
        default=None, description="The health checks; with `unhealthy`."
    )
    missing_role: str | None = Field(
        default=None, description="The role that is needed; with `role-missing`."
    )
    absence: str | None = Field(
        default=None,
        description="Why no record is there; with `no-dead-letter` and `no-record`: `topic` (none "
        "of these), `partition`, `deleted`, `end` (not written yet), `gap` or `open` (an open "
        "transaction).",
    )


class ProblemKind(NamedTuple):
    """A problem type: the stable name, its HTTP status and its title."""

    name: str
    status: int
    title: str


MALFORMED: Final = ProblemKind("malformed-request", 400, "The request is malformed")
ORIGIN_REFUSED: Final = ProblemKind(
    "origin-refused", 403, "Requests from other web pages are refused"
)
PEERS_ONLY: Final = ProblemKind("peers-only", 403, "Only instances of the service may send this")
UNAUTHENTICATED: Final = ProblemKind("unauthenticated", 401, "The request is not authenticated")
FORBIDDEN: Final = ProblemKind("role-missing", 403, "A required role is missing")
NOT_FOUND: Final = ProblemKind("not-found", 404, "There is nothing at this path")
MANAGED_BY_FILE: Final = ProblemKind("managed-by-file", 403, "Settings are managed by the file")
NO_SUCH_ROUTE: Final = ProblemKind("no-such-route", 404, "There is no route with this name")
NO_SUCH_PATTERN: Final = ProblemKind("no-such-pattern", 404, "No address setting has this pattern")
NO_SUCH_REVISION: Final = ProblemKind("no-such-revision", 404, "The revision is not available")
EXISTS: Final = ProblemKind("already-exists", 412, "The document already exists")
STALE: Final = ProblemKind("stale", 412, "The document has changed")
MATCH_REQUIRED: Final = ProblemKind("match-required", 428, "The change needs If-Match")
NEEDS_FORCE: Final = ProblemKind("needs-force", 422, "The change would discard remembered ids")
BREAKS_RULES: Final = ProblemKind("invalid-settings", 422, "The new settings are not valid")
NO_DEAD_LETTER: Final = ProblemKind("no-dead-letter", 404, "There is no such dead letter")
NO_RECORD: Final = ProblemKind("no-record", 404, "There is no such record")
NO_REDRIVE: Final = ProblemKind("no-redrive", 404, "There is no such redrive")
NAME_IN_USE: Final = ProblemKind("name-in-use", 409, "The name is in use by another user")
NOT_POSSIBLE: Final = ProblemKind("not-possible", 422, "The request cannot be carried out")
METHOD_NOT_ALLOWED: Final = ProblemKind(
    "method-not-allowed", 405, "The resource does not support the method"
)
KEY_IN_PROGRESS: Final = ProblemKind(
    "idempotency-in-progress", 409, "The first request is still running"
)
TOO_SLOW: Final = ProblemKind("body-too-slow", 408, "The body did not arrive in time")
TOO_LARGE: Final = ProblemKind("body-too-large", 413, "The body is too large")
UNSUPPORTED: Final = ProblemKind(
    "unsupported-media-type", 415, "The media type of the body is not supported"
)
KEY_REUSED: Final = ProblemKind(
    "idempotency-key-reused", 422, "The key was used for another request"
)
TOO_MANY_FAILURES: Final = ProblemKind(
    "too-many-failures", 429, "Too many failed attempts to authenticate"
)
WRONG_HOST: Final = ProblemKind("wrong-host", 421, "The service does not accept this host name")
INVALID: Final = ProblemKind("invalid-request", 422, "A part of the request is not valid")
INTERNAL: Final = ProblemKind("internal-error", 500, "The service failed")
UNAVAILABLE: Final = ProblemKind("unavailable", 503, "The service cannot respond now")
NOT_AUDITED: Final = ProblemKind("audit-unavailable", 503, "The audit log cannot be written")
UNHEALTHY: Final = ProblemKind("unhealthy", 503, "A health check fails")


class ProblemExtras(NamedTuple):
    """Members of a problem beyond those of RFC 9457."""

    errors: tuple[FieldError, ...] | None = None
    checks: tuple[Check, ...] | None = None
    missing_role: str | None = None
    absence: str | None = None


NO_EXTRAS: Final = ProblemExtras()


class ProblemError(Exception):
    """A request is refused: the problem type, what happened, and what to do next."""

    def __init__(
        self,
        kind: ProblemKind,
        detail: str,
        *,
        extras: ProblemExtras = NO_EXTRAS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.extras = extras
        self.headers = headers


def pointer(*steps: str | int) -> str:
    """Return a JSON Pointer into the request (RFC 6901)."""
    return "".join(f"/{str(each).replace('~', '~0').replace('/', '~1')}" for each in steps)


_TRACE_ID: Final = "ringfence.trace_id"


def set_trace_id(scope: Scope, trace_id: str) -> None:
    """Store the request id, for problems and the log."""
    scope[_TRACE_ID] = trace_id


def trace_id(scope: Scope) -> str:
    """Return the request id."""
    return str(scope[_TRACE_ID])


def problem_response(
    kind: ProblemKind,
    detail: str,
    scope: Scope,
    *,
    extras: ProblemExtras = NO_EXTRAS,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem as a response."""
    problem = Problem(
        type=TYPE_PREFIX + kind.name,
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance=str(scope["path"]),
        trace_id=trace_id(scope),
        errors=extras.errors,
        checks=extras.checks,
        missing_role=extras.missing_role,
        absence=extras.absence,
    )
    document = problem.model_dump(mode="json", exclude_none=True)
    # The request may contain unpaired surrogates, which UTF-8 cannot encode.
    body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status_code=kind.status, headers=headers, media_type=MEDIA_TYPE)


def on_http_error(request: Request, error: HTTPException) -> Response:
    """Respond to an error of the router: an unknown path, or a body that cannot be read."""
    if error.status_code == MALFORMED.status:
        return problem_response(MALFORMED, str(error.detail), request.scope)
    detail = "There is nothing at this path; /openapi.json lists all paths."
    return problem_response(NOT_FOUND, detail, request.scope)


def on_refusal(request: Request, refusal: ProblemError) -> Response:
    """Respond to a request that a resource refuses."""
    return problem_response(
        refusal.kind,
        refusal.detail,
        request.scope,
        extras=refusal.extras,
        headers=refusal.headers,
    )


def on_name_in_use(request: Request, error: NameInUse) -> Response:
    """Respond to a request for a name that another user has."""
    return problem_response(NAME_IN_USE, str(error), request.scope)


def on_not_possible(request: Request, error: NotPossible) -> Response:
    """Respond to a request that the loop cannot carry out."""
    return problem_response(NOT_POSSIBLE, str(error), request.scope)


_REPORTED_MAX: Final = 100
"""Errors of one request that are reported; each repeats a path of up to some hundred bytes."""


def on_invalid(request: Request, error: RequestValidationError) -> Response:
    """Respond to an invalid request, with a JSON Pointer for each error."""
    faults = tuple(
        FieldError(
            pointer=pointer(*fault["loc"]),
            detail=str(fault["msg"]).removeprefix("Value error, "),
            code=str(fault["type"]),
        )
        for fault in error.errors()[:_REPORTED_MAX]
    )
    detail = " ".join(f"{fault.pointer}: {fault.detail}" for fault in faults)
    return problem_response(INVALID, detail, request.scope, extras=ProblemExtras(errors=faults))


def on_unavailable(request: Request, error: Unavailable) -> Response:
    """Respond to a request that the loop cannot answer now."""
    return try_later(error, request.scope)


def try_later(error: Unavailable, scope: Scope, kind: ProblemKind = UNAVAILABLE) -> Response:
    """Return a temporary problem, with `Retry-After`."""
    headers = {"Retry-After": str(error.retry_after_s)}
    return problem_response(kind, str(error), scope, headers=headers)
