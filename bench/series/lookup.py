"""Lookup series: response times of id lookups in a service that holds millions of ids.

The requests are made over HTTP, one id after the other, as an operator would: for the newest and
the oldest of the held ids, and for ids that were never seen. The first request after a start loads
the ring, so it is reported separately.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

from bench.arms import RINGFENCE, Stage, running
from bench.asking import ask, ask_json, await_answer, await_ready
from bench.finding import Figure, Finding, Row
from bench.latency import percentile
from bench.series.held import largest
from bench.session import Session

_EACH: Final = 500
_P50: Final = "p50, ms"
_P99: Final = "p99, ms"
_MAX: Final = "slowest, ms"


def lookup(session: Session) -> Finding:
    """Measure all kinds of requests, on the group with the most ids."""
    session.say("lookup: a group with full rings is needed first")
    group = session.groups.filled(largest(session))
    stage = group.stage
    with running(RINGFENCE, stage) as one:
        await_ready(stage, one.check)
        path = f"/v1/addresses/{quote(stage.address, safe='')}"
        loaded_ms = _timed(lambda: _until_known(stage, path, one.check))
        newest = _ids(stage, f"{path}/ids")
        oldest = _ids(stage, f"{path}/ids:export")
        unknown = [f"never-seen-{number}" for number in range(_EACH)]
        requests: dict[str, Sequence[Callable[[], object]]] = {
            "the newest": [_one(stage, path, each) for each in newest],
            "the oldest": [_one(stage, path, each) for each in oldest],
            "never seen": [_one(stage, path, each) for each in unknown],
            f"{len(oldest)} at once": [_many(stage, path, oldest)] * 10,
            "the address": [lambda: ask(stage, path)] * _EACH,
            "the list of addresses": [lambda: ask(stage, "/v1/addresses?sort=horizon")] * _EACH,
        }
        rows = [
            _row(name, [_timed(request) for request in each]) for name, each in requests.items()
        ]
    session.say(f"{group.ids_held:,} ids held; the first question took {loaded_ms:,.0f} ms")
    for row in rows:
        session.say(f"{row['asked for']}: {row[_P50]:.1f} ms, 99 of 100 in {row[_P99]:.1f} ms")
    title = f"Questions to a ring of {group.ids_held:,} ids"
    figure = Figure(title, "asked for", [_P50, _P99], "milliseconds", bars=True)
    settings = {"ids": group.ids_held, "the first, which loads the ring, ms": round(loaded_ms)}
    return Finding(title, settings, rows, [figure])


def _until_known(stage: Stage, path: str, check: Callable[[], None]) -> None:
    """Retry the first request, which may time out while the ring is loaded."""
    await_answer(lambda: bool(ask(stage, f"{path}/ids/x")), check)


def _ids(stage: Stage, path: str) -> list[str]:
    page = ask_json(stage, f"{path}?page_size={_EACH}")
    return [str(each["id"]) for each in page["ids"]]


def _one(stage: Stage, path: str, identifier: str) -> Callable[[], object]:
    return lambda: ask(stage, f"{path}/ids/{quote(identifier, safe='')}")


def _many(stage: Stage, path: str, ids: Sequence[str]) -> Callable[[], object]:
    url = f"http://127.0.0.1:{stage.api_port}{path}/ids:lookup"
    body = json.dumps({"ids": ids}).encode()

    def post() -> object:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - our own API
            return response.read()

    return post


def _timed(request: Callable[[], object]) -> float:
    started_s = time.monotonic()
    request()
    return (time.monotonic() - started_s) * 1000


def _row(name: str, took_ms: list[float]) -> Row:
    in_order = sorted(took_ms)
    return {
        "asked for": name,
        _P50: percentile(in_order, 0.5),
        _P99: percentile(in_order, 0.99),
        _MAX: in_order[-1],
    }
