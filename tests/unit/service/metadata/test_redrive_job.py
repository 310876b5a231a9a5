"""Jobs: what may become of them, and what the metadata topic holds."""

import json
from typing import get_args

import pytest

from ringfence_service.dedup.dead_letter import Mode
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.redrive_job import (
    ENDED,
    DeadLetterRange,
    RedriveJob,
    RedriveJobs,
    forgetting,
    job_of,
)
from ringfence_service.queries.dead_letters import (
    DeadLetterCounts,
    DeadLetterFilter,
    DeadLetterPosition,
    RedriveEstimate,
    RedriveProgress,
    RedriveRequest,
    State,
)

ORDER = RedriveRequest(
    mode="forget",
    filter=DeadLetterFilter(
        topics=("a.dlq",),
        address="a",
        reasons=("duplicate",),
        from_ms=1,
        to_ms=9,
        headers=(("h", b"\xff"),),
        key=b"",
    ),
    letters=(DeadLetterPosition("a.dlq", 0, 5),),
    max_per_second=2.5,
    limit=3,
    reason="why",
    actor="who",
)
JOB = RedriveJob(
    "1-x", ORDER, (DeadLetterRange("a.dlq", 0, 5, 6), DeadLetterRange("b.dlq", 1, 0, 100)), 10, 11
)


@pytest.mark.parametrize("first", get_args(State))
@pytest.mark.parametrize("second", sorted(ENDED))
def test_a_job_ends_once_and_stays_as_it_ended(first: State, second: State) -> None:
    job = JOB._replace(state=first, waiting_for="a broker", eta_s=1.0)
    then = job.ended(second, 99, "why")
    if first == "running":
        assert (then.state, then.ended_at_ms, then.error) == (second, 99, "why")
        assert (then.waiting_for, then.eta_s) == (None, None)
    else:
        assert then == job


def test_a_job_does_not_begin_again() -> None:
    with pytest.raises(AssertionError):
        JOB.ended("running", 1)


@pytest.mark.parametrize("state", get_args(State))
def test_it_is_over_when_it_has_ended_and_no_mark_is_left(state: State) -> None:
    job = JOB._replace(state=state)
    assert not job.is_over
    assert job._replace(cleared=True).is_over is (state in ENDED)


def test_what_is_written_is_read_again() -> None:
    progress = RedriveProgress(9, 8, 7, 4, 1, 1, 1, {"foreign": 1})
    for job in (JOB, JOB._replace(progress=progress, span=1, offset=7, state="failed", error="e")):
        assert job_of(job.record.value) == job
        plain = job._replace(order=RedriveRequest("through", DeadLetterFilter()))
        assert job_of(plain.record.value) == plain


def test_a_job_has_the_filter_of_all_versions() -> None:
    """An older instance takes no job with a part that it does not know."""
    stored = json.loads(JOB.record.value or b"")["order"]["filter"]
    parts = {"topics", "address", "reasons", "from_ms", "to_ms", "headers", "key"}
    assert stored.keys() == parts


WRITTEN: bytes = JOB.record.value or b""


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b'{"id": 1}',
        WRITTEN.replace(b"forget", b"sideways"),
        WRITTEN.replace(b'"spans":[', b'"spans":[[1],'),
    ],
)
def test_what_is_no_job_is_passed_over(value: bytes) -> None:
    jobs = RedriveJobs()
    assert jobs.take(JOB.record.key, value)
    assert jobs.by_id == {}


def test_the_last_record_of_a_job_counts_and_one_without_a_value_forgets_it() -> None:
    jobs = RedriveJobs()
    jobs.take(*JOB.record)
    jobs.take(*JOB._replace(offset=6).record)
    assert jobs.by_id["1-x"].offset == 6
    jobs.take(*forgetting("1-x"))
    assert jobs.by_id == {}
    assert not jobs.take(b'["session","P"]', b"{}")


def test_a_job_raises_no_revision_so_no_partition_commits_for_it() -> None:
    settings = MetadataImage()
    settings.take(7, *JOB.record)
    assert settings.revision == 0
    assert settings.redrives.by_id == {"1-x": JOB}


def test_a_job_that_has_just_been_ordered_has_done_nothing() -> None:
    assert JOB.view.progress == (0, 0, 0, 0, 0, 0, 0, {})


def test_the_total_is_what_was_named_or_what_lies_in_the_spans() -> None:
    assert JOB.records_total == 1
    assert JOB._replace(order=ORDER._replace(letters=())).records_total == 101


def test_how_much_is_done_is_counted_against_the_limit() -> None:
    job = JOB._replace(order=ORDER._replace(letters=(), limit=4))
    job = job._replace(progress=RedriveProgress(scanned=5, matched=3))
    assert job.view.share == 0.75
    assert job._replace(order=job.order._replace(limit=None)).view.share == 5 / 101
    assert job.ended("done", 12).view.share == 1


@pytest.mark.parametrize(("end", "scanned", "share"), [(0, 0, 0), (1, 1, 1), (2, 1, 0.5)])
def test_of_few_dead_letters_or_none_the_share_that_is_done_is_told_too(
    end: int, scanned: int, share: float
) -> None:
    order, spans = ORDER._replace(letters=(), limit=None), (DeadLetterRange("a.dlq", 0, 0, end),)
    job = JOB._replace(order=order, spans=spans, progress=RedriveProgress(scanned=scanned))
    assert job.view.share == share


@pytest.mark.parametrize(
    ("mode", "limit", "redrives", "doubles"),
    [("forget", None, 9, 6), ("forget", 5, 5, 5), ("bypass", 20, 9, 6), ("through", 5, 5, 0)],
)
def test_a_preview_tells_how_many_go_and_how_many_the_output_then_holds_twice(
    mode: Mode, limit: int | None, redrives: int, doubles: int
) -> None:
    reasons = {"duplicate": 4, "duplicate-in-transaction": 2, "expired": 4}
    counts = DeadLetterCounts(13, 10, 3, reasons, {}, {}, {}, None)
    order = RedriveRequest(mode, DeadLetterFilter(), limit=limit)
    preview = RedriveEstimate(order, 13, counts, {"foreign": 3, "no-route": 1}, ())
    assert (preview.redrives, preview.doubles) == (redrives, doubles)
    without_duplicates = counts._replace(by_reason={"expired": 10})
    assert preview._replace(counts=without_duplicates).doubles == 0
