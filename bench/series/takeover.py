"""Takeover series: how long records wait while an instance is killed, or all are replaced.

The changelogs are prefilled. Messages come at a steady rate. One of two instances is killed; it
does not come back, or comes back at once, with its disk or with an empty one. Or three instances
with standby copies are replaced one after the other, each when the one before has warm copies.
Each situation begins with empty disks.
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
_LONGEST: Final = "longest latency, s"


class Wait(NamedTuple):
    """What records met while an instance was away."""

    first_s: float | None
    """From the kill until each partition had a verdict of a record that was sent after it."""
    p99_s: float
    """Of the latency of all records that were sent in that time."""
    longest_s: float


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
                    session.say(f"standby {standby}, {ids:,} ids each, it {back}: {wait}")
            for has_volumes in (True, False):
                wait = _rolled(session, stage._replace(standby="all"), has_volumes=has_volumes)
                how = f"is replaced, {'with its' if has_volumes else 'without a'} volume"
                rows.append(_row(ids, "all", how, wait))
                session.say(f"{ids:,} ids each, each {how}: {wait}")
    title = "While an instance is killed or replaced: Ringfence"
    settings = {"messages a second": _RATE, "partitions": PARTITIONS, "session timeout, s": 10}
    return Finding(title, settings, rows, [Figure(title, "situation", [_FIRST], "s", bars=True)])


def _row(ids: int, standby: str, back: str, wait: Wait) -> Row:
    copies = "no copies" if standby == "off" else "standby copies"
    return {
        "situation": f"{copies}, {ids:,} ids each: it {back}",
        _FIRST: wait.first_s,
        _P99: wait.p99_s,
        _LONGEST: wait.longest_s,
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
    return _waited(reader, killed_s, killed_s + first_s)._replace(first_s=first_s)


def _rolled(session: Session, stage: Stage, *, has_volumes: bool) -> Wait:
    """Start three instances with empty disks, and replace one after the other."""
    shutil.rmtree(stage.folder / "state")
    members = [stage._replace(instance=name, api_port=free_port()) for name in ("a", "b", "c")]
    with ExitStack() as lives:
        life_of = {}
        for member in members:
            life_of[member] = life = ExitStack()
            lives.push(life)
            life.enter_context(running(RINGFENCE, member))
        for member in members:
            await_answer(partial(_is_settled, member, len(members)), _unchecked)
        with _steady(session.venue, stage) as reader:
            began_s = time.monotonic()
            for member in members:
                life_of[member].close()
                if not has_volumes:
                    shutil.rmtree(stage.folder / "state" / stage.group / member.instance)
                life_of[member].enter_context(running(RINGFENCE, member))
                for each in members:
                    await_answer(partial(_is_settled, each, len(members)), _unchecked)
            ended_s = time.monotonic()
    return _waited(reader, began_s, ended_s)


def _unchecked() -> None:
    """Check no process: what has ended does not answer."""


def _waited(reader: Reader, began_s: float, ended_s: float) -> Wait:
    """Return the latencies of the records that were sent in a time."""
    ages_ms = sorted(each.age_ms for each in reader.seen if began_s < each.sent_s < ended_s)
    return Wait(None, percentile(ages_ms, 0.99) / 1000, ages_ms[-1] / 1000)


def _is_settled(stage: Stage, members: int = 2) -> bool:
    """Whether an instance has its share of the partitions, and all copies are warm if any are."""
    found = ask_json(stage, "/v1/partitions")["partitions"]
    owned = [each for each in found if each["instance"] == stage.instance]
    warm = [sum(copy["warm"] for copy in each["standbys"]) for each in found]
    is_warm = stage.standby == "off" or warm == [members - 1] * PARTITIONS
    are_running = all(each["phase"] == "running" for each in owned)
    return len(owned) >= PARTITIONS // members and are_running and is_warm


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
