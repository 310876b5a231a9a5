"""Findings: what a reconciliation says, as values that JSON can hold; a report is made of them."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pipeline.errors import USAGE, PipelineError

FORMAT: Final = 1

ACCEPTED: Final = "accepted"
MARKED: Final = "marked"
DUPLICATE: Final = "duplicate"
REJECTED: Final = "rejected"
NONE: Final = "none"
"""Fates: went out; went out as a duplicate; is a dead letter, as a duplicate or for another reason;
nothing is to be seen of it."""


class Violation(NamedTuple):
    """One thing that must not be, and where."""

    kind: str
    topic: str
    partition: int
    offset: int
    said: str

    @property
    def place(self) -> str:
        """As dead letters write it."""
        return f"{self.topic}-{self.partition}@{self.offset}"


class AddressFound(NamedTuple):
    """What an address let through and kept out, and how large its ring would have to be."""

    address: str
    strategy: str
    size: int
    """Of the ring; 0 where nothing is remembered."""
    accepted: int
    duplicates: int
    missed: int
    """Copies that were accepted, because the ring had forgotten their id."""
    copies: int
    """All that came again, of ids whose first record is in the topics."""
    needed_99: int
    needed_999: int
    needed_all: int
    """Sizes that would have caught so many of the copies; 0 where there were none."""
    latest_copy_ms: int
    """How long after the record that was accepted the latest copy came."""
    is_exact: bool
    """Whether one partition decided in one order; else distances are estimated by time."""


class DuplicateDistances(NamedTuple):
    """Of one address: how many copies came at a distance of up to 2^`power`, above half of it."""

    address: str
    power: int
    caught: int
    missed: int


class TimeSlot(NamedTuple):
    """What came in a stretch of time, by the times of the records."""

    begin_ms: int
    accepted: int
    duplicates: int
    rejected: int
    latency_p50_ms: int | None
    """From a record's time to its decision, as dead letters tell it; None without any."""
    latency_p99_ms: int | None


class ReconcileResult(NamedTuple):
    """What was found."""

    group: str
    made_at: str
    inputs: tuple[str, ...]
    fates: Mapping[str, int]
    """Records by fate; `duplicate`, `rejected: REASON`, and `excused: WHY` for those without.

    `redriven` are dead letters that went out later.
    """
    faults_total: Mapping[str, int]
    """By kind."""
    faults: tuple[Violation, ...]
    """The first of each kind, by place."""
    addresses: tuple[AddressFound, ...]
    """Those that have missed something first, then those with most copies."""
    addresses_total: int
    distances: tuple[DuplicateDistances, ...]
    slots: tuple[TimeSlot, ...]
    slot_ms: int

    @property
    def is_faultless(self) -> bool:
        """Whether nothing is wrong; a ring that is too short is told, and no fault."""
        return not any(self.faults_total.values())

    @property
    def missed(self) -> int:
        """Copies that were accepted because rings were too short, at the addresses listed."""
        return sum(found.missed for found in self.addresses)


def to_json(findings: ReconcileResult) -> str:
    """As text that `from_json` reads."""
    told: dict[str, Any] = {"format": FORMAT, "faultless": findings.is_faultless}
    told |= findings._asdict()
    for name in ("faults", "addresses", "distances", "slots"):
        told[name] = [each._asdict() for each in told[name]]
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def from_json(text: str) -> ReconcileResult:
    """Findings that were written as JSON; PipelineError for anything else."""
    try:
        told = json.loads(text)
        if told.pop("format") != FORMAT:
            raise PipelineError(
                "these findings are of another version: reconcile anew", exit_code=USAGE
            )
        del told["faultless"]
        return ReconcileResult(
            **{
                **told,
                "inputs": tuple(told["inputs"]),
                "faults": tuple(Violation(**each) for each in told["faults"]),
                "addresses": tuple(AddressFound(**each) for each in told["addresses"]),
                "distances": tuple(DuplicateDistances(**each) for each in told["distances"]),
                "slots": tuple(TimeSlot(**each) for each in told["slots"]),
            }
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PipelineError(
            f"this is no JSON of ringfence pipeline reconcile --json ({error})", exit_code=USAGE
        ) from error
