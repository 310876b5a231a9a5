"""Restart series: how long a group with millions of ids takes until it decides again.

It starts in three situations: its disk is warm, cold, or lost. The ring is loaded on first use, so
`/readyz` is not everything: once it returns ok, a record is sent and its verdict awaited.
"""

import shutil
import time
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, Stage, running
from bench.asking import ask_json, await_ready
from bench.finding import Figure, Finding, Row
from bench.machine import MIB, drop_cached, memory
from bench.results import Spread
from bench.series.held import largest
from bench.session import Session
from bench.workload import Workload

_ONE_PARTITION: Final = Workload(partitions=1)
_NOTICEABLE_S: Final = 1.0
"""The time to join the group varies by half a second."""
_READY: Final = "seconds until ready"
_FIRST: Final = "then, seconds to the first verdict"


class Start(NamedTuple):
    """One start: from the process to `/readyz` ok, then from a record to its verdict."""

    ready_s: float
    first_s: float
    restored_records: int
    peak_bytes: int


def restore(session: Session) -> Finding:
    """Measure every kind of start, on the group with the most ids."""
    session.say("restore: a group with full rings is needed first")
    group = session.groups.filled(largest(session))
    folder = group.stage.folder / "state"
    bare = [_bare(session) for _ in range(session.rounds)]
    starts = {
        "disk warm": _started(session, group.stage),
        "disk cold": _started(session, group.stage, lambda: drop_cached(folder)),
        "disk gone": _started(session, group.stage, lambda: shutil.rmtree(folder)),
    }
    rows = [_row("1 id", bare)]
    rows += [_row(f"{kind}, {group.ids_held:,} ids", [start]) for kind, start in starts.items()]
    gone_s = starts["disk gone"].ready_s - Spread.of(start.ready_s for start in bare).median
    restored_per_s = group.ids_held / gone_s if gone_s > _NOTICEABLE_S else None
    rows[-1] = {**rows[-1], "ids restored a second": restored_per_s}
    title = f"Start of a group that holds {group.ids_held:,} ids in one ring"
    figure = Figure(title, "start", [_READY, _FIRST], "seconds", bars=True)
    return Finding(title, {"ids": group.ids_held, "partitions": 1}, rows, [figure])


def _bare(session: Session) -> Start:
    """Restart a group that holds a single id."""
    source = f"bare-{uuid.uuid4().hex[:8]}"
    session.venue.create(source, 1)
    with session.venue.stage(RINGFENCE, source, 1) as stage:
        _started(session, stage)
        return _started(session, stage)


def _started(session: Session, stage: Stage, prepare: Callable[[], object] = lambda: None) -> Start:
    prepare()
    started_s = time.monotonic()
    with running(RINGFENCE, stage) as one:
        await_ready(stage, one.check)
        ready_s = time.monotonic() - started_s
        (partition,) = ask_json(stage, "/v1/partitions?scope=instance")["partitions"]
        sent_s, end = time.monotonic(), session.venue.append(stage.input)
        for point in session.venue.follow(stage, _ONE_PARTITION, one.check, end):
            first_s = point.at_s - sent_s
        used = memory(one.pid)
    session.say(f"a start: ready after {ready_s:.1f} s, first verdict {first_s:.1f} s later")
    return Start(ready_s, first_s, partition["restored_records"], used.peak)


def _row(name: str, starts: list[Start]) -> Row:
    return {
        "start": name,
        _READY: Spread.of(start.ready_s for start in starts),
        _FIRST: Spread.of(start.first_s for start in starts),
        "changelog records replayed": max(start.restored_records for start in starts),
        "peak memory, MiB": Spread.of(start.peak_bytes / MIB for start in starts),
    }
