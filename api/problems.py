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

from service.queries.errors import NameInUse, NotPossible, Unavailable

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:ringfence:problem:"


class FieldError(BaseModel):
    """One fault in one part of the request."""

    model_config = ConfigDict(frozen=True)

    pointer: str = Field(description="JSON Pointer into the request: /path/…, /query/….")
    detail: str = Field(description="What is wrong with it.")
    code: str = Field(description="The kind of fault.")


class Check(BaseModel):
    """One condition of health."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="The name of the check.")
    ok: bool = Field(description="Whether it holds.")
    detail: str = Field(description="What it has found, and what to do.")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(description="A stable URN that names the kind of error.")
    title: str = Field(description="The kind of error, in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What happened, and what to do next.")
    instance: str = Field(description="The path that was asked for.")
    trace_id: str = Field(description="As in the header X-Request-Id, and in our log.")
    errors: tuple[FieldError, ...] | None = Field(default=None, description="With status 422.")
    checks: tuple[Check, ...] | None = Field(default=None, description="From the health checks.")
    missing_role: str | None = Field(default=None, description="With `role-missing`.")


class ProblemKind(NamedTuple):
    """A kind of problem."""

    name: str
    status: int
    title: str


MALFORMED: Final = ProblemKind("malformed-request", 400, "The request cannot be read")
ORIGIN_REFUSED: Final = ProblemKind(
    "origin-refused", 403, "Requests of other web pages are refused"
)
PEERS_ONLY: Final = ProblemKind("peers-only", 403, "Only instances of the service may ask this")
UNAUTHENTICATED: Final = ProblemKind(
    "unauthenticated", 401, "The request does not say who makes it"
)
FORBIDDEN: Final = ProblemKind("role-missing", 403, "You lack a role")
NOT_FOUND: Final = ProblemKind("not-found", 404, "There is nothing at this path")
MANAGED_BY_FILE: Final = ProblemKind(
    "managed-by-file", 403, "Settings are changed in the file here"
)
NO_SUCH_ROUTE: Final = ProblemKind("no-such-route", 404, "There is no route of this name")
NO_SUCH_PATTERN: Final = ProblemKind("no-such-pattern", 404, "No address setting has this pattern")
NO_SUCH_REVISION: Final = ProblemKind("no-such-revision", 404, "No such revision is kept")
EXISTS: Final = ProblemKind("already-exists", 412, "There is one already")
STALE: Final = ProblemKind("stale", 412, "The document is another by now")
MATCH_REQUIRED: Final = ProblemKind(
    "match-required", 428, "The change does not say what it changes"
)
NEEDS_FORCE: Final = ProblemKind("needs-force", 422, "What is remembered would be forgotten")
BREAKS_RULES: Final = ProblemKind("invalid-settings", 422, "What is to be set breaks a rule")
NO_DEAD_LETTER: Final = ProblemKind("no-dead-letter", 404, "There is no such dead letter")
NO_REDRIVE: Final = ProblemKind("no-redrive", 404, "There is no such redrive")
NAME_IN_USE: Final = ProblemKind("name-in-use", 409, "Another user has the name")
NOT_POSSIBLE: Final = ProblemKind("not-possible", 422, "This cannot be done")
METHOD_NOT_ALLOWED: Final = ProblemKind(
    "method-not-allowed", 405, "The resource has no such method"
)
KEY_IN_PROGRESS: Final = ProblemKind("idempotency-in-progress", 409, "The first request still runs")
TOO_LARGE: Final = ProblemKind("body-too-large", 413, "The body is larger than the service takes")
UNSUPPORTED: Final = ProblemKind(
    "unsupported-media-type", 415, "The body is of a kind that is not taken"
)
KEY_REUSED: Final = ProblemKind(
    "idempotency-key-reused", 422, "The key was used for another request"
)
TOO_MANY_FAILURES: Final = ProblemKind("too-many-failures", 429, "Too many requests were refused")
WRONG_HOST: Final = ProblemKind("wrong-host", 421, "The service does not answer to this host name")
INVALID: Final = ProblemKind("invalid-request", 422, "A part of the request is not valid")
INTERNAL: Final = ProblemKind("internal-error", 500, "The service failed")
UNAVAILABLE: Final = ProblemKind("unavailable", 503, "The service cannot answer now")
NOT_AUDITED: Final = ProblemKind("audit-unavailable", 503, "What is not recorded is not done")
UNHEALTHY: Final = ProblemKind("unhealthy", 503, "A health check fails")


class ProblemExtras(NamedTuple):
    """Members of a problem beyond those of RFC 9457."""

    errors: tuple[FieldError, ...] | None = None
    checks: tuple[Check, ...] | None = None
    missing_role: str | None = None


NO_EXTRAS: Final = ProblemExtras()


class ProblemError(Exception):
    """A resource says no: the kind of problem, what happened, and what to do next."""

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
    """A JSON Pointer into the request (RFC 6901)."""
    return "".join(f"/{str(each).replace('~', '~0').replace('/', '~1')}" for each in steps)


_TRACE_ID: Final = "ringfence.trace_id"


def set_trace_id(scope: Scope, trace_id: str) -> None:
    """Name the request, for its problems and for the log."""
    scope[_TRACE_ID] = trace_id


def trace_id(scope: Scope) -> str:
    """The name of the request."""
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
    )
    told = problem.model_dump(mode="json", exclude_none=True)
    # What was sent may hold half of a character, which no text in UTF-8 does.
    body = json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status_code=kind.status, headers=headers, media_type=MEDIA_TYPE)


def on_http_error(request: Request, error: HTTPException) -> Response:
    """Answer what the router refuses: an unknown path, or a body that cannot be read."""
    if error.status_code in {MALFORMED.status, TOO_LARGE.status}:
        kind = MALFORMED if error.status_code == MALFORMED.status else TOO_LARGE
        return problem_response(kind, str(error.detail), request.scope)
    detail = "Nothing is at this path; /openapi.json names the paths there are."
    return problem_response(NOT_FOUND, detail, request.scope)


def on_refusal(request: Request, refusal: ProblemError) -> Response:
    """Answer what a resource refuses."""
    return problem_response(
        refusal.kind,
        refusal.detail,
        request.scope,
        extras=refusal.extras,
        headers=refusal.headers,
    )


def on_name_in_use(request: Request, error: NameInUse) -> Response:
    """Answer who asks for a name that another has."""
    return problem_response(NAME_IN_USE, str(error), request.scope)


def on_not_possible(request: Request, error: NotPossible) -> Response:
    """Answer a change that the loop cannot make."""
    return problem_response(NOT_POSSIBLE, str(error), request.scope)


def on_invalid(request: Request, error: RequestValidationError) -> Response:
    """Answer a request whose parts are not valid: each fault with its place."""
    faults = tuple(
        FieldError(
            pointer=pointer(*fault["loc"]),
            detail=str(fault["msg"]).removeprefix("Value error, "),
            code=str(fault["type"]),
        )
        for fault in error.errors()
    )
    detail = " ".join(f"{fault.pointer}: {fault.detail}" for fault in faults)
    return problem_response(INVALID, detail, request.scope, extras=ProblemExtras(errors=faults))


def on_unavailable(request: Request, error: Unavailable) -> Response:
    """Answer a question that the loop could not answer now."""
    return try_later(error, request.scope)


def try_later(error: Unavailable, scope: Scope, kind: ProblemKind = UNAVAILABLE) -> Response:
    """Return a problem that passes."""
    headers = {"Retry-After": str(error.retry_after_s)}
    return problem_response(kind, str(error), scope, headers=headers)
