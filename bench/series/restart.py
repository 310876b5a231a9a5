"""Restart: how long a group that holds millions of ids takes until it decides again.

Three ends of the same process: its disk is there and warm, there and cold, or gone. The ring is
loaded when it is asked for first, so `/readyz` is not all: a record is sent once it says ok.
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
"""Joining the group takes now half a second more, now half a second less."""
_READY: Final = "seconds until ready"
_FIRST: Final = "then, seconds to the first verdict"


class Start(NamedTuple):
    """One start: from the process to `/readyz`, then from a record to its verdict."""

    ready_s: float
    first_s: float
    restored_records: int
    peak_bytes: int


def restore(session: Session) -> Finding:
    """Every way to start, on the group with the most ids."""
    session.say("restore: a group with full rings is needed first")
    group = session.groups.filled(largest(session))
    folder = group.stage.folder / "state"
    bare = [_bare(session) for _ in range(session.rounds)]
    ways = {
        "disk warm": _started(session, group.stage),
        "disk cold": _started(session, group.stage, lambda: drop_cached(folder)),
        "disk gone": _started(session, group.stage, lambda: shutil.rmtree(folder)),
    }
    rows = [_row("1 id", bare)]
    rows += [_row(f"{way}, {group.ids_held:,} ids", [start]) for way, start in ways.items()]
    gone_s = ways["disk gone"].ready_s - Spread.of(start.ready_s for start in bare).median
    restored_per_s = group.ids_held / gone_s if gone_s > _NOTICEABLE_S else None
    rows[-1] = {**rows[-1], "ids restored a second": restored_per_s}
    title = f"Start of a group that holds {group.ids_held:,} ids in one ring"
    figure = Figure(title, "start", [_READY, _FIRST], "seconds", bars=True)
    return Finding(title, {"ids": group.ids_held, "partitions": 1}, rows, [figure])


def _bare(session: Session) -> Start:
    """A group that holds a single id, started again."""
    source = f"bare-{uuid.uuid4().hex[:8]}"
    session.place.create(source, 1)
    with session.place.stage(RINGFENCE, source, 1) as stage:
        _started(session, stage)
        return _started(session, stage)


def _started(session: Session, stage: Stage, prepare: Callable[[], object] = lambda: None) -> Start:
    prepare()
    started_s = time.monotonic()
    with running(RINGFENCE, stage) as one:
        await_ready(stage, one.check)
        ready_s = time.monotonic() - started_s
        (place,) = ask_json(stage, "/v1/partitions?scope=instance")["partitions"]
        sent_s, end = time.monotonic(), session.place.append(stage.input)
        for point in session.place.follow(stage, _ONE_PARTITION, one.check, end):
            first_s = point.at_s - sent_s
        used = memory(one.pid)
    session.say(f"a start: ready after {ready_s:.1f} s, first verdict {first_s:.1f} s later")
    return Start(ready_s, first_s, place["restored_records"], used.peak)


def _row(name: str, starts: list[Start]) -> Row:
    return {
        "start": name,
        _READY: Spread.of(start.ready_s for start in starts),
        _FIRST: Spread.of(start.first_s for start in starts),
        "changelog records replayed": max(start.restored_records for start in starts),
        "peak memory, MiB": Spread.of(start.peak_bytes / MIB for start in starts),
    }
