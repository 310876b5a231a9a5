"""Duplicates in the log: one every few seconds, with all that finds it, and the others counted."""

import pytest
from structlog.testing import capture_logs

from ringfence.headers import DUPLICATE_ID
from service.dedup.plan import BatchCounts
from service.processor.reporter import LOG_PERIOD_S as PERIOD_S
from service.processor.reporter import DuplicatesLog
from tests.support.deciding import World, named, record

TRACEPARENT = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
Said = list[dict[str, object]]


def said(*tallies: tuple[BatchCounts, float]) -> Said:
    log = DuplicatesLog()
    with capture_logs() as lines:
        for tally, now_s in tallies:
            log.log(tally, now_s)
    return [dict(line) for line in lines]


@pytest.mark.parametrize(
    ("on_duplicate", "offset"), [("dead_letter", 7), ("drop", 7), ("mark", 7), ("mark", 0)]
)
def test_a_line_tells_where_the_duplicate_is_and_what_it_repeats(
    on_duplicate: str, offset: int
) -> None:
    world = World(addresses={"#": {"on_duplicate": on_duplicate}})
    world.commit(named(3, b"a"))
    plan = world.decide(record(offset, (DUPLICATE_ID, b"a"), TRACEPARENT), named(8, b"a"))
    (line,) = said((plan.tally, 0))
    assert line == {
        "event": "duplicate",
        "log_level": "info",
        "route": "orders",
        "address": "orders",
        "id": "a",
        "topic": "orders",
        "partition": 1,
        "offset": offset,
        "original": "orders-1@3",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "suppressed": 1,
    }


def test_many_duplicates_are_few_lines_and_none_is_uncounted() -> None:
    world = World()
    world.commit(named(0, b"a"))

    def again(count: int) -> BatchCounts:
        return world.decide(*(named(offset, b"a") for offset in range(1, count + 1))).tally

    lines = said(
        (again(5), 0),
        (again(2), 1),
        (again(3), PERIOD_S - 0.1),
        (again(1), PERIOD_S),
        (again(1), 99),
    )
    assert [line["suppressed"] for line in lines] == [4, 5, 0]


def test_without_duplicates_nothing_is_said() -> None:
    assert said((World().decide(named(0, b"a")).tally, 0)) == []
