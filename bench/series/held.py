"""Ids-held series: throughput, memory and disk by the number of remembered ids, with full rings.

There is one partition, so that one ring holds all ids of an address. The floor reads the same
input and holds nothing, so it is measured once for each input.
"""

from typing import Final

from bench.arms import FLOOR, running
from bench.filled import Fill, Filled, filled
from bench.finding import Figure, Finding, Row
from bench.machine import MIB
from bench.progress import pace_from
from bench.results import Spread
from bench.session import Session
from bench.workload import Workload

IDS: Final = (20_000, 200_000, 1_000_000, 10_000_000)
SPREAD_IDS: Final = (200, 2_000, 20_000)
"""For each of a thousand addresses."""
ONCE_FROM: Final = 5_000_000
"""From this number on, filling takes minutes: one round has to be enough."""
STRETCH: Final = 1_200_000

_HELD: Final = "ids held"
_RSS: Final = "resident memory, MiB"
_DISK: Final = "disk, MiB"


def largest(session: Session) -> Fill:
    """Return the group with the most ids, which series about restarts reuse."""
    return _fill(session, IDS[-1])


def ids_held(session: Session) -> Finding:
    """Measure one address with an increasing number of ids."""
    rounds = {ids: session.rounds if ids < ONCE_FROM else 1 for ids in IDS}
    _write(session, largest(session).workload)
    found = {ids: [_filled(session, ids) for _ in range(rounds[ids])] for ids in IDS}
    floor = _floor(session, _fill(session, IDS[0]), session.rounds)
    rows = [_row(each, floor) for each in found.values()]
    return _finding(
        "Ids held in one ring",
        {**_settings(_fill(session, IDS[0])), "addresses": 1},
        with_bytes_per_id(rows),
    )


def ids_spread(session: Session) -> Finding:
    """Measure a thousand addresses, from few ids each to the default."""
    shape = Workload(partitions=1, value_bytes=20, duplicate_share=0.0, addresses=1_000)
    stretch = session.scaled(STRETCH)
    longest = Fill(session.scaled(SPREAD_IDS[-1]), shape, stretch)
    workload = shape._replace(records=longest.records)
    _write(session, workload)
    found = []
    for ids in SPREAD_IDS:
        with filled(session.venue, Fill(session.scaled(ids), workload, stretch)) as one:
            session.say(f"{one.ids_held:,} ids held: {one.pace:,.0f}/s")
            found.append(one)
    floor = _floor(session, longest._replace(workload=workload), 1)
    session.venue.forget(workload)
    rows = with_bytes_per_id([_row([one], floor) for one in found])
    return _finding("Ids held by 1,000 addresses", _settings(longest), rows)


def _write(session: Session, workload: Workload) -> None:
    session.say(f"{workload.records:,} records are written")
    session.venue.input(workload)


def _fill(session: Session, ids: int) -> Fill:
    """Return a fill; all read the same input, which is long enough for the largest."""
    shape = Workload(partitions=1)
    stretch = session.scaled(STRETCH)
    longest = Fill(session.scaled(IDS[-1]), shape, stretch)
    return Fill(session.scaled(ids), shape._replace(records=longest.records), stretch)


def _filled(session: Session, ids: int) -> Filled:
    fill = _fill(session, ids)
    session.say(f"{fill.ids:,} ids: {fill.records:,} records are read")
    if ids == IDS[-1]:
        one = session.groups.filled(fill)
    else:
        with filled(session.venue, fill) as one:
            pass
    session.say(f"{one.ids_held:,} ids held: {one.pace:,.0f}/s, {one.memory.now / MIB:,.0f} MiB")
    return one


def _floor(session: Session, fill: Fill, rounds: int) -> Spread:
    """Measure the floor, warm, over a stretch of the same length."""
    venue, workload, paces = session.venue, fill.workload, []
    for _ in range(rounds):
        with venue.reading(FLOOR, workload) as stage, running(FLOOR, stage) as one:
            points = list(venue.follow(stage, workload, one.check, 2 * fill.stretch))
        paces.append(pace_from(points, fill.stretch))
        session.say(f"the floor on the same input: {paces[-1]:,.0f}/s")
    return Spread.of(paces)


def _row(rounds: list[Filled], floor: Spread) -> Row:
    pace = Spread.of(each.pace for each in rounds)
    return {
        _HELD: rounds[0].ids_held,
        "Ringfence": pace,
        "floor": floor,
        "Ringfence / floor": pace.median / floor.median,
        _RSS: Spread.of(each.memory.now / MIB for each in rounds),
        "peak, MiB": Spread.of(each.memory.peak / MIB for each in rounds),
        _DISK: Spread.of(each.disk_bytes / MIB for each in rounds),
    }


def with_bytes_per_id(rows: list[Row]) -> list[Row]:
    """Beside each row what an id more costs, counted from the row with the fewest ids.

    A process that remembers nothing has memory and files too; the difference leaves that out.
    """
    columns = {"memory, bytes an id": _RSS, "disk, bytes an id": _DISK}
    least = rows[0]
    return [
        {**row, **{name: bytes_per_id(least, row, column) for name, column in columns.items()}}
        for row in rows
    ]


def bytes_per_id(least: Row, row: Row, column: str) -> float | None:
    """MiB of a column by ids held, both counted from another row; None for that row itself."""
    held, held_at_least = row[_HELD], least[_HELD]
    size, size_at_least = row[column], least[column]
    assert isinstance(held, int)
    assert isinstance(held_at_least, int)
    assert isinstance(size, Spread)
    assert isinstance(size_at_least, Spread)
    more = held - held_at_least
    return (size.median - size_at_least.median) * MIB / more if more else None


def _settings(fill: Fill) -> dict[str, object]:
    work = fill.workload
    return {
        "bytes": work.value_bytes,
        "duplicates": f"{work.duplicate_share:.0%}",
        "partitions": work.partitions,
        "addresses": work.addresses,
        "messages while full": f"{fill.stretch:,}",
    }


def _finding(title: str, settings: dict[str, object], rows: list[Row]) -> Finding:
    fast = Figure(
        f"{title}, full: Ringfence and the floor",
        _HELD,
        ["Ringfence", "floor"],
        "messages a second, rings full",
    )
    large = Figure(f"{title}: memory and disk", _HELD, [_RSS, _DISK], "MiB")
    return Finding(title, settings, rows, [fast, large])
