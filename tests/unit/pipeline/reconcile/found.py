"""Findings for tests of what is made of them."""

from ringfence_pipeline.reconcile.results import (
    AddressFound,
    DuplicateDistances,
    ReconcileResult,
    TimeSlot,
    Violation,
)

SHORT = AddressFound(
    "orders", "ring", 1_000, 90_000, 900, 100, 1_000, 900, 1_500, 4_000, 7_000, is_exact=True
)
LONG = AddressFound(
    "flights.#", "ring", 400_000, 336_776, 37_000, 0, 37_000, 1, 50_000, 59_000, 9, is_exact=True
)
COUNTED = AddressFound("prices", "sequence", 2**62, 10, 3, 0, 3, 2, 2, 2, 9, is_exact=False)


def findings(*addresses: AddressFound, faults: tuple[Violation, ...] = ()) -> ReconcileResult:
    totals = dict.fromkeys(("no-fate", "doubled"), 0)
    for fault in faults:
        totals[fault.kind] += 1
    return ReconcileResult(
        group="ringfence",
        made_at="2026-01-01T00:00:00+00:00",
        inputs=("orders",),
        fates={
            "accepted": 90_000,
            "duplicate": 900,
            "rejected: expired": 3,
            "excused: after the cut": 7,
        },
        faults_total=totals,
        faults=faults,
        addresses=addresses,
        addresses_total=len(addresses),
        distances=tuple(
            DuplicateDistances(
                each.address, power, 10 * power, 3 if each.missed and power > 9 else 0
            )
            for each in addresses
            for power in range(12)
        ),
        slots=tuple(
            TimeSlot(
                1_700_000_000_000 + n * 60_000, 100, n, 1, 20 if n else None, 90 if n else None
            )
            for n in range(30)
        ),
        slot_ms=60_000,
    )
