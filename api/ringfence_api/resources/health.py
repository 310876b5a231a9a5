"""Health: `/livez`, `/startupz`, `/readyz`, and `/metrics`.

The probes run on the event loop of the server and read only the status board, so that slow queries
cannot delay them. Metrics are collected from every process, within a second. The supervisor
replaces a silent worker; `/livez` fails only if that does not happen in time. Without a token, the
responses name no other system.
"""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import PlainTextResponse, Response

from ringfence_api.openapi import errors
from ringfence_api.ports import ServiceView, StatusPort
from ringfence_api.principal import principal_of
from ringfence_api.problems import UNHEALTHY, Check, ProblemExtras, problem_response
from ringfence_service.config.tokens import LEVELS
from ringfence_service.errors import missing_inputs
from ringfence_service.queries.status import ServiceStatus
from ringfence_service.telemetry.metrics import CONTENT_TYPE

Verbose = Annotated[
    bool,
    Query(description="Return all checks; `?verbose` without a value is enough."),
    BeforeValidator(lambda text: True if text == "" else text),
]


class Health(BaseModel):
    """All checks pass."""

    model_config = ConfigDict(frozen=True)

    status: Literal["ok"] = Field(
        default="ok",
        description="Always `ok`; if a check fails, the response is a problem with status 503.",
    )
    checks: tuple[Check, ...] | None = Field(
        default=None,
        description="All checks and their results with `verbose`; otherwise those that pass and "
        "still report something: partitions that wait while others are decided.",
    )


_ELSEWHERE: Final = (
    "another system; see the log of this service, or /readyz with a token of the role viewer"
)
_SENTENCES_MAX: Final = 5
"""How many causes one response names."""

SILENT_MS_MAX: Final = 4_000
"""`/readyz` fails when a heartbeat is older: the loop is blocked in a call."""


def router(view: ServiceView) -> APIRouter:
    """Build the router for the health checks and metrics."""
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/livez",
        response_model=Health,
        response_model_exclude_none=True,
        responses=errors(UNHEALTHY),
    )
    async def livez(request: Request, *, verbose: Verbose = False) -> Health | Response:
        """Check whether the loop is alive: its last heartbeat is recent."""
        return _respond(request, (_loop_check(view),), verbose=verbose)

    @routes.get(
        "/startupz",
        response_model=Health,
        response_model_exclude_none=True,
        responses=errors(UNHEALTHY),
    )
    async def startupz(request: Request, *, verbose: Verbose = False) -> Health | Response:
        """Check whether the service has joined its group since it started.

        An instance that makes standby copies before it joins has started too.
        """
        return _respond(request, (_begin_check(view.board),), verbose=verbose)

    @routes.get(
        "/readyz",
        response_model=Health,
        response_model_exclude_none=True,
        responses=errors(UNHEALTHY),
    )
    async def readyz(request: Request, *, verbose: Verbose = False) -> Health | Response:
        """Check whether the service processes records: joined, restored, and not waiting.

        Partitions and inputs that wait while others are read are reported, and do not fail it.
        """
        checks = _ready_checks(view, by_name=_may_read(request))
        return _respond(request, checks, verbose=verbose)

    @routes.get("/metrics", response_class=PlainTextResponse, responses=errors())
    async def metrics(request: Request) -> Response:
        """Return the metrics in Prometheus' text format.

        Addresses are merged unless the client is a viewer or the configuration allows them.
        """
        is_public = view.access is not None and view.access.settings.metrics_addresses
        scraped = await view.metrics.scrape(addresses=is_public or _may_read(request))
        return Response(scraped, media_type=CONTENT_TYPE)

    return routes


def _may_read(request: Request) -> bool:
    return principal_of(request).may(LEVELS[0])


def _respond(request: Request, checks: tuple[Check, ...], *, verbose: bool) -> Health | Response:
    failed = tuple(check for check in checks if not check.ok)
    if not failed:
        noted = tuple(check for check in checks if check.name in _NOTED)
        return Health(checks=checks if verbose else noted or None)
    return problem_response(
        UNHEALTHY,
        " ".join(_sentence(check.detail) for check in failed),
        request.scope,
        extras=ProblemExtras(checks=checks if verbose else failed),
        headers={"Retry-After": "1"},
    )


def _sentence(detail: str) -> str:
    return detail if detail.endswith(".") else f"{detail}."


def _ready_checks(view: ServiceView, *, by_name: bool) -> tuple[Check, ...]:
    status = view.board.read()
    return (
        _turn_check(view.board),
        _start_check(view.board),
        _stop_check(status),
        _broker_check(status, by_name=by_name),
        _state_check(status),
        *_blocked_check(status, by_name=by_name),
    )


def _loop_check(view: ServiceView) -> Check:
    age_ms = view.board.heartbeat_age_ms()
    detail = (
        f"The loop's last heartbeat was {age_ms} ms ago; the limit is {view.heartbeat_max_ms} ms."
    )
    return Check(name="loop", ok=age_ms <= view.heartbeat_max_ms, detail=detail)


def _turn_check(board: StatusPort) -> Check:
    """Check that the loop is not blocked: a call into the Kafka client may exceed its timeout."""
    age_ms = board.heartbeat_age_ms()
    detail = f"The loop's last heartbeat was {age_ms} ms ago."
    if age_ms > SILENT_MS_MAX:
        detail = (
            f"The loop has been blocked for {age_ms // 1000} s, usually in a call to the broker."
        )
    return Check(name="loop", ok=age_ms <= SILENT_MS_MAX, detail=detail)


def _begin_check(board: StatusPort) -> Check:
    check = _start_check(board)
    return check.model_copy(update={"ok": check.ok or bool(board.read().standbys)})


def _start_check(board: StatusPort) -> Check:
    joined, status = board.has_run(), board.read()
    detail = "The group is joined." if joined else "The group is not joined yet."
    if status.standbys and not joined:
        detail = (
            "The group is joined once the standby copies are up to date: "
            f"{status.standbys_cold} of {len(status.standbys)} are not."
        )
    return Check(name="assignment", ok=joined, detail=detail)


def _stop_check(status: ServiceStatus) -> Check:
    stopping = status.phase == "stopping"
    detail = "The service is stopping." if stopping else "The service is not stopping."
    return Check(name="stop", ok=not stopping, detail=detail)


def _broker_check(status: ServiceStatus, *, by_name: bool) -> Check:
    """Check that the service does not wait; the details name brokers, topics and users."""
    waiting = status.phase == "waiting"
    sentence = f"Waiting for {(by_name and status.waiting_for) or _ELSEWHERE}"
    detail = sentence if waiting else "The service is not waiting."
    return Check(name="broker", ok=not waiting, detail=detail)


def _state_check(status: ServiceStatus) -> Check:
    behind = [each for each in status.partitions if each.phase != "running"]
    remaining = sum(each.restore_remaining_records or 0 for each in behind)
    detail = f"All {len(status.partitions)} owned partitions are restored."
    if behind:
        detail = (
            f"Not restored: {len(behind)} of {len(status.partitions)} owned partitions;"
            f" {remaining} changelog records remain."
        )
    return Check(name="state", ok=not behind, detail=detail)


_BLOCKED: Final = "routes"

_NOTED: Final = frozenset({_BLOCKED})
"""Checks that are part of the response although they pass."""


def _blocked_check(status: ServiceStatus, *, by_name: bool) -> Iterator[Check]:
    """Yield what some routes wait for while others are decided; nothing if no route waits.

    It does not fail: a proxy, or the update of a StatefulSet, would hold the instance back that
    decides all other routes, and another instance would wait for the same.
    """
    waiting = [each for each in status.partitions if each.waiting_for is not None]
    sentences = sorted({each.waiting_for for each in waiting if each.waiting_for is not None})
    sentences += [missing_inputs(name) for name in status.inputs_missing]
    if not sentences:
        return
    count = f"{len(waiting)} of {len(status.partitions)} owned partitions wait, others go on; "
    what = "; ".join(sentences[:_SENTENCES_MAX]) if by_name else _ELSEWHERE
    yield Check(name=_BLOCKED, ok=True, detail=f"{count}waiting for {what}")
