"""Horizon series: rate, memory, pauses and starts by the number of ids in one address.

Rings and windows are prefilled, see `bench.prefilled`. Each number of ids is measured with copies
of recent ids, with copies of ids of any age, after a `kill -9`, and with a fifth of the memory.
"""

import math
import os
import signal
import time
import uuid
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import Producer

from bench.arms import RINGFENCE, Stage, running
from bench.asking import await_ready
from bench.finding import Cell, Figure, Finding, Row
from bench.machine import MIB, disk_bytes, memory
from bench.prefilled import prefill, with_far_copies
from bench.progress import Point, pace_from
from bench.session import Session
from bench.workload import FOR_BULK, Message, Workload, messages, produce
from ringfence_service.queries.sizing import memory_bytes
from ringfence_state.cache import FULL
from tools.processes import children_of

IDS: Final = (20_000, 1_000_000, 10_000_000, 100_000_000)
STRETCH: Final = 1_000_000
_FLUSH_S: Final = 120
_WARM: Final = 0.3
"""The part of a stretch that is not counted: the process starts."""
_SHORT: Final = 5
"""By how much the memory is too small in one of the runs."""

_HELD: Final = "ids held"
_NEAR: Final = "messages a second"
_FAR: Final = "with copies of any age"
_LITTLE: Final = "with a fifth of the memory"
_RSS: Final = "resident memory, MiB"
_START: Final = "kill -9 to the first verdict, s"


def horizon(session: Session) -> Finding:
    """Measure one address on one partition with each number of ids."""
    rows: list[Row] = []
    for strategy in ("ring", "window"):
        least = None
        for ids in IDS:
            rows.append(_row(session, strategy, session.scaled(ids), least))
            least = least or rows[-1]
    return Finding(
        "Ids in one address, prefilled",
        {"addresses": 1, "partitions": 1, "records of each run": session.scaled(STRETCH)},
        rows,
        [
            Figure("Rate by ids held", _HELD, [_NEAR, _FAR, _LITTLE], "messages a second"),
            Figure("Memory by ids held", _HELD, [_RSS], "MiB"),
        ],
    )


def _row(session: Session, strategy: str, ids: int, least: Row | None) -> Row:
    venue = session.venue
    workload = Workload(records=session.scaled(STRETCH), partitions=1)
    source = f"horizon-{uuid.uuid4().hex[:8]}"
    venue.create(source, 1)
    is_window = strategy == "window"
    needed_mb = math.ceil(memory_bytes(ids, "native", is_window=is_window) / FULL / MIB)
    setup: dict[str, Any] = {"id_cache_size": ids, "cache_memory_mb": max(needed_mb, 32)}
    setup["strategy"] = strategy
    with venue.stage(RINGFENCE, source, 1, **setup) as stage:
        _first_verdict(session, stage)
        began_s = time.monotonic()
        prefill(stage, ids)
        session.say(f"{ids:,} ids are prefilled in {time.monotonic() - began_s:.0f} s")
        near, pause_ms, used = _decided(session, stage, messages(workload))
        start_s = _first_verdict(session, stage)
        other = workload._replace(seed=2)
        far, _, _ = _decided(session, stage, with_far_copies(other, ids))
        small = stage._replace(cache_memory_mb=max(1, needed_mb // _SHORT))
        little, _, _ = _decided(session, small, messages(workload._replace(seed=3)))
        disk = disk_bytes(stage.folder / "state")
    row: dict[str, Cell] = {
        _HELD: f"{strategy}, {ids:,}",
        _NEAR: near,
        _FAR: far,
        _LITTLE: little,
        _RSS: used / MIB,
        "disk, MiB": disk / MIB,
        "longest time between commits, ms": pause_ms,
        _START: start_s,
    }
    if least is not None:
        for name in (_NEAR, _START):
            row[f"{name.split(',')[0]}, to the fewest ids"] = _ratio(row[name], least[name])
        more = used - float(str(least[_RSS])) * MIB
        row["memory, bytes an id"] = more / (ids - session.scaled(IDS[0]))
    row[f"{_FAR}, to near"] = far / near
    row[f"{_LITTLE}, to enough"] = little / near
    rates = f"{near:,.0f}/s, far copies {far:,.0f}/s"
    session.say(f"{strategy} of {ids:,} ids: {rates}, {used / MIB:,.0f} MiB")
    return row


def _ratio(one: object, other: object) -> float:
    return float(str(one)) / float(str(other))


def _decided(session: Session, stage: Stage, chosen: Iterable[Message]) -> tuple[float, float, int]:
    """Have records decided; return the rate, the longest time between commits, and the memory.

    The process is killed afterwards.
    """
    workload = Workload(partitions=1)
    producer = Producer({**session.venue.client, **FOR_BULK})
    begin = session.venue.append(stage.input)
    produce(producer, workload, stage.input, chosen)
    if producer.flush(_FLUSH_S):
        raise TimeoutError("the broker did not take the records in time")
    end = session.venue.append(stage.input)
    with running(RINGFENCE, stage) as one:
        points = list(session.venue.follow(stage, workload, one.check, end))
        used = memory(one.pid).now
        _kill(one.pid)
    warm = begin + _WARM * (end - begin)
    counted = [point for point in points if point.records >= warm]
    return pace_from(points, warm), _longest_ms(counted), used


def _longest_ms(points: list[Point]) -> float:
    return max((b.at_s - a.at_s) * 1000 for a, b in pairwise(points))


def _first_verdict(session: Session, stage: Stage) -> float:
    """Start a process that was killed; return how long it takes until a record is decided."""
    end, started_s = session.venue.append(stage.input), time.monotonic()
    with running(RINGFENCE, stage) as one:
        for point in session.venue.follow(stage, Workload(partitions=1), one.check, end):
            first_s = point.at_s - started_s
        await_ready(stage, one.check)
        _kill(one.pid)
    return first_s


def _kill(pid: int) -> None:
    for each in (*children_of(pid), pid):
        os.kill(each, signal.SIGKILL)
