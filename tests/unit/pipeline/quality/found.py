"""Qualities for tests of what is made of them."""

from ringfence_pipeline.quality.views import (
    OFFSETS,
    SECONDS,
    Distances,
    NamedCounts,
    QualityResult,
    ReasonCount,
    RecordCounts,
    RepeatedId,
    SlotCounts,
)

NOON_MS = 1_700_000_000_000 - 1_700_000_000_000 % 3_600_000
HOUR_MS = 3_600_000


def counts(records: int, duplicates: int = 0, rejected: int = 0) -> RecordCounts:
    accepted = records - duplicates - rejected
    return RecordCounts(records, accepted, duplicates, rejected, records // 50)


def found(*names: str | None) -> QualityResult:
    named = tuple(NamedCounts(name, counts(90_000 - n, 900 - n, n)) for n, name in enumerate(names))
    slots = tuple(
        SlotCounts(NOON_MS + n * HOUR_MS, counts(3_000 + 40 * n, 10 * n, n))
        for n in range(48)
        if n != 7  # an hour without records
    )
    return QualityResult(
        target="s3a://lake/tables",
        made_at="2026-01-01T00:00:00+00:00",
        since="2025-12-30",
        total=counts(186_000, 11_000, 1_100),
        slot_ms=HOUR_MS,
        slots=slots,
        publishers=named,
        publishers_total=len(named),
        addresses=named[:1],
        addresses_total=1,
        reasons=(
            ReasonCount("duplicate", "its id was accepted at … already", 11_000),
            ReasonCount("missing-id", "it has no header _DUPL_ID, and the route requires an id", 1),
        ),
        reasons_total=2,
        seconds=Distances(11_000, 0.004, 2.5, 700, 90_000, 3e6, (500,) * (len(SECONDS) + 1)),
        offsets=Distances(10_900, 10, 1_500, 70_000, 2e6, 9e6, (90,) * (len(OFFSETS) - 1) + (0, 0)),
        ids=tuple(
            RepeatedId("orders", f"order-{n}", 9 - n, 1 + n % 2, NOON_MS, NOON_MS + n * HOUR_MS)
            for n in range(5)
        ),
        ids_total=5,
    )
