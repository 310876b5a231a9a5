"""Which dead letters a redrive reads next, and where it goes on when it is taken up again."""

from collections.abc import Collection, Sequence

import pytest
from confluent_kafka import Message

from ringfence_service.dead_letters.reader import RecordChunk
from ringfence_service.dead_letters.redrive_steps import (
    COMMAND_BYTES_MAX,
    MISSING,
    STEP_BYTES_MAX,
    DeadLetterFeed,
    RedriveBatcher,
    RedriveStep,
)
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPosition,
    DeadLetterView,
    RedriveProgress,
    RedriveRequest,
)
from ringfence_service.queries.redrives import PartitionCheckpoint, RedriveAnswer
from ringfence_state.model import PartitionId
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
    return [view.position.offset for view in views], missing, moved


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


def test_the_first_letter_of_a_topic_is_taken_where_it_is_the_only_one() -> None:
    feed = DeadLetterFeed(job(spans=(DeadLetterRange(DLQ, 0, 0, 1),)), Shelf(0, 1))
    assert taken(feed) == ([0], 0, True)


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


class Letters:
    """A partition with a dead letter at each of these offsets."""

    def __init__(
        self,
        *offsets: int,
        sizes_bytes: Sequence[int] = (),
        foreign: int = -1,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """`sizes_bytes` are those of the values; `foreign` has none of the headers."""
        self._messages = []
        for row, offset in enumerate(offsets):
            envelope = {"reason": "duplicate", "topic": "a", "partition": "0", "offset": offset}
            ours = [(f"ringfence.{name}", f"{text}".encode()) for name, text in envelope.items()]
            record = Message(
                topic=DLQ,
                partition=0,
                offset=offset,
                key=key,
                value=bytes(sizes_bytes[row]) if sizes_bytes else b"",
                headers=[*headers, *(ours if offset != foreign else ())],
                timestamp=(1, 1),
            )
            self._messages.append((offset, record))

    def read(
        self, source: PartitionId, start: int, records_max: int, timeout_s: float
    ) -> RecordChunk:
        del source, timeout_s
        found = [each for each in self._messages if each[0] >= start][:records_max]
        return RecordChunk([each for _, each in found], found[-1][0] + 1 if found else start)


EVEN, ODD = PartitionId("a", 0), PartitionId("a", 1)


def even_or_odd(view: DeadLetterView) -> PartitionId | str:
    return "not-ours" if view.source is None else (EVEN, ODD)[view.position.offset % 2]


def up_to(end: int, *letters: int, **request: object) -> RedriveJob:
    order = RedriveRequest(
        "through", DeadLetterFilter(), tuple(DeadLetterPosition(DLQ, 0, each) for each in letters)
    )
    wanted = order._replace(**request)  # type: ignore[arg-type]  # by name
    return job(order=wanted, spans=(DeadLetterRange(DLQ, 0, 0, end),))


def sent(step: RedriveStep) -> list[list[list[int]]]:
    """Of each owner's commands the offsets of their letters."""
    return [[[each.at for each in one.letters] for one in commands] for commands in step.commands]


def test_a_step_has_the_letters_of_each_owner_in_order_and_counts_what_it_leaves_out() -> None:
    batcher = RedriveBatcher(up_to(5), even_or_odd, Letters(*range(5), foreign=3))
    step = batcher.next(100)
    assert sent(step) == [[[0, 2, 4]], [[1]]]
    assert [commands[0].partition for commands in step.commands] == [0, 1]
    assert (step.letters, step.scanned, step.matched, step.is_last) == (4, 5, 5, True)
    assert step.skipped == {"not-ours": 1}


def test_a_letter_that_no_partition_decides_is_counted_under_the_reason() -> None:
    step = RedriveBatcher(up_to(2), lambda _: "no-input", Letters(0, 1)).next(100)
    assert (step.commands, step.letters, step.skipped) == ((), 0, {"no-input": 2})


def test_named_letters_that_are_gone_are_scanned_and_counted_as_missing() -> None:
    step = RedriveBatcher(up_to(5, 1, 2, 4), even_or_odd, Letters(*range(4))).next(100)
    assert sent(step) == [[[1]], [[2]]]
    assert (step.scanned, step.matched, step.skipped) == (2, 2, {})
    gone = RedriveBatcher(up_to(5, 1, 2, 3), even_or_odd, Letters(0, 1, 4)).next(100)
    assert (gone.scanned, gone.matched, gone.skipped) == (3, 1, {MISSING: 2})


def test_a_limit_counts_the_letters_that_match_and_those_of_earlier_steps() -> None:
    matching = DeadLetterFilter(key=b"none")
    batcher = RedriveBatcher(up_to(9, limit=1, filter=matching), even_or_odd, Letters(*range(9)))
    assert batcher.next(100).matched == 0
    batcher = RedriveBatcher(up_to(9, limit=3), even_or_odd, Letters(*range(9)))
    first, second = batcher.next(2), batcher.next(2)
    assert (first.matched, first.is_last, second.matched, second.is_last) == (2, False, 1, True)
    assert (second.offset, batcher.next(2).letters) == (3, 0)
    begun = up_to(9, limit=3)._replace(progress=RedriveProgress(matched=2))
    assert RedriveBatcher(begun, even_or_odd, Letters(*range(9))).next(100).letters == 1


def test_a_step_ends_after_so_many_records_though_none_of_them_matches() -> None:
    order = {"filter": DeadLetterFilter(key=b"none")}
    batcher = RedriveBatcher(up_to(21_000, **order), even_or_odd, Letters(*range(21_000)))
    step = batcher.next(1_000)
    assert (step.scanned, step.offset, step.is_last) == (20_000, 20_000, False)


def test_a_command_has_as_many_letters_as_are_read_at_once_and_as_many_bytes_as_it_may() -> None:
    order = up_to(3_000)
    many = RedriveBatcher(order, lambda _: EVEN, Letters(*range(2_500))).next(2_500)
    assert [len(command) for command in sent(many)[0]] == [1_000, 1_000, 500]
    half = COMMAND_BYTES_MAX // 2
    sizes_bytes = (half, half, half, half + 1, 1)
    large = Letters(*range(5), sizes_bytes=sizes_bytes)
    step = RedriveBatcher(order, lambda _: EVEN, large).next(100)
    assert sent(step) == [[[0, 1], [2], [3, 4]]]


def test_a_command_has_at_least_one_letter_and_each_begins_with_no_bytes() -> None:
    half = COMMAND_BYTES_MAX // 2
    letters = Letters(*range(5), sizes_bytes=(3 * half, half, half, half, half))
    step = RedriveBatcher(up_to(5), lambda _: EVEN, letters).next(100)
    assert sent(step) == [[[0], [1, 2], [3, 4]]]


def test_a_command_counts_keys_and_headers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = Letters(*range(3), key=b"key", headers=[("h", b"12"), ("null", None)])
    for limit_bytes, commands in ((9, [[0], [1], [2]]), (10, [[0, 1], [2]])):
        monkeypatch.setattr(
            "ringfence_service.dead_letters.redrive_steps.COMMAND_BYTES_MAX", limit_bytes
        )
        step = RedriveBatcher(up_to(3), lambda _: EVEN, letters).next(100)
        assert sent(step) == [commands]


def test_a_step_of_large_letters_ends_before_it_takes_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringfence_service.dead_letters.redrive_steps.AT_ONCE", 1)
    letters = Letters(*range(6), sizes_bytes=(STEP_BYTES_MAX // 4,) * 6)
    batcher = RedriveBatcher(up_to(6), lambda _: EVEN, letters)
    first = batcher.next(100)
    assert (first.letters, first.offset, first.is_last) == (4, 4, False)
    batcher.advance(first)
    assert batcher.next(100).letters == 2


def test_progress_is_the_sum_of_what_the_owners_have_done() -> None:
    marks = [PartitionCheckpoint(*owner, DLQ, 0, 9, 1, 20, 300, 4_000) for owner in (EVEN, ODD)]
    batcher = RedriveBatcher(up_to(9), even_or_odd, Letters(), marks)
    assert batcher.job.progress == RedriveProgress(
        sent=8_642, accepted=2, refused=40, waiting=600, failed=8_000
    )
    batcher.answered(RedriveAnswer("done", marks[0]._replace(accepted=2)))
    assert (batcher.job.progress.accepted, batcher.job.progress.sent) == (3, 8_643)
