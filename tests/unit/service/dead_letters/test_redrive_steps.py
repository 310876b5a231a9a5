"""Which dead letters a redrive reads next, and where it goes on when it is taken up again."""

from collections.abc import Collection

import pytest
from confluent_kafka import Message

from service.dead_letters.reader import RecordChunk
from service.dead_letters.redrive_steps import DeadLetterFeed
from service.dedup.dead_letter import DeadLetterFilter, DeadLetterPosition, RedriveRequest
from service.metadata.redrive_job import DeadLetterRange
from state.model import PartitionId
from tests.unit.service.dead_letters.redriving import DLQ, job

FIRST, SECOND = DeadLetterRange(DLQ, 0, 2, 5), DeadLetterRange(DLQ, 1, 0, 3)


class Shelf:
    """Partitions with a record at each of these offsets; returns where it was read."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets
        self.starts: list[int] = []

    def read(
        self, source: PartitionId, start: int, records_max: int, timeout_s: float
    ) -> RecordChunk:
        assert timeout_s < 1
        self.starts.append(start)
        found = [offset for offset in self.offsets if offset >= start][:records_max]
        place = {"topic": source.topic, "partition": source.partition, "timestamp": (1, 1)}
        messages = [Message(**place, offset=each, headers=[]) for each in found]  # type: ignore[arg-type]
        return RecordChunk(messages, found[-1] + 1 if found else start)


def named(*offsets: int, end: int = 10_000, shelf: Shelf) -> DeadLetterFeed:
    order = RedriveRequest(
        "through", DeadLetterFilter(), tuple(DeadLetterPosition(DLQ, 0, each) for each in offsets)
    )
    return DeadLetterFeed(job(order=order, spans=(DeadLetterRange(DLQ, 0, 0, end),)), shelf)


def taken(feed: DeadLetterFeed, records_max: int = 100) -> tuple[list[int], int, bool]:
    views, missing, moved = feed.take(records_max)
    return [view.place.offset for view in views], missing, moved


def test_it_comes_on_span_by_span_and_takes_nothing_from_beyond_an_end() -> None:
    feed = DeadLetterFeed(job(spans=(FIRST, SECOND)), Shelf(*range(9)))
    steps = []
    while not feed.is_over:
        offsets, _, moved = taken(feed, 2)
        steps.append((offsets, moved, feed.span, feed.offset))
    assert steps == [
        ([2, 3], True, 0, 4),
        ([4], True, 1, -1),
        ([0, 1], True, 1, 2),
        ([2], True, 2, -1),
    ]


def test_where_nothing_came_in_time_it_stays() -> None:
    feed = DeadLetterFeed(job(spans=(FIRST, SECOND), offset=4), Shelf())
    assert taken(feed) == ([], 0, False)
    assert (feed.span, feed.offset) == (0, 4)


def test_it_goes_on_where_its_job_stands() -> None:
    shelf = Shelf(*range(9))
    assert taken(DeadLetterFeed(job(spans=(FIRST, SECOND), span=1, offset=1), shelf))[0] == [1, 2]
    assert shelf.starts == [1]


def test_of_the_letters_that_were_named_it_tells_which_are_gone() -> None:
    feed = named(3, 4, 6, end=8, shelf=Shelf(0, 3, 4, 5, 7, 8))
    assert taken(feed, 4) == ([3, 4], 0, True)
    assert taken(feed, 4) == ([], 1, True)
    assert feed.is_over


@pytest.mark.parametrize(
    ("letters", "starts"), [({2_000}, [0]), ({2_001}, [2_001]), ({5, 9_000}, [0]), ({10_000}, [])]
)
def test_a_letter_that_is_far_ahead_is_gone_to_and_one_that_is_near_read_up_to(
    letters: Collection[int], starts: list[int]
) -> None:
    shelf = Shelf(5, 2_000, 2_001, 9_000)
    feed = named(*letters, shelf=shelf)
    feed.take(100)
    assert shelf.starts == starts
    assert feed.is_over is not bool(starts)
