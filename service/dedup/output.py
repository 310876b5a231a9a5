"""Output: the topic and partition that a record goes to, and the records that the broker refuses.

A record that names a topic which is not allowed or does not exist is rejected. A topic that the
configuration names and that does not exist is the broker's fault, and the loop waits for it.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ringfence.headers import Headers, Reason
from service.dedup.partition import OwnedPartition
from service.dedup.plan import BY_KEY, Plan
from service.dedup.record import Record, RejectedError, UnrenderableError
from service.dedup.route import InputPartition, Template, is_legal_topic
from service.kafka.admin import TopicInfo
from service.kafka.errors import KafkaFailure
from service.kafka.topics import OutputTopics
from state.model import PartitionId

# A record in a batch of its own: batch header, record header and lengths, rounded down:
# what may still fit is for the broker to refuse.
_RECORD_OVERHEAD_BYTES: Final = 68


class TargetMissingError(Exception):
    """A topic is absent as far as is known: that is the broker's fault, not the record's."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


class OutputTopic(NamedTuple):
    """A topic, and where in it: the partition for records with a key, and for those without."""

    topic: str
    record_bytes_max: int
    keyed: int
    unkeyed: int

    def partition(self, key: bytes | None) -> int:
        """The partition of one record, or BY_KEY."""
        return self.unkeyed if key is None else self.keyed


@dataclass(frozen=True, slots=True)
class OutputResolver:
    """What decides where records of all partitions go."""

    targets: OutputTopics
    fallback: str
    compressing: bool
    """Only the broker knows then whether a record fits its topic."""
    refused: Mapping[tuple[PartitionId, int], RejectedError]
    """Records that the broker refused by themselves, found by halving a batch."""
    undeliverable: AbstractSet[tuple[PartitionId, int]]
    """Those of them that their dead-letter topic refused as well."""

    def output(
        self, input_partition: InputPartition, key: bytes | None, headers: Headers, address: str
    ) -> OutputTopic:
        """Where an accepted record goes; RejectedError when it names no allowed topic."""
        return self.named(input_partition, input_partition.route.output, key, headers, address)

    def check_refusal(self, position: tuple[PartitionId, int]) -> None:
        """RejectedError where the broker has refused the record before."""
        refusal = self.refused.get(position)
        if refusal is not None:
            raise refusal

    def failure(self, source: PartitionId, offsets: Sequence[int]) -> RejectedError | None:
        """Why the checks of a record are not run again: it was alone when they failed.

        It is read alone again, since batches do not grow before it is passed.
        """
        refusal = self.refused.get((source, offsets[0]))
        is_failure = refusal is not None and refusal.why.reason is Reason.FAILED_CHECK
        return refusal if is_failure and len(offsets) == 1 else None

    def check_size(
        self, target: OutputTopic, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        """RejectedError where the record is known not to fit."""
        if self.compressing:
            return
        size = size_bytes(key, value, headers)
        if size > target.record_bytes_max:
            cause = f"{size} bytes with its headers; {target.topic} takes {target.record_bytes_max}"
            raise RejectedError(Reason.TOO_LARGE, cause)

    def dead_letter(
        self,
        input_partition: InputPartition,
        record: Record,
        letter: Headers,
        address: str | None,
        reason: Reason,
        blamed: tuple[PartitionId, int],
    ) -> OutputTopic:
        """The route's own topic where it takes the letter whole, else the fallback.

        `blamed` is the place of the record which the broker refuses where it refuses the letter.
        """
        key, template = record.key(), input_partition.route.dead_letter
        has_own = (
            reason is not Reason.NO_OUTPUT
            and blamed not in self.undeliverable
            and not (address is None and template.constant is None)
        )
        if has_own:
            with suppress(RejectedError):
                target = self.named(input_partition, template, key, letter, address or "")
                if size_bytes(key, record.value(), letter) <= target.record_bytes_max:
                    return target
        return self._found(input_partition, self.fallback)

    def named(
        self,
        input_partition: InputPartition,
        template: Template,
        key: bytes | None,
        headers: Headers,
        address: str,
    ) -> OutputTopic:
        """The topic of a template; RejectedError when the record names none that is allowed."""
        name = template.constant
        if name is None:
            try:
                name = template.render(key, headers, address)
            except UnrenderableError as error:
                raise RejectedError(Reason.NO_OUTPUT, str(error)) from None
            allowed = input_partition.route.settings.allowed_outputs
            if not is_legal_topic(name) or name not in allowed:
                raise RejectedError(Reason.NO_OUTPUT, f"{name[:249]!r} is not an allowed output")
        return self._found(input_partition, name, is_chosen=template.constant is None)

    def _found(
        self, input_partition: InputPartition, name: str, *, is_chosen: bool = False
    ) -> OutputTopic:
        info = self.targets.find(name)
        if info is None:
            if is_chosen and self.targets.is_absent(name):
                raise RejectedError(Reason.NO_OUTPUT, f"the topic {name} does not exist")
            raise TargetMissingError(name)
        return _target(input_partition, name, info)


def _target(input_partition: InputPartition, name: str, info: TopicInfo) -> OutputTopic:
    """The input's partition where both topics have as many, else by key, else folded."""
    number = input_partition.source.partition
    keyed = number if info.partitions == input_partition.partitions else BY_KEY
    return OutputTopic(name, info.record_bytes_max, keyed, number % info.partitions)


def size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record takes in a batch of its own, uncompressed; a little less than it really is."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, header in headers:
        size += 2 + len(name) + len(header or b"")
    return size


@dataclass(slots=True)
class PoisonRecords:
    """Records that were refused by themselves, and the batch size that finds them."""

    records_max: int
    by_position: dict[tuple[PartitionId, int], RejectedError] = field(default_factory=dict)
    undeliverable: set[tuple[PartitionId, int]] = field(default_factory=set)
    """Records whose dead letters, or those of records that they displaced, were refused."""
    suspects: dict[PartitionId, int] = field(default_factory=dict)
    """Where the refused records end, by partition."""

    def narrow(self, plan: Plan, fault: KafkaFailure) -> bool:
        """Halve; of one record we know which: dead letters next, the fallback at last.

        False when the fallback refused it too, and when nothing was read: nothing is left to try.
        An exception is then raised again, for it is no record that causes it.
        """
        if self._narrows(plan, fault):
            return True
        if fault.raised is not None:
            raise fault.raised
        return False

    def _narrows(self, plan: Plan, fault: KafkaFailure) -> bool:
        if plan.given_up:
            is_new = not plan.given_up <= self.undeliverable
            self.undeliverable |= plan.given_up
            return is_new
        records = plan.tally.records_read
        if not records:
            return False
        self.suspects.update(plan.next_offsets)
        if records > 1:
            self.records_max = max(1, records // 2)
            return True
        ((source, end),) = plan.next_offsets.items()
        position = (source, end - 1)
        is_dead_lettered = self._is_dead_lettered(position, fault)
        # A record may have been accepted while a dead letter beside it was refused.
        has_dead_letter = fault.raised is None and plan.tally.dead_letters.total() > 0
        if position not in self.undeliverable and (is_dead_lettered or has_dead_letter):
            self.undeliverable.add(position)
            return True
        if is_dead_lettered:
            return False
        self.undeliverable.discard(position)
        self.by_position[position] = _rejection(fault)
        return True

    def halve(self, plan: Plan) -> None:
        """Read half as much as this plan did, though no record is to blame."""
        if plan.tally.records_read:
            self.records_max = max(1, plan.tally.records_read // 2)

    def _is_dead_lettered(self, position: tuple[PartitionId, int], fault: KafkaFailure) -> bool:
        """Whether the record is dead-lettered already, without its checks where they failed."""
        known = self.by_position.get(position)
        if known is None or fault.raised is None:
            return known is not None
        return known.why.reason is Reason.FAILED_CHECK

    def passed(self, running: Mapping[PartitionId, OwnedPartition], records_max: int) -> None:
        """A transaction went through; batches grow again when all that was refused is behind us."""

        def is_ahead(source: PartitionId, offset: int) -> bool:
            return source in running and running[source].next_offset <= offset

        for position in [position for position in self.by_position if not is_ahead(*position)]:
            del self.by_position[position]
        self.undeliverable -= {
            position for position in self.undeliverable if not is_ahead(*position)
        }
        for source in [s for s, end in self.suspects.items() if not is_ahead(s, end - 1)]:
            del self.suspects[source]
        if not self.suspects:
            self.records_max = min(records_max, 2 * self.records_max)


def _rejection(fault: KafkaFailure) -> RejectedError:
    """Why a record is dead-lettered that caused a fault when it was alone."""
    if fault.raised is not None:
        return RejectedError(Reason.FAILED_CHECK, f"its checks failed with {fault.cause}")
    reason = Reason.TOO_LARGE if "SIZE" in fault.cause else Reason.NO_OUTPUT
    return RejectedError(reason, f"the broker refused it: {fault.cause}")
