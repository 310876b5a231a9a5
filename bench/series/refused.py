"""Refused series: records that are dead-lettered for themselves, and what they cost the others.

Each input has such a record among so many: its output refuses it, or its id cannot be read. An
input for an output that refuses is measured with one that takes all, too; an input of payloads
that cannot be read is compared with one of good ones. Every run has a second route, whose records
are all good.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from bench.arms import RINGFENCE, running
from bench.finding import Finding, Row, shown
from bench.progress import Pace, follow, pace
from bench.results import Spread
from bench.session import Session
from bench.workload import LARGE_BYTES, Odd, Workload
from service.kafka.model import UNLIMITED

_ONE_IN: Final = (20, 100, 1_000)
_TITLE: Final = "One record in so many is dead-lettered for itself: Ringfence"
_GOOD: Final = Workload(records=400_000, seed=2)


class Kind(NamedTuple):
    """A kind of refused record, and the settings of an output that refuses it or takes it."""

    refused: Workload
    taken: Workload
    refusing: Mapping[str, str] = {}
    taking: Mapping[str, str] = {}
    id: str = ""


def _by_the_output(
    odd: Odd,
    records: int = 400_000,
    *,
    refusing: Mapping[str, str],
    taking: Mapping[str, str],
) -> Kind:
    same = Workload(records, odd=odd)
    return Kind(same, same, refusing, taking)


def _by_the_decoder(odd: Odd) -> Kind:
    good = Workload(400_000, id_in_value=True, encoding="avro")
    return Kind(good._replace(odd=odd), good, id="{schema:/id}")


KINDS: Final[Mapping[str, Kind]] = {
    "no key": _by_the_output("keyless", refusing={"cleanup.policy": "compact"}, taking={}),
    "timestamp": _by_the_output(
        "ahead", refusing={}, taking={"message.timestamp.after.max.ms": str(UNLIMITED)}
    ),
    "size": _by_the_output(
        "large", 100_000, refusing={"max.message.bytes": str(LARGE_BYTES)}, taking={}
    ),
    "payload": _by_the_decoder("cut"),
    "unknown schema": _by_the_decoder("schemaless"),
}


class Paces(NamedTuple):
    """How fast both routes were in one run."""

    refused: Pace
    good: Pace


def refused(session: Session) -> Finding:
    """Measure each kind and share, with an output that refuses and with one that takes."""
    rows: list[Row] = []
    for name, kind in KINDS.items():
        for every in _ONE_IN:
            bad, good = (
                session.sized(each._replace(odd_every=every)) for each in (kind.refused, kind.taken)
            )
            refusing, taking = list[Paces](), list[Paces]()
            for _ in range(session.rounds):
                taking.append(_paces(session, good, kind.taking, kind.id))
                refusing.append(_paces(session, bad, kind.refusing, kind.id))
            for workload in {bad, good}:
                session.venue.forget(workload)
            row = _row(refusing, taking)
            told = ", ".join(f"{column}: {shown(cell)}" for column, cell in row.items())
            session.say(f"{name}, one in {every:,}: {told}")
            rows.append({"refused for": name, "one in": every, **row})
    settings = {"messages": session.sized(_GOOD).records, "partitions": _GOOD.partitions}
    return Finding(_TITLE, settings, rows)


def _paces(session: Session, workload: Workload, output: Mapping[str, str], template: str) -> Paces:
    venue, good = session.venue, session.sized(_GOOD)
    beside = venue.input(good)
    setup = {"output_settings": output, "beside": beside}
    ids = {"id": template, "missing_id": "dead_letter"}
    with venue.reading(RINGFENCE, workload, **setup, **ids) as stage:
        venue.create(stage.output_beside, good.partitions)
        inputs = (stage.input, workload), (beside, good)
        with running(RINGFENCE, stage) as one, ThreadPoolExecutor(len(inputs)) as pool:
            followed = [
                pool.submit(
                    list,
                    follow(
                        venue.client, stage.group, topic, each.partitions, each.records, one.check
                    ),
                )
                for topic, each in inputs
            ]
            return Paces(*(pace(points.result()) for points in followed))


def _row(refusing: list[Paces], taking: list[Paces]) -> Row:
    pairs = list(zip(refusing, taking, strict=True))
    return {
        "messages a second": Spread.of(each.refused.whole for each in refusing),
        "as if taken": Spread.of(one.refused.whole / other.refused.whole for one, other in pairs),
        "second route, a second": Spread.of(each.good.whole for each in refusing),
        "as beside taken": Spread.of(one.good.whole / other.good.whole for one, other in pairs),
    }
