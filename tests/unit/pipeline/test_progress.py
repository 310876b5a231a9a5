"""Progress counts every batch once, and says how far the ends are."""

from pipeline.progress import BatchTally, TableProgress


def report(batch: int, rows: int, end: int | None, latest: int) -> dict[str, object]:
    source = {
        "endOffset": None if end is None else {"t": {"0": end, "1": 5}},
        "latestOffset": {"t": {"0": latest, "1": 5}},
    }
    return {
        "batchId": batch,
        "numInputRows": rows,
        "processedRowsPerSecond": 9.5,
        "sources": [source],
    }


def test_a_batch_counts_once_however_often_it_is_reported() -> None:
    tally = BatchTally()
    tally.take([report(0, 10, 10, 30)])
    tally.take([report(0, 10, 10, 30), report(1, 20, 30, 30)])
    assert tally.progress == TableProgress(rows=30, rows_per_second=9.5, behind=0)


def test_what_is_left_is_counted_over_partitions() -> None:
    tally = BatchTally()
    tally.take([report(0, 10, 10, 30)])
    assert tally.progress.behind == 20


def test_an_idle_look_counts_nothing() -> None:
    tally = BatchTally()
    tally.take([report(0, 0, None, 0), report(0, 10, 10, 10)])
    assert tally.progress.rows == 10
