"""Refusal trace: which records of one transaction made it fail.

The records of a traced partition are decided one at a time, so that each output, and each exception
that no check foresaw, belongs to one record. The client reports what became of every output: a
broker that refuses a batch names all of its bad records (KIP-467).
Invariant: a record is named only if it is certain that it is at fault.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import NamedTuple, Protocol

from ringfence_service.dedup.plan import BatchCounts, Output
from ringfence_service.kafka.errors import (
    BYSTANDER,
    ClientError,
    KafkaFailure,
    KafkaFailureError,
    fault_of,
)
from ringfence_state.model import PartitionId

Position = tuple[PartitionId, int]
"""A partition that decides, and an offset in it."""


class UndecidedError(KafkaFailureError):
    """A record could not be decided; which one is not known yet."""


class Refused(IntEnum):
    """What of a record failed, in the order in which it is given up."""

    REPLY = 0
    DEAD_LETTER = 1
    """A dead letter that was sent for it, or the record itself."""
    RECORD = 2


class NamedRecord(NamedTuple):
    """A record that is at fault."""

    what: Refused
    failure: KafkaFailure


class OutputCounts(NamedTuple):
    """How many replies and dead letters a transaction has so far."""

    replies: int
    dead_letters: int

    @classmethod
    def of(cls, tally: BatchCounts) -> "OutputCounts":
        """Return the counts of a tally."""
        replies = sum(count for (_, result), count in tally.replies.items() if result == "sent")
        return cls(replies, tally.dead_letters.total())

    def since(self, earlier: "OutputCounts") -> "OutputCounts":
        """Return how many were added since an earlier count."""
        return OutputCounts(
            self.replies - earlier.replies, self.dead_letters - earlier.dead_letters
        )

    @property
    def suspect(self) -> Refused:
        """What is given up first of a record with these outputs, one of which was refused."""
        if self.replies:
            return Refused.REPLY
        return Refused.DEAD_LETTER if self.dead_letters else Refused.RECORD


class Report(Protocol):
    """The message of a delivery report."""

    def topic(self) -> str | None:
        """Return the topic of the output."""

    def partition(self) -> int | None:
        """Return the partition of the output."""


class _Refusal(NamedTuple):
    position: Position
    what: Refused
    failure: KafkaFailure


@dataclass(slots=True)
class RefusalTrace:
    """Reports and exceptions of one transaction, by record."""

    sources: frozenset[PartitionId]
    """The partitions whose records are traced."""
    broker_names_records: bool = False
    """Whether the broker has ever named the bad records of a batch."""
    is_whole: bool = True
    """Whether all records of the transaction are traced."""
    is_complete: bool = True
    """Whether every output was reported as stored or refused, and not as never sent."""
    failures: dict[Position, KafkaFailure] = field(default_factory=dict)
    """Exceptions that no check foresaw."""
    _refusals: dict[tuple[str, int], list[_Refusal]] = field(default_factory=dict)
    """By topic and partition of the output."""

    def check(self) -> None:
        """Raise UndecidedError if the checks of a record failed."""
        for failure in self.failures.values():
            raise UndecidedError(failure)

    def watched(
        self, position: Position, outputs: Sequence[Output], counts: OutputCounts
    ) -> Sequence[Output]:
        """Return the outputs of one record with delivery reports; replies come last."""
        rest = counts._replace(replies=0).suspect
        replies_from = len(outputs) - counts.replies
        watched: list[Output] = []
        for row, (topic, value, key, partition, _, _, time_ms, headers) in enumerate(outputs):
            what = rest if row < replies_from else Refused.REPLY
            note = partial(self._reported, position, what)
            watched.append((topic, value, key, partition, note, None, time_ms, headers))
        return watched

    def _reported(
        self, position: Position, what: Refused, error: ClientError | None, report: Report
    ) -> None:
        """Take a delivery report; the message must not be read where the error is fatal."""
        if error is None:
            return
        if error.code() == BYSTANDER:
            self.broker_names_records = True
        elif (failure := fault_of(error)).of_record:
            partition = report.topic() or "", report.partition() or 0
            failure = failure._replace(topic=partition[0])
            self._refusals.setdefault(partition, []).append(_Refusal(position, what, failure))
        else:
            self.is_complete = False

    @property
    def is_ambiguous(self) -> bool:
        """Whether all reported records of a batch may be bad, or one of them."""
        return not self.broker_names_records and any(
            sum(not each.failure.too_large for each in refusals) > 1
            for refusals in self._refusals.values()
        )

    def named(self, fault: KafkaFailure) -> dict[Position, NamedRecord]:
        """Return the records that are at fault, as far as that is certain.

        `fault` is the failure of the transaction, which says more than the reports on its records.
        """
        found = {at: NamedRecord(Refused.RECORD, failure) for at, failure in self.failures.items()}
        for refusals in self._refusals.values():
            # Else the batch may have had others, which were not reported.
            is_alone = self.is_whole and len(refusals) == 1
            is_certain = self.broker_names_records or is_alone
            for position, what, failure in refusals:
                # A batch is too large only if it has one record: larger ones are not made.
                if is_certain or failure.too_large:
                    says_more = failure.too_large == fault.too_large
                    why = fault._replace(topic=failure.topic) if says_more else failure
                    known = found.get(position)
                    if known is None or what < known.what:
                        found[position] = NamedRecord(what, why)
        return found
