"""Results of a reconciliation, as values for JSON and the report."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_state.strategies.registry import STRATEGIES

FORMAT: Final = 1

ACCEPTED: Final = "accepted"
MARKED: Final = "marked"
DUPLICATE: Final = "duplicate"
REJECTED: Final = "rejected"
NONE: Final = "none"
"""Fates of an input: went out; went out marked as a duplicate; dead letter as a duplicate; dead
letter for another reason; no trace."""


class Violation(NamedTuple):
    """A violation of the guarantees, and the position of the record that shows it."""

    kind: str
    topic: str
    partition: int
    offset: int
    said: str

    @property
    def place(self) -> str:
        """The position as topic-partition@offset."""
        return f"{self.topic}-{self.partition}@{self.offset}"


class AddressFound(NamedTuple):
    """An address: what it accepted and rejected, and the ring size that it needs."""

    address: str
    strategy: str
    size: int
    """Size of the ring; 0 if nothing is remembered."""
    accepted: int
    duplicates: int
    missed: int
    """Copies that were accepted because the ring had forgotten their id."""
    copies: int
    """All copies of ids whose first record is in the topics."""
    needed_99: int
    needed_999: int
    needed_all: int
    """Ring sizes that catch 99 %, 99.9 % and all of the copies; 0 without copies."""
    latest_copy_ms: int
    """The longest time from an accepted record to its copy."""
    is_exact: bool
    """Whether the order of decisions is known; if not, distances are estimated by time."""

    @property
    def is_ring(self) -> bool:
        """Whether the number of ids alone limits what the address holds."""
        strategy = STRATEGIES[self.strategy]
        return strategy.holds_ids and not strategy.time_key


class DuplicateDistances(NamedTuple):
    """The copies of an address at distances above 2^(`power` - 1), up to 2^`power`."""

    address: str
    power: int
    caught: int
    missed: int


class TimeSlot(NamedTuple):
    """The counts of a time slot, by record time."""

    begin_ms: int
    accepted: int
    duplicates: int
    rejected: int
    latency_p50_ms: int | None
    """From a record's time to its decision, measured on dead letters; None without any."""
    latency_p99_ms: int | None


class ReconcileResult(NamedTuple):
    """The result of a reconciliation."""

    group: str
    made_at: str
    inputs: tuple[str, ...]
    fates: Mapping[str, int]
    """Records by fate: `duplicate`, `rejected: REASON`, and `excused: WHY` without a fate.

    `redriven` are dead letters that went out later.
    """
    faults_total: Mapping[str, int]
    """Number of violations by kind."""
    faults: tuple[Violation, ...]
    """The first violations of each kind, by position."""
    addresses: tuple[AddressFound, ...]
    """Addresses with misses first, then those with most copies."""
    addresses_total: int
    distances: tuple[DuplicateDistances, ...]
    slots: tuple[TimeSlot, ...]
    slot_ms: int
    faults_new: int | None = None
    """Violations that the history did not have; None without a history."""

    @property
    def is_faultless(self) -> bool:
        """Whether there is no violation; a ring that is too short is not one."""
        return not any(self.faults_total.values())

    @property
    def missed(self) -> int:
        """Copies that were accepted because rings were too short, at the listed addresses."""
        return sum(found.missed for found in self.addresses)


def to_json(findings: ReconcileResult) -> str:
    """Return the result as JSON text for `from_json`."""
    document: dict[str, Any] = {"format": FORMAT, "faultless": findings.is_faultless}
    document |= findings._asdict()
    for name in ("faults", "addresses", "distances", "slots"):
        document[name] = [each._asdict() for each in document[name]]
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def from_json(text: str) -> ReconcileResult:
    """Return the result that `to_json` wrote; raise PipelineError for other text."""
    try:
        document = json.loads(text)
        if document.pop("format") != FORMAT:
            raise PipelineError(
                "these findings are of another version: reconcile again", exit_code=USAGE
            )
        del document["faultless"]
        return ReconcileResult(
            **{
                **document,
                "inputs": tuple(document["inputs"]),
                "faults": tuple(Violation(**each) for each in document["faults"]),
                "addresses": tuple(AddressFound(**each) for each in document["addresses"]),
                "distances": tuple(DuplicateDistances(**each) for each in document["distances"]),
                "slots": tuple(TimeSlot(**each) for each in document["slots"]),
            }
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise PipelineError(
            f"this is not the JSON of ringfence pipeline reconcile --json ({error})",
            exit_code=USAGE,
        ) from error
