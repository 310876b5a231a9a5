"""Health: `/livez`, `/startz`, `/readyz`, and `/metrics`.

The probes run on the server's own event loop and read the board only, so that no slow query keeps
them from answering. The metrics are collected from every process, within a second. The supervisor
replaces a silent loop; `/livez` fails only when that has not happened in time. Without a token the
answers name no other system.
"""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import PlainTextResponse, Response

from api.openapi import errors
from api.ports import ServiceView, StatusPort
from api.principal import principal_of
from api.problems import UNHEALTHY, Check, ProblemExtras, problem_response
from service.config.tokens import LEVELS
from service.queries.status import ServiceStatus
from service.telemetry.metrics import CONTENT_TYPE

Verbose = Annotated[
    bool,
    Query(description="List every check; `?verbose` alone is enough."),
    BeforeValidator(lambda text: True if text == "" else text),
]


class Health(BaseModel):
    """All checks hold."""

    model_config = ConfigDict(frozen=True)

    status: Literal["ok"] = Field(
        default="ok", description="Always `ok`; a check that fails is a problem with status 503."
    )
    checks: tuple[Check, ...] | None = Field(
        default=None, description="The checks, each with what it has found."
    )


SILENT_MS_MAX: Final = 4_000
"""A loop that is silent for longer decides nothing, whatever it is that does not return."""


def router(view: ServiceView) -> APIRouter:
    """Return the routes of health and metrics."""
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/livez",
        response_model=Health,
        response_model_exclude_none=True,
        responses=errors(UNHEALTHY),
    )
    async def livez(request: Request, *, verbose: Verbose = False) -> Health | Response:
        """Tell whether the loop is alive: its heartbeat is recent."""
        return _answer(request, (_loop_check(view),), verbose=verbose)

    @routes.get(
        "/startupz",
        response_model=Health,
        response_model_exclude_none=True,
        responses=errors(UNHEALTHY),
    )
    async def startupz(request: Request, *, verbose: Verbose = False) -> Health | Response:
        """Tell whether the service has joined its group since it started."""
        return _answer(request, (_start_check(view.board),), verbose=verbose)

    @routes.get(
        "/readyz",
        response_model=Health,
        response_model_exclude_none=True,
        responses=errors(UNHEALTHY),
    )
    async def readyz(request: Request, *, verbose: Verbose = False) -> Health | Response:
        """Tell whether the service decides: joined, restored, waiting for nothing."""
        checks = _ready_checks(view, by_name=_may_read(request))
        return _answer(request, checks, verbose=verbose)

    @routes.get("/metrics", response_class=PlainTextResponse, responses=errors())
    async def metrics(request: Request) -> Response:
        """Return the metrics in Prometheus' text format; to strangers without addresses."""
        told_all = view.access is not None and view.access.settings.metrics_addresses
        scraped = await view.metrics.scrape(addresses=told_all or _may_read(request))
        return Response(scraped, media_type=CONTENT_TYPE)

    return routes


def _may_read(request: Request) -> bool:
    return principal_of(request).may(LEVELS[0])


def _answer(request: Request, checks: tuple[Check, ...], *, verbose: bool) -> Health | Response:
    failed = tuple(check for check in checks if not check.ok)
    if not failed:
        return Health(checks=checks if verbose else None)
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
    )


def _loop_check(view: ServiceView) -> Check:
    age_ms = view.board.heartbeat_age_ms()
    detail = (
        f"The loop's last heartbeat was {age_ms} ms ago; the limit is {view.heartbeat_max_ms} ms."
    )
    return Check(name="loop", ok=age_ms <= view.heartbeat_max_ms, detail=detail)


def _turn_check(board: StatusPort) -> Check:
    """A call into the Kafka client may outlast its time, and nobody is told why meanwhile."""
    age_ms = board.heartbeat_age_ms()
    detail = f"The loop's last heartbeat was {age_ms} ms ago."
    if age_ms > SILENT_MS_MAX:
        detail = f"Waiting for {age_ms // 1000} s for a call to return, mostly one to the broker."
    return Check(name="loop", ok=age_ms <= SILENT_MS_MAX, detail=detail)


def _start_check(board: StatusPort) -> Check:
    joined = board.has_run()
    detail = "The group is joined." if joined else "The group is not joined yet."
    return Check(name="assignment", ok=joined, detail=detail)


def _stop_check(status: ServiceStatus) -> Check:
    stopping = status.phase == "stopping"
    detail = "The service is stopping." if stopping else "The service is not stopping."
    return Check(name="stop", ok=not stopping, detail=detail)


def _broker_check(status: ServiceStatus, *, by_name: bool) -> Check:
    """What is waited for has names: of brokers, topics and users."""
    waiting = status.phase == "waiting"
    sentence = f"Waiting for {(by_name and status.waiting_for) or 'what its log says'}"
    if not by_name:
        sentence += ", and what /readyz says to a token with the role viewer"
    detail = sentence if waiting else "The service waits for nothing."
    return Check(name="broker", ok=not waiting, detail=detail)


def _state_check(status: ServiceStatus) -> Check:
    behind = [each for each in status.partitions if each.phase != "running"]
    remaining = sum(each.restore_remaining_records or 0 for each in behind)
    detail = f"All partitions owned are restored: {len(status.partitions)}."
    if behind:
        detail = (
            f"Not restored: {len(behind)} of {len(status.partitions)} partitions owned;"
            f" {remaining} changelog records remain."
        )
    return Check(name="state", ok=not behind, detail=detail)
