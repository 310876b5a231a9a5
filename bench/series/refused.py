"""Refused series: records that their output refuses as they are, and what they cost the others.

Each input has such a record among so many. It is dead-lettered for itself, as is a record whose id
cannot be read, or compressed. The input is compared with the same one without such records, in
turns; large records with the same input and an output that takes them, since bytes cost time
anyway. Every run has a second route, whose records are all good.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, running
from bench.finding import Finding, Row, shown
from bench.machine import cpu_s
from bench.progress import Point, follow, pace
from bench.results import Spread
from bench.series.stages import LOOP
from bench.session import Session
from bench.workload import LARGE_BYTES, Odd, Workload

_ONE_IN: Final = (20, 100, 1_000)
_TITLE: Final = "One record in so many is dead-lettered for itself, or compressed: Ringfence"
_RECORDS: Final = 600_000
_BESIDE: Final = Workload(_RECORDS, seed=2)


class Kind(NamedTuple):
    """A kind of record that its output refuses as it is, or without an id, among good ones."""

    odd: Odd
    output: Mapping[str, str] = {}
    """The settings of the output that refuses it."""
    taking: Mapping[str, str] | None = None
    """Those of an output that takes it, if the same input is to be measured for comparison."""
    good: Workload = Workload(_RECORDS)
    id: str = ""


_ENCODED: Final = Workload(_RECORDS, id_in_value=True, encoding="avro")
_SCHEMA: Final = "{schema:/id}"
_SMALL: Final = {"max.message.bytes": str(LARGE_BYTES)}
_TAKING: Final = {"max.message.bytes": str(LARGE_BYTES + 10_000)}
"""The producer's batches are as small as its outputs take them, also those of good records."""
KINDS: Final[Mapping[str, Kind]] = {
    "no key": Kind("keyless", {"cleanup.policy": "compact"}),
    "timestamp": Kind("ahead"),
    "size": Kind("large", _SMALL, _TAKING, Workload(200_000)),
    "size, until compressed": Kind("padded", _SMALL, _TAKING, Workload(200_000)),
    "payload": Kind("cut", good=_ENCODED, id=_SCHEMA),
    "unknown schema": Kind("schemaless", good=_ENCODED, id=_SCHEMA),
}


class Run(NamedTuple):
    """Records a second, and the loop's CPU time for a record of either route."""

    both: float
    """Of both routes: the client reads them one after the other, or in turns, as it likes."""
    beside: float
    """Of the second route, from its first commit to its last."""
    loop_us: float


def refused(session: Session) -> Finding:
    """Measure each kind and share beside an input or an output without such refusals."""
    rows: list[Row] = []
    for name, kind in KINDS.items():
        for every in _ONE_IN:
            good = session.sized(kind.good)
            bad = good._replace(odd=kind.odd, odd_every=every)
            reference, output = (good, kind.output) if kind.taking is None else (bad, kind.taking)
            pairs = [
                (
                    _run(session, bad, kind.id, kind.output),
                    _run(session, reference, kind.id, output),
                )
                for _ in range(session.rounds)
            ]
            session.venue.forget(bad)
            row = _row(pairs)
            told = ", ".join(f"{column}: {shown(cell)}" for column, cell in row.items())
            session.say(f"{name}, one in {every:,}: {told}")
            rows.append({"kind": name, "one in": every, **row})
    settings = {"messages": session.sized(_BESIDE).records, "partitions": _BESIDE.partitions}
    return Finding(_TITLE, settings, rows)


def _run(session: Session, workload: Workload, id_template: str, output: Mapping[str, str]) -> Run:
    venue, other = session.venue, session.sized(_BESIDE)
    setup = {
        "beside": venue.input(other),
        "id": id_template,
        "missing_id": "dead_letter",
        "output_settings": output,
    }
    with venue.reading(RINGFENCE, workload, **setup) as stage:
        venue.create(stage.output_beside, other.partitions)
        with running(RINGFENCE, stage) as one, ThreadPoolExecutor() as pool:

            def followed(topic: str, each: Workload) -> list[tuple[Point, float]]:
                points = follow(
                    venue.client, stage.group, topic, each.partitions, each.records, one.check
                )
                return [(point, cpu_s(one.pid)[LOOP]) for point in points]

            inputs = (stage.input, workload), (stage.beside, other)
            futures = [pool.submit(followed, *each) for each in inputs]
            routes = [future.result() for future in futures]
    begun_s = min(route[0][0].at_s for route in routes)
    ended_s = max(route[-1][0].at_s for route in routes)
    used_s = max(route[-1][1] for route in routes) - min(route[0][1] for route in routes)
    records = sum(route[-1][0].records - route[0][0].records for route in routes)
    beside = pace([point for point, _ in routes[1]]).whole
    return Run(records / (ended_s - begun_s), beside, used_s * 1e6 / records)


def _row(pairs: list[tuple[Run, Run]]) -> Row:
    """Return what was measured with such records, and its ratios to that without."""

    def ratio(index: int) -> Spread:
        return Spread.of(bad[index] / good[index] for bad, good in pairs)

    bad = [each for each, _ in pairs]
    return {
        "both routes, a second": Spread.of(each.both for each in bad),
        "as without": ratio(0),
        "second route, a second": Spread.of(each.beside for each in bad),
        "second as without": ratio(1),
        "loop, µs a message": Spread.of(each.loop_us for each in bad),
        "loop as without": ratio(2),
    }
