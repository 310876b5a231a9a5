"""Takeover series: how long records wait after `kill -9` of one of two instances.

The changelogs are prefilled. Messages come at a steady rate, and each instance decides half of the
partitions. One instance is killed; it does not come back, or comes back at once, with its disk or
with an empty one. Without standby copies each start of a situation replays everything.
"""

import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, Stage, running
from bench.asking import ask_json, await_answer, await_ready
from bench.finding import Figure, Finding, Row
from bench.latency import PARTITIONS, Reader, percentile, send
from bench.prefilled import prefill_changelog
from bench.session import Session
from bench.venue import Venue, free_port

_IDS: Final = 50_000_000
"""Ids that each instance holds at most."""
_FEW: Final = 20_000
_RATE: Final = 1_000
_BEFORE_S: Final = 3.0
"""How long messages come before the kill."""
_WITHIN_S: Final = 300.0
_RETURNS: Final = ("does not come back", "comes back with its disk", "comes back with none")
_FIRST: Final = "seconds to the first verdict of every partition"
_P99: Final = "p99 of the latency meanwhile, s"


class Wait(NamedTuple):
    """What records met while an instance was away."""

    first_s: float
    """From the kill until each partition had a verdict of a record that was sent after it."""
    p99_s: float
    """Of the latency of all records that were sent in that time."""


def takeover(session: Session) -> Finding:
    """Measure each situation with few and with many ids, without and with standby copies."""
    rows = list[Row]()
    for ids in (_FEW, max(2 * _FEW, session.scaled(_IDS))):
        source = f"taken-{uuid.uuid4().hex[:8]}"
        session.venue.create(source, PARTITIONS)
        share = ids * 2 // PARTITIONS
        setup = {"id_cache_size": 2 * share, "cache_memory_mb": 1024}
        with session.venue.stage(RINGFENCE, source, PARTITIONS, **setup) as stage:
            _begin(session, stage)
            for partition in range(PARTITIONS):
                prefill_changelog(stage, session.venue.client, partition, share)
            session.say(f"{PARTITIONS * share:,} ids are in the changelogs")
            for standby in ("off", "all"):
                for back in _RETURNS:
                    wait = _killed(session, stage._replace(standby=standby), back)
                    rows.append(_row(ids, standby, back, wait))
                    session.say(
                        f"standby {standby}, {ids:,} ids each, it {back}: {wait.first_s:.1f} s "
                        f"to the first verdicts, p99 {wait.p99_s:.1f} s"
                    )
    title = "After kill -9 of one of two instances: Ringfence"
    settings = {"messages a second": _RATE, "partitions": PARTITIONS, "session timeout, s": 10}
    return Finding(title, settings, rows, [Figure(title, "situation", [_FIRST], "s", bars=True)])


def _row(ids: int, standby: str, back: str, wait: Wait) -> Row:
    copies = "no copies" if standby == "off" else "standby copies"
    return {
        "situation": f"{copies}, {ids:,} ids each: it {back}",
        _FIRST: wait.first_s,
        _P99: wait.p99_s,
    }


def _begin(session: Session, stage: Stage) -> None:
    """Have the group make its topics, and commit its first offsets."""
    with running(RINGFENCE, stage) as one:
        await_ready(stage, one.check)
        ends = [session.venue.append(stage.input, number) for number in range(PARTITIONS)]
        await_answer(lambda: _committed(stage) == sum(ends), one.check)


def _committed(stage: Stage) -> int:
    owned = ask_json(stage, "/v1/partitions?scope=instance")["partitions"]
    return sum(each["committed_offset"] or 0 for each in owned)


def _killed(session: Session, stage: Stage, back: str) -> Wait:
    """Start two instances with empty disks, kill one, and see how long records wait."""
    venue = session.venue
    shutil.rmtree(stage.folder / "state")
    members = [stage._replace(instance=name, api_port=free_port()) for name in ("a", "b")]
    with ExitStack() as processes:
        ones = [processes.enter_context(running(RINGFENCE, each)) for each in members]
        check = ones[1].check
        for member in members:
            await_answer(partial(_is_settled, member), check)
        with _steady(venue, stage) as reader:
            time.sleep(_BEFORE_S)
            os.kill(ones[0].pid, signal.SIGKILL)
            killed_s = time.monotonic()
            if back != _RETURNS[0]:
                time.sleep(0.5)  # until the kernel has ended its workers
                if back == _RETURNS[2]:
                    shutil.rmtree(stage.folder / "state" / stage.group / "a")
                processes.enter_context(running(RINGFENCE, members[0]))
            first_s = _first_after(reader, killed_s, check)
    sent_then = [each for each in reader.seen if killed_s < each.sent_s < killed_s + first_s]
    return Wait(first_s, percentile(sorted(each.age_ms for each in sent_then), 0.99) / 1000)


def _is_settled(stage: Stage) -> bool:
    """Whether an instance has half of the partitions, and each has a warm copy if it is to."""
    found = ask_json(stage, "/v1/partitions")["partitions"]
    owned = [each for each in found if each["instance"] == stage.instance]
    is_warm = stage.standby == "off" or all(
        copy["warm"] for each in found for copy in each["standbys"] or [{"warm": False}]
    )
    are_running = all(each["phase"] == "running" for each in owned)
    return len(owned) == PARTITIONS // 2 and are_running and is_warm


@contextmanager
def _steady(venue: Venue, stage: Stage) -> Iterator[Reader]:
    """Send and read at a steady rate while the block runs."""
    is_over, reader = threading.Event(), Reader(venue, stage.output)

    def check() -> None:
        if is_over.is_set():
            raise StopIteration

    def sends() -> None:
        try:
            send(venue, stage.input, _RATE, _WITHIN_S + _BEFORE_S, check, uuid.uuid4().bytes)
        except StopIteration:
            return

    reader.start()
    sender = threading.Thread(target=sends, daemon=True)
    sender.start()
    try:
        yield reader
    finally:
        is_over.set()
        sender.join()
        reader.stop()


def _first_after(reader: Reader, killed_s: float, check: Callable[[], None]) -> float:
    """Return when each partition had a verdict of a record sent after the kill, in seconds."""
    first = dict[int, float]()
    looked, deadline_s = 0, killed_s + _WITHIN_S
    while len(first) < PARTITIONS:
        check()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"some partition had no verdict within {_WITHIN_S:.0f} s")
        seen = reader.seen[looked:]
        looked += len(seen)
        for each in seen:
            if each.sent_s > killed_s:
                first.setdefault(each.partition, each.at_s)
        time.sleep(0.01)
    return max(first.values()) - killed_s
