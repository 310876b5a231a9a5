"""Repartitioner: forwards the records of scopes `address` and `id` to the repartition topic.

Nothing is decided or remembered here. The record goes unchanged to the partition of its key
(`ringfence_service.dedup.repartition_keys`), with one more header: the origin, its position in the
input.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ringfence_client.headers import DUPLICATE_ID_ALIASES, EXPIRES_AT, GROUP, Headers, Reason
from ringfence_service.dedup.address import AddressContexts
from ringfence_service.dedup.apart import ApartRows
from ringfence_service.dedup.batch import Batch, Slice
from ringfence_service.dedup.checks import Checks, DecisionContext, DecisionProgress
from ringfence_service.dedup.field import UNNAMED, compiled_name
from ringfence_service.dedup.output import OutputTopic
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.dedup.record import Record, RejectedError, name_of, origin_header
from ringfence_service.dedup.repartition_keys import BY_ID, RepartitionKeys, prefix_of
from ringfence_service.errors import AwaitedError
from ringfence_service.kafka.model import UNREADABLE, UNREADABLE_CAUSE
from ringfence_service.native.records import Records
from ringfence_state.model import NO_CLAIM

ID_NAMES: Final = (*DUPLICATE_ID_ALIASES, GROUP, EXPIRES_AT), len(DUPLICATE_ID_ALIASES)
"""The headers that determine a partition with scope `id`, and how many of them hold an id.

An invalid expiry makes the whole claim invalid.
"""

_KNOWN_MAX: Final = 100_000
"""How many values of the address field are kept with their partitions in a transaction.

By default it has 10,000 records, but up to a million are allowed. When it is full, all are
forgotten, and each value costs its partition to be computed again.
"""


class Repartitioner:
    """Forwards the records of one input partition in one transaction."""

    def __init__(self, partition: OwnedPartition, rules: DecisionContext, plan: Plan) -> None:
        assert partition.input_partition is not None  # repartitioned records come from an input
        self._input_partition = input_partition = partition.input_partition
        self._rules = rules
        self._plan = plan
        self._progress = DecisionProgress(partition.source, partition.time_ms)
        contexts = AddressContexts(partition, rules.book, rules.cache)  # no context is opened
        self._checks = Checks(input_partition, rules, plan.tally, contexts, self._progress)
        self._name = name_of(input_partition.source)
        self._reads_schemas = input_partition.route.reads_schemas
        self._field = input_partition.route.address.field
        # With several fields no single value decides the address.
        self._has_value = input_partition.route.address.constant is not None or self._field
        topic = rules.by_address.topic
        self._apart = ApartRows(rules.output_resolver, partition.source, (topic,))
        self._keys = RepartitionKeys(input_partition, rules.book)
        self._is_by_address = input_partition.route.settings.scope == "address"
        self._targets: dict[bytes | None, int | tuple[bytes, int]] = {}
        """The target partition, by the value of the one field that decides the address.

        With scope `id` it is the start of the keys of all ids, and the partition of records without
        an id, where headers alone hold the ids.
        """

    def decide(self, part: Slice, batch: Batch) -> tuple[list[Output], int]:
        """Forward the records of a part of the batch in order, up to one that has to wait.

        Returns the outputs, and how many records were forwarded or dead-lettered.
        """
        unread = self._input_partition.route.unread(part.messages) if self._reads_schemas else None
        if unread is not None:
            source = part.partition.source
            self._plan.waiting[source] = AwaitedError(unread.sentence, unread.awaits)
            part = part.before(unread.row)
        progress, name = self._progress, self._name
        topic, rejected = self._rules.by_address.topic, 0
        bounds = batch.bounds(part.times_ms if self._apart.limits_times else ())
        progress.begin(bounds.present)
        apart = self._apart.of(part, bounds)
        doubtful = {part.offsets[row] for row in apart}
        if self._plan.on_headers is not None:
            self._plan.on_headers(part.headers)
        for message, offset, timestamp, found in self._others(part, apart):
            headers, key = found or (), message.key()
            try:
                if found is UNREADABLE:
                    headers = ()
                    raise RejectedError(Reason.UNREADABLE_HEADERS, UNREADABLE_CAUSE)
                if offset in doubtful:
                    self._checks.check_refusal(offset)
                number = self._partition_of(message, headers)
                carried = [*headers, origin_header(name, offset)]
                if offset in doubtful:
                    self._check_fits(message, carried)
            except RejectedError as error:
                rejected += 1
                self._checks.reject(message, headers, None, NO_CLAIM, error.why, offset)
                continue
            value, time_ms = message.value(), max(timestamp, 0)
            progress.outputs.append((topic, value, key, number, None, None, time_ms, carried))
        self._count(part, rejected)
        return progress.end(self._plan.tally), len(part.offsets)

    def _check_fits(self, record: Record, carried: Headers) -> None:
        """Raise RejectedError if the topic is known to refuse the record."""
        topic = self._rules.by_address.topic
        info = self._rules.output_resolver.targets.find(topic)
        if info is not None:
            self._checks.check_fits(OutputTopic(topic, info, 0, 0), record, carried)

    def _others(
        self, part: Slice, apart: Sequence[int]
    ) -> Iterator[tuple[Record, int, int, Headers | None]]:
        """Yield the records that compiled code has not forwarded; all of them without it."""
        records, field_name = part.messages, compiled_name(self._field)
        rows = zip(part.messages, part.offsets, part.times_ms, part.headers, strict=True)
        if not (isinstance(records, Records) and field_name != UNNAMED and self._has_value):
            yield from rows
            return
        topic = self._rules.by_address
        rules = self._targets, field_name, topic.topic, self._name, ID_NAMES, topic.partitions
        row = 0
        for end in (*apart, len(records)):
            run = records.part(0, end)
            while row <= end:
                at = run.forward(row, *rules)
                self._progress.send(records, row, at)
                if at < len(records):
                    yield records[at], part.offsets[at], part.times_ms[at], part.headers[at]
                row = at + 1

    def seal(self) -> Sequence[Output]:
        """Return no outputs: there is nothing to acknowledge."""
        return ()

    def _partition_of(self, record: Record, headers: Headers) -> int:
        """Return the partition that decides a record; RejectedError if it has no address."""
        topic, keys = self._rules.by_address, self._keys
        field, constant = self._field, self._input_partition.route.address.constant
        if constant is None and field is None:
            return topic.partition_of(keys.of(record, headers))
        value = None if field is None else field.of(record, headers)
        target = self._targets.get(value)
        if isinstance(target, int):
            return target
        number = topic.partition_of(keys.of(record, headers))
        if target is None and len(self._targets) >= _KNOWN_MAX:
            self._targets.clear()
        if self._is_by_address:
            self._targets[value] = number
        elif target is None:
            address = self._input_partition.address(record, headers)
            if keys.reads_ids_alone(address):
                unnamed = topic.partition_of(keys.without_name(address))
                self._targets[value] = prefix_of(address, BY_ID), unnamed
        return number

    def _count(self, part: Slice, rejected: int) -> None:
        tally, route = self._plan.tally, self._input_partition.route.settings.name
        tally.consumed[route] += rejected
        tally.carried[route] += len(part.offsets) - rejected
