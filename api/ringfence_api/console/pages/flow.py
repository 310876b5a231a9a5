"""Flow page, the start page: the records that the service processes now, and in the last hour."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ringfence_api.console.charts import Chart, chart, time_marks, tooltip
from ringfence_api.console.client import ConsoleClient
from ringfence_api.console.history import History, HistoryPoint
from ringfence_api.console.render import page, shows_problems
from ringfence_service import formatting as words

_ACCEPTED: Final = ("Accepted", "accepted")
_DUPLICATES: Final = ("Duplicates", "duplicates")


def add(routes: APIRouter, history: History) -> None:
    """Add the routes of the page."""

    @routes.get("/console", include_in_schema=False)
    @routes.get("/console/", include_in_schema=False)
    async def home() -> Response:
        """Redirect to the start page."""
        return RedirectResponse("/")

    @routes.get("/")
    @shows_problems("flow")
    async def flow(request: Request) -> Response:
        """Show the current flow of records."""
        api = ConsoleClient(request)
        status = (await api.get("/v1/status")).required()
        workers = (await api.get("/v1/workers")).document.get("workers", ())
        partitions = (await api.get("/v1/partitions")).document.get("partitions", ())
        now_s = time.time()
        span_s = history.span_s(now_s)
        instances = (await api.get("/v1/instances")).document.get("instances", ())
        points = history.points(now_s, span_s)
        return await page(
            request,
            "flow.html",
            section="flow",
            status_now=status,
            workers=workers,
            partitions=partitions,
            instances=instances,
            last=history.last() or HistoryPoint(0.0),
            is_failing=history.is_failing,
            main=main_chart(points),
            charts=small_charts(points),
            span=words.duration(span_s * 1000),
            marks=time_marks([each.until_s for each in points]),
        )


def main_chart(points: Sequence[HistoryPoint]) -> Chart:
    """Draw accepted records and duplicates."""
    tooltips = [
        _tooltip(
            each,
            f"{words.rate(each.accepted)}/s accepted, {words.rate(each.duplicates)}/s duplicates",
        )
        for each in points
    ]
    series = [
        (*_ACCEPTED, [p.accepted for p in points]),
        (*_DUPLICATES, [p.duplicates for p in points]),
    ]
    return chart(
        "Records, /s", _summary("Accepted", points, lambda p: p.accepted), series, tooltips, 1.0
    )


def small_charts(points: Sequence[HistoryPoint]) -> list[tuple[Chart, Callable[[float], str]]]:
    """Draw dead letters, lag and latency, each with the format of its scale."""
    letters = chart(
        "Dead letters, /s",
        _summary("Dead letters", points, lambda p: p.dead_letters),
        [
            ("Duplicates", "duplicates", [p.repeats for p in points]),
            ("Others", "bad", [p.faults for p in points]),
        ],
        [
            _tooltip(
                each, f"{words.rate(each.repeats)}/s duplicates, {words.rate(each.faults)}/s others"
            )
            for each in points
        ],
        1.0,
    )
    lag = chart(
        "Lag, records",
        _summary("Lag", points, lambda p: p.lag_records),
        [("Lag", "accepted", [p.lag_records for p in points])],
        [_tooltip(each, f"{words.number(each.lag_records)} records") for each in points],
        10.0,
    )
    latency = chart(
        "Latency",
        _summary("Latency's 99th percentile, in seconds,", points, lambda p: p.latency_p99_s),
        [
            ("p99", "duplicates", [p.latency_p99_s for p in points]),
            ("p50", "accepted", [p.latency_p50_s for p in points]),
        ],
        [
            _tooltip(
                each,
                f"p50 {words.seconds(each.latency_p50_s)}, p99 {words.seconds(each.latency_p99_s)}",
            )
            for each in points
        ],
        0.1,
    )
    return [(letters, words.short), (lag, words.short), (latency, words.seconds)]


def _tooltip(point: HistoryPoint, text: str) -> str:
    return tooltip(point.until_s, "no samples" if point.consumed is None else text)


def _summary(
    name: str, points: Sequence[HistoryPoint], value: Callable[[HistoryPoint], float | None]
) -> str:
    known = [each for each in map(value, points) if each is not None]
    if not known:
        return "No samples yet."
    return f"{name} reached {words.rate(max(known))} and is now {words.rate(known[-1])}."
