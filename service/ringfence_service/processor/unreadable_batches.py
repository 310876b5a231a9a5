"""Unreadable batches: batches in an input that the client refuses to unpack.

The client never passes such a batch (`service/ringfence_service.kafka.unreadable_batch.py`). Its
partition is blocked, and a consumer of its own fetches from offsets of the log. A fetch from an
offset within the batch returns the batch's error again. That is how the offset after the batch is
found, which no error names, and from time to time whether the batch was deleted. A batch has an end
only after a fetch from the partition's next offset has returned its error: then no record before
the batch is left to be decided.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import UNREADABLE_BATCH
from ringfence_service.kafka.io import assign_anew
from ringfence_service.kafka.unreadable_batch import UnreadableBatchFault
from ringfence_service.processor.fetcher import Fetcher
from ringfence_state.model import PartitionId

_PROBE_S: Final = 10.0
"""A probe without a result by then is made again."""
_AGAIN_S: Final = 60.0
"""How often a probe checks that a batch is still there. Each unpacks it, up to the limit."""
_END_S: Final = 2.0
"""How long the broker may take to return the end of a log. The loop does nothing else meanwhile."""


class UnreadableBatch:
    """One such batch of an input: its error, and the offsets between which it ends."""

    def __init__(self, source: PartitionId, error: KafkaError, next_offset: int) -> None:
        """`next_offset` is that of the partition."""
        self.source = source
        self.error = error.str()
        self.refused = UnreadableBatchFault.of(error, next_offset)
        self.start = next_offset
        """The next offset of its partition, from which it is met."""
        self.inside: int | None = None
        """The last offset that is known to be in it; None before the first probe."""
        self.outside: int | None = None
        """The first offset that is known to be behind it; None until the log's end was asked."""
        self.probed_s = float("-inf")
        """When it was last seen to be there."""

    @property
    def first(self) -> int:
        """The first of its offsets that the partition has not passed."""
        return max(self.refused.first, self.start)

    @property
    def end(self) -> int | None:
        """The offset after it; None if it is not found yet."""
        is_found = self.inside is not None and self.outside == self.inside + 1
        return self.outside if is_found else None

    @property
    def sentence(self) -> str:
        """What its partition waits for, and what to do."""
        topic, number = self.source
        skip = f"ringfence partition skip {topic} {number} --offset {self.first}"
        return f"{self.refused.sentence(self.source)}, or go on without its records: {skip}"


class _Probe(NamedTuple):
    """A fetch from an offset, which shows whether a batch contains it."""

    batch: UnreadableBatch
    offset: int
    since_s: float


class UnreadableBatches:
    """The unreadable batches that partitions of one life have met."""

    def __init__(self, clients: Clients, fetching: Fetcher, clock: Clock) -> None:
        self._clients = clients
        self._fetching = fetching
        self._clock = clock
        self._met: dict[PartitionId, UnreadableBatch] = {}
        """Partitions that are not blocked yet."""
        self._batches: dict[PartitionId, UnreadableBatch] = {}
        self._consumer: Consumer | None = None
        """It probes; None while no batch is known."""
        self._probe: _Probe | None = None
        self._later_s = float("-inf")
        """When to ask the broker again, after it has not answered."""

    def meet(self, partition: OwnedPartition, error: KafkaError) -> None:
        """Note an error `UNREADABLE_BATCH` that the group's consumer reported for a partition."""
        source, known = partition.source, self._batches.get(partition.source)
        if known is None or known.error != error.str():
            known = UnreadableBatch(source, error, partition.next_offset)
        self._met[source] = known

    def rewound(self) -> None:
        """Forget partitions that are not blocked yet: what precedes the batch is read again."""
        self._met.clear()

    def step(
        self, running: Mapping[PartitionId, OwnedPartition], *, is_all_committed: bool
    ) -> None:
        """Block partitions, and advance the search; called between two transactions.

        `is_all_committed`: nothing that the group's consumer has delivered is still to be decided.
        """
        if not (self._met or self._batches or self._consumer):
            return
        for source in self._batches.keys() - running.keys():
            del self._batches[source]
        if self._met and is_all_committed:
            met = {source: batch for source, batch in self._met.items() if source in running}
            self._met = {}
            for source, batch in met.items():
                batch.start = running[source].next_offset
                self._batches[source] = batch
                self._fetching.block(source, batch.sentence, partial(self._awaits, batch))
        if self._clock.monotonic_s() < self._later_s:
            return
        try:
            self._search()
        except KafkaException:
            # It is not reported, since the group's consumer meets it too. A request may have taken
            # two seconds, in which no partition was read.
            self._later_s = self._clock.monotonic_s() + _PROBE_S

    def blocking(self, source: PartitionId) -> UnreadableBatch | None:
        """Return the batch behind which a partition is blocked; None if it is not."""
        return self._batches.get(source) if source in self._fetching.blocks else None

    def passed(self, source: PartitionId) -> None:
        """Note that the partition's next offset is behind the batch: it is read again."""
        self._batches.pop(source, None)

    def close(self) -> None:
        """Close the consumer."""
        consumer, self._consumer, self._probe = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def _awaits(self, batch: UnreadableBatch) -> str | None:
        return None if self._is_over(batch) else batch.sentence

    def _is_over(self, batch: UnreadableBatch) -> bool:
        return self._batches.get(batch.source) is not batch

    def _search(self) -> None:
        """Look for the result of the current probe, and begin the next one."""
        if not self._batches:
            self.close()
            return
        if self._consumer is None:
            self._consumer = self._clients.observer()
        probe = self._probe
        if probe is not None:
            found = self._result(self._consumer, probe)
            late = self._clock.monotonic_s() - probe.since_s > _PROBE_S
            if found is None and not late:
                return
            self._probe = None
            if not self._is_over(probe.batch):
                self._batches[probe.batch.source] = self._batches.pop(probe.batch.source)
                if found is not None:
                    self._conclude(probe, is_inside=found)
        self._begin(self._consumer)
        if probe is not None and self._probe is None:
            self._consumer.unassign()  # else it would unpack the batch twice a second

    def _begin(self, consumer: Consumer) -> None:
        """Begin the probe that is due, if any; the partition that was probed last comes last."""
        now_s = self._clock.monotonic_s()
        for batch in self._batches.values():
            if batch.outside is None:
                partition = TopicPartition(*batch.source)
                # What lies behind an open transaction, a batch of it included, is not delivered.
                stable = consumer.get_watermark_offsets(partition, timeout=_END_S)[1]
                batch.outside = max(stable, batch.first + 1)
            if batch.inside is not None and batch.end is None:
                offset = (batch.inside + batch.outside) // 2
            elif now_s - batch.probed_s < _AGAIN_S:
                continue
            else:
                offset = batch.start
            assign_anew(consumer, [TopicPartition(*batch.source, offset)])
            self._probe = _Probe(batch, offset, now_s)
            return

    def _result(self, consumer: Consumer, probe: _Probe) -> bool | None:
        """Return whether the probe was within its batch; None without an answer."""
        for message in consumer.consume(1, 0):
            error = message.error()
            if error is None or error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its name
                return False
            if error.code() == UNREADABLE_BATCH:
                return _is_of(message, error, probe.batch)
        # Markers are not delivered, and advance the position, those before the batch included.
        (position,) = consumer.position([TopicPartition(*probe.batch.source)])
        return False if position.offset > max(probe.offset, probe.batch.first) else None

    def _conclude(self, probe: _Probe, *, is_inside: bool) -> None:
        batch = probe.batch
        if probe.offset == batch.start:
            batch.probed_s = self._clock.monotonic_s()
            if not is_inside:
                # A record precedes it, or it was deleted, or compaction has rewritten it.
                self.passed(batch.source)
            elif batch.inside is None:
                batch.inside = batch.first
        elif is_inside:
            batch.inside = probe.offset
        else:
            batch.outside = probe.offset


def _is_of(message: Message, error: KafkaError, batch: UnreadableBatch) -> bool:
    """Whether an error is about this batch, and not about one behind it."""
    partition = message.topic(), message.partition()
    return partition == batch.source and error.str() == batch.error
