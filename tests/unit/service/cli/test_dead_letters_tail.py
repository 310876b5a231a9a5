"""Tailing: each dead letter is reported once, whenever it arrives, and little is kept."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from ringfence_service.cli.dead_letters import LATE, DeadLetterTail

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def letter(offset: int, after_s: float, partition: int = 0) -> dict[str, Any]:
    time = (START + timedelta(seconds=after_s)).isoformat()
    return {"topic": "dlq", "partition": partition, "offset": offset, "time": time}


def at(after_s: float) -> datetime:
    return START + timedelta(seconds=after_s)


def test_nothing_is_reported_twice_however_often_it_is_listed() -> None:
    tail, page = DeadLetterTail(START), [letter(3, 1), letter(4, 1), letter(0, 2, partition=1)]
    assert tail.new(page, at(9)) == page
    assert tail.new(page, at(9)) == []
    assert tail.new([*page, letter(5, 1)], at(9)) == [letter(5, 1)]


def test_a_letter_decided_earlier_that_arrives_later_is_reported() -> None:
    tail = DeadLetterTail(START)
    tail.new([letter(7, 20)], at(20))
    late = letter(0, 20 - LATE.total_seconds(), partition=1)
    assert datetime.fromisoformat(late["time"]) >= tail.since
    assert tail.new([late], at(21)) == [late]


def test_a_page_may_be_out_of_order_within_a_partition() -> None:
    page = [letter(9, 1), letter(8, 2)]
    assert DeadLetterTail(START).new(page, at(3)) == page


def test_what_was_there_before_is_never_asked_for() -> None:
    tail = DeadLetterTail(START)
    tail.new([letter(0, 1)], at(1))
    assert tail.since == START


def test_a_letter_of_the_future_hides_none_of_now() -> None:
    tail = DeadLetterTail(START)
    tail.new([letter(0, 86_400)], at(30))
    assert tail.since == at(30) - LATE


def test_a_partition_costs_one_number_however_long_it_runs() -> None:
    chance, tail, told = random.Random(5), DeadLetterTail(START), 0
    ends = [0, 0, 0]
    for second in range(2_000):
        page = []
        for partition in range(3):
            for _ in range(chance.randrange(4)):
                page.append(letter(ends[partition], second, partition))
                ends[partition] += 1
        told += len(tail.new(page, at(second)))
        assert tail.new(page, at(second)) == []
    assert told == sum(ends)
    assert len(tail._last) == 3
