"""Output: the topic and partition that a record goes to, and whether the topic takes the record.

A record that names a topic which is not allowed or does not exist is rejected, and so is one that
its topic is known to refuse: for want of a key, for its time or for its size. If a topic that the
configuration names does not exist, no record is at fault: the partition waits for the topic.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from ringfence_client.headers import Headers, Reason
from ringfence_service.dedup.field import UnrenderableError
from ringfence_service.dedup.plan import BY_KEY
from ringfence_service.dedup.record import Record, RejectedError
from ringfence_service.dedup.route import InputPartition, Template
from ringfence_service.errors import AwaitedError
from ringfence_service.kafka.compression import Compression, UncompressedError
from ringfence_service.kafka.model import Present, TopicInfo
from ringfence_service.kafka.topics import OutputTopics, RecordLimits, room_bytes
from ringfence_state.model import PartitionId

_RECORD_OVERHEAD_BYTES: Final = 68
"""Overhead of a record in a batch of its own: a header of 61 bytes, and 7 of the record.

Rounded down, with one byte for each length: the broker decides on records at the limit.
"""


class TargetMissingError(AwaitedError):
    """A target topic is missing or not to be written by us, and no record is to blame."""

    def __init__(self, topic: str, sentence: str, is_known: Callable[[], bool]) -> None:
        """`sentence` is what it awaits; `is_known` returns whether the topic is known by now."""
        super().__init__(sentence, lambda: None if is_known() else sentence)
        self.topic = topic


class OutputTopic(NamedTuple):
    """A topic, with the partition for records with a key and that for records without."""

    topic: str
    info: TopicInfo
    keyed: int
    unkeyed: int

    def partition(self, key: bytes | None) -> int:
        """Return the partition for a record with this key, or BY_KEY."""
        return self.unkeyed if key is None else self.keyed


@dataclass(frozen=True, slots=True)
class OutputResolver:
    """Resolves target topics for records of all partitions."""

    targets: OutputTopics
    fallback: str
    compression: Compression
    refused: Mapping[tuple[PartitionId, int], RejectedError]
    """Records that the broker refused, or whose checks failed."""
    undeliverable: AbstractSet[tuple[PartitionId, int]]
    """Those whose dead-letter topic refused them as well."""
    unanswerable: AbstractSet[tuple[PartitionId, int]]
    """Records that were refused together with the reply that they ask for."""

    def output(
        self, input_partition: InputPartition, record: Record, headers: Headers, address: str
    ) -> OutputTopic:
        """Return the topic of an accepted record; RejectedError if it names no allowed topic."""
        return self.named(input_partition, input_partition.route.output, record, headers, address)

    def check_refusal(self, position: tuple[PartitionId, int]) -> None:
        """Raise RejectedError if the broker refused the record at this position before."""
        refusal = self.refused.get(position)
        if refusal is None:
            return
        limit = self._exceeded(position)
        if limit is not None:
            cause = f"{refusal.why.cause}; {refusal.topic} takes {limit}"
            raise RejectedError(refusal.why.reason, cause)
        raise refusal

    def _exceeded(self, position: tuple[PartitionId, int]) -> int | None:
        """Return the limit that the record exceeds although it was compressed, if it is known."""
        refusal = self.refused.get(position)
        if refusal is None or refusal.why.reason is not Reason.TOO_LARGE or refusal.topic is None:
            return None
        info = self.targets.find(refusal.topic)
        return None if info is None else info.record_bytes_max

    def noted(self, source: PartitionId) -> set[int]:
        """Return the offsets of a partition's records that the broker refused in any way."""
        positions = chain(self.refused, self.undeliverable, self.unanswerable)
        return {offset for of, offset in positions if of == source}

    def has_room(self, topic: TopicInfo) -> bool:
        """Whether a topic takes any record with an envelope but large ones."""
        return self.compression.is_configured or room_bytes(topic) > 0

    def limits(self, names: tuple[str, ...]) -> RecordLimits:
        """Return what every one of these topics takes, as far as it is known here."""
        limits, is_unknown = self.targets.limits(names), self.compression.is_configured
        return limits._replace(room_bytes=sys.maxsize) if is_unknown else limits

    def failed(self, source: PartitionId) -> frozenset[int]:
        """Return the offsets of records whose checks failed; each of them is decided alone."""
        return frozenset(
            offset
            for (of, offset), refusal in self.refused.items()
            if of == source and refusal.why.reason is Reason.FAILED_CHECK
        )

    def failure(self, source: PartitionId, offsets: Sequence[int]) -> RejectedError | None:
        """Return why the checks of a record that is decided alone are not run again, or None."""
        refusal = self.refused.get((source, offsets[0]))
        is_failure = refusal is not None and refusal.why.reason is Reason.FAILED_CHECK
        return refusal if is_failure and len(offsets) == 1 else None

    def check_fits(
        self,
        target: OutputTopic,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        present: Present,
        taken_bytes: int | None = None,
    ) -> None:
        """Raise RejectedError if the topic is known to refuse the record.

        What is near a limit of time, or may be small enough once compressed, is left to the broker.
        `taken_bytes` is what the record's input takes, so a larger record came compressed; None for
        what came from no input, which is never compressed for its size. UncompressedError if the
        record fits with a codec that the producer does not use yet.
        """
        refusal = _refusal(target, key, timestamp_ms, present)
        size, info = size_bytes(key, value, headers), target.info
        if refusal is None and size > info.record_bytes_max and not self.compression.is_configured:
            codec = None
            if taken_bytes is not None and info.compresses:
                parts = list(_parts(key, value, headers))
                is_packed = size > taken_bytes
                codec = self.compression.needed_for(
                    parts, info.record_bytes_max, may_be_zstd=is_packed
                )
            if codec is None:
                refusal = self._too_large(target, size)
            elif not self.compression.use(codec):
                raise UncompressedError
        if refusal is not None:
            self.targets.has_refused = True
            raise RejectedError(*refusal)

    def _too_large(self, target: OutputTopic, size: int) -> tuple[Reason, str]:
        """Return why a topic refuses a record of this size, with limit and remedy."""
        topic, info, also, more = target.topic, target.info, ", compressed as well", ""
        if not info.compresses:
            also, more = "", f", or set its compression.type, {info.compression}, to producer"
        elif self.compression.is_off:
            also, more = "", ", or remove compression.type from [kafka.producer]"
        return Reason.TOO_LARGE, (
            f"it is too large{also}: {size} bytes with its headers; {topic} takes "
            f"{info.record_bytes_max}; raise its max.message.bytes{more}"
        )

    def dead_letter(
        self,
        input_partition: InputPartition,
        record: Record,
        letter: Headers,
        address: str | None,
        reason: Reason,
        blamed: tuple[PartitionId, int],
        now_ms: int,
    ) -> OutputTopic:
        """Return the route's dead-letter topic if it takes the dead letter, else the fallback.

        `blamed` is the position of the record at fault if the broker refuses the dead letter.
        """
        template = input_partition.route.dead_letter
        has_own = (
            reason is not Reason.NO_OUTPUT
            and blamed not in self.undeliverable
            and not (address is None and template.constant is None)
        )
        if has_own:
            with suppress(RejectedError):
                target = self.named(input_partition, template, record, letter, address or "")
                key, value = record.key(), record.value()
                size, limit = size_bytes(key, value, letter), target.info.record_bytes_max
                if limit < size and limit <= (self._exceeded(blamed) or 0):
                    raise RejectedError(*self._too_large(target, size))
                present, taken_bytes = Present.at(now_ms), input_partition.record_bytes_max
                self.check_fits(target, key, value, letter, now_ms, present, taken_bytes)
                return target
        return self._found(input_partition, self.fallback, is_chosen=False)

    def is_unanswerable(self, position: tuple[PartitionId, int]) -> bool:
        """Whether the broker refused the record at this position together with its reply."""
        return position in self.unanswerable or position in self.undeliverable

    def reply(self, input_partition: InputPartition, name: str) -> OutputTopic | None:
        """Return the topic that a record names for its reply; None if it may not or cannot be."""
        if name in input_partition.route.settings.reply_topics:
            with suppress(RejectedError):
                return self._found(input_partition, name, is_chosen=True)
        return None

    def named(
        self,
        input_partition: InputPartition,
        template: Template,
        record: Record,
        headers: Headers,
        address: str,
    ) -> OutputTopic:
        """Return the topic of a template; RejectedError if the record names no allowed one."""
        name = template.constant
        if name is None:
            try:
                name = template.render(record, headers, address)
            except UnrenderableError as error:
                raise RejectedError(Reason.NO_OUTPUT, str(error)) from None
            if name not in input_partition.route.settings.allowed_outputs:
                raise RejectedError(Reason.NO_OUTPUT, f"{name[:249]!r} is not an allowed output")
        return self._found(input_partition, name, is_chosen=template.constant is None)

    def _found(self, input_partition: InputPartition, name: str, *, is_chosen: bool) -> OutputTopic:
        info = self.targets.find(name)
        if info is None:
            if is_chosen and self.targets.is_absent(name):
                raise RejectedError(Reason.NO_OUTPUT, f"the topic {name} does not exist")
            is_known = partial(self._is_known, name, is_chosen=is_chosen)
            raise TargetMissingError(name, self.targets.why_missing(name), is_known)
        return _target(input_partition, name, info)

    def _is_known(self, name: str, *, is_chosen: bool) -> bool:
        """Whether a topic that was missing exists now, or is known not to and a record chose it."""
        return self.targets.find(name) is not None or (is_chosen and self.targets.is_absent(name))


def _target(input_partition: InputPartition, name: str, info: TopicInfo) -> OutputTopic:
    """Keep the number if both topics have equally many partitions; else by key, or modulo."""
    number = input_partition.source.partition
    keyed = number if info.partitions == input_partition.partitions else BY_KEY
    return OutputTopic(name, info, keyed, number % info.partitions)


def _refusal(
    target: OutputTopic, key: bytes | None, timestamp_ms: int, present: Present
) -> tuple[Reason, str] | None:
    """Return why a topic refuses a record whatever its size, with limit and remedy, or None."""
    topic, info = target.topic, target.info
    if key is None and info.needs_key:
        return Reason.MISSING_KEY, (
            f"it has no key, and {topic} is compacted, so it takes none without; have the "
            f"publisher give keys, or set cleanup.policy of {topic} to delete"
        )
    fault = info.time_fault(timestamp_ms, present)
    if fault is not None:
        setting, limit_ms = fault
        late_ms = present.now_ms - timestamp_ms
        when = f"{abs(late_ms)} ms {'before' if late_ms > 0 else 'after'} the present"
        return Reason.INVALID_TIMESTAMP, (
            f"its timestamp is {when}; {topic} takes {limit_ms}; correct the publisher's clock or "
            f"unit, or raise {setting} of {topic}"
        )
    return None


def _parts(key: bytes | None, value: bytes | None, headers: Headers) -> Iterator[bytes]:
    """Yield the contents of a record in the order of a batch."""
    yield key or b""
    yield value or b""
    for name, header in headers:
        yield name.encode()
        yield header or b""


def size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the uncompressed size of a batch with this record alone, slightly underestimated."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, header in headers:
        size += 2 + len(name) + len(header or b"")
    return size
