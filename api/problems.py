"""Problems: every error that the API answers, as `application/problem+json` (RFC 9457).

Invariant: a problem holds no stack, no secret and nothing that the client sent beyond the path.
`type` is stable; `title` says what the type means, `detail` what happened this time and what to
do next.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from service.control import Unavailable

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:ringfence:problem:"


class FieldError(BaseModel):
    """One fault in one part of the request."""

    model_config = ConfigDict(frozen=True)

    pointer: str = Field(description="JSON Pointer into the request: /path/…, /query/….")
    detail: str
    code: str


class Check(BaseModel):
    """One condition of health."""

    model_config = ConfigDict(frozen=True)

    name: str
    ok: bool
    detail: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(description="A stable URN that names the kind of error.")
    title: str
    status: int
    detail: str = Field(description="What happened, and what to do next.")
    instance: str = Field(description="The path that was asked for.")
    trace_id: str = Field(description="As in the header X-Request-Id, and in our log.")
    errors: tuple[FieldError, ...] | None = Field(default=None, description="With status 422.")
    checks: tuple[Check, ...] | None = Field(default=None, description="From the health checks.")


class Kind(NamedTuple):
    """A kind of problem."""

    name: str
    status: int
    title: str


MALFORMED: Final = Kind("malformed-request", 400, "The request cannot be read")
ORIGIN_REFUSED: Final = Kind("origin-refused", 403, "Requests of other web pages are refused")
NOT_FOUND: Final = Kind("not-found", 404, "There is nothing at this path")
METHOD_NOT_ALLOWED: Final = Kind("method-not-allowed", 405, "The resource has no such method")
WRONG_HOST: Final = Kind("wrong-host", 421, "The service does not answer to this host name")
INVALID: Final = Kind("invalid-request", 422, "A part of the request is not valid")
INTERNAL: Final = Kind("internal-error", 500, "The service failed")
UNAVAILABLE: Final = Kind("unavailable", 503, "The service cannot answer now")
UNHEALTHY: Final = Kind("unhealthy", 503, "A health check fails")


class Extras(NamedTuple):
    """Members of a problem beyond those of RFC 9457."""

    errors: tuple[FieldError, ...] | None = None
    checks: tuple[Check, ...] | None = None


NO_EXTRAS: Final = Extras()

_TRACE_ID: Final = "ringfence.trace_id"


def set_trace_id(scope: Scope, trace_id: str) -> None:
    """Name the request, for its problems and for the log."""
    scope[_TRACE_ID] = trace_id


def problem_response(
    kind: Kind,
    detail: str,
    scope: Scope,
    *,
    extras: Extras = NO_EXTRAS,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem as a response."""
    problem = Problem(
        type=TYPE_PREFIX + kind.name,
        title=kind.title,
        status=kind.status,
        detail=detail,
        instance=str(scope["path"]),
        trace_id=str(scope[_TRACE_ID]),
        errors=extras.errors,
        checks=extras.checks,
    )
    body = problem.model_dump_json(exclude_none=True)
    return Response(body, status_code=kind.status, headers=headers, media_type=MEDIA_TYPE)


def on_http_error(request: Request, error: HTTPException) -> Response:
    """Answer what the router refuses: an unknown path, or a method that a resource has not."""
    if error.status_code == METHOD_NOT_ALLOWED.status:
        detail = "The resource has the methods GET and HEAD; see /openapi.json."
        allow = {"Allow": "GET, HEAD"}
        return problem_response(METHOD_NOT_ALLOWED, detail, request.scope, headers=allow)
    detail = "Nothing is at this path; /openapi.json names the paths there are."
    return problem_response(NOT_FOUND, detail, request.scope)


def on_invalid(request: Request, error: RequestValidationError) -> Response:
    """Answer a request whose parts are not valid: each fault with its place."""
    faults = tuple(
        FieldError(
            pointer="/" + "/".join(str(step) for step in fault["loc"]),
            detail=str(fault["msg"]).removeprefix("Value error, "),
            code=str(fault["type"]),
        )
        for fault in error.errors()
    )
    detail = " ".join(f"{fault.pointer}: {fault.detail}" for fault in faults)
    return problem_response(INVALID, detail, request.scope, extras=Extras(errors=faults))


def on_unavailable(request: Request, error: Unavailable) -> Response:
    """Answer a question that the loop could not answer now."""
    headers = {"Retry-After": str(error.retry_after_s)}
    return problem_response(UNAVAILABLE, str(error), request.scope, headers=headers)
