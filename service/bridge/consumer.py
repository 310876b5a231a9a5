"""Bridge consumer: the partitions that the group has assigned, and the position of each.

The group's callbacks only record; `take_over` gives a partition to the fetcher with its exact
offset. Invariant: what is committed of a partition was delivered while the partition was owned; the
position of a revoked partition is dropped.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from service.bridge.clients import BridgeClients, asking
from service.bridge.topics import TopicMapping
from service.clock import Clock
from service.errors import ExitCode, ExitError
from service.kafka.io import by_source, errors_of, offsets_of
from state.model import PartitionId

_COMMITTED_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 5.0
_ANSWER_S: Final = 0.005
AT_ONCE: Final = 512
"""Records read in one call: those that stay in the processor's cache until they are sent."""
_KEPT_RECORDS_MAX: Final = 8 * AT_ONCE
_REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_GONE: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})  # noqa: SLF001


@dataclass(slots=True)
class SourcePartition:
    """One partition of a source topic, owned and read."""

    source: PartitionId
    crossing: TopicMapping
    committed: int
    """The offset after the last record that was delivered and committed."""
    sent: int
    """The offset after the last record that was handed to the producer."""


Parts = list[tuple[SourcePartition, list[Message]]]
Offsets = dict[PartitionId, int]


class BridgeConsumer:
    """The consumer, and what it owns."""

    def __init__(self, clients: BridgeClients, group_id: str, clock: Clock) -> None:
        self._consumer = clients.consumer(self._note_error, self._note_commit)
        self._cluster = clients.source
        self._clock = clock
        self._group_id = group_id
        self._crossings: Mapping[str, TopicMapping] = {}
        self._kept: Parts = []
        """What came while an answer was awaited; it is read next."""
        self._asked: Offsets = {}
        """Offsets to be committed that nobody has answered for."""
        self._refusal: KafkaError | None = None
        self.granted: set[PartitionId] = set()
        """Given to us, and not read yet."""
        self.running: dict[PartitionId, SourcePartition] = {}
        self._looked_s = clock.monotonic_s()
        self.rebalances = 0
        """How often the group has spoken; none before it was joined."""
        self.shaken = False
        """The consumer has lost its broker since somebody looked."""

    def subscribe(self, crossings: Mapping[str, TopicMapping]) -> None:
        """Read the sources of these; called again when they may have changed."""
        changed = crossings.keys() != self._crossings.keys()
        self._crossings = crossings
        for position in self.running.values():
            position.crossing = crossings.get(position.source.topic, position.crossing)
        if changed and crossings:
            topics = sorted(crossings)
            self._consumer.subscribe(
                topics,
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_revoke,
            )
        elif changed:
            self._consumer.unsubscribe()

    def take_over(self) -> None:
        """Read what was granted from where the group has come; ExitError where that is gone."""
        self._look_around()
        granted = sorted(source for source in self.granted if source.topic in self._crossings)
        if not granted:
            return
        with asking("source"):
            places = [Place(source.topic, source.partition) for source in granted]
            committed = self._consumer.committed(places, timeout=_COMMITTED_TIMEOUT_S)
            starts, ends = self._cluster.starts(granted), self._cluster.ends(granted)
            for source, place in zip(granted, committed, strict=True):
                self._begin(source, place, starts[source], ends[source])

    def _look_around(self) -> None:
        """Who owns nothing may have lost all brokers, of which the client tells no more."""
        now_s = self._clock.monotonic_s()
        if self.granted or self.running or not self._crossings:
            self._looked_s = now_s
        elif now_s - self._looked_s > _LOOK_S:
            with asking("source"):
                self._consumer.list_topics(min(self._crossings), timeout=_COMMITTED_TIMEOUT_S)
            self._looked_s = now_s

    def _begin(self, source: PartitionId, place: Place, start: int, end: int) -> None:
        if place.error is not None:
            raise KafkaException(place.error)
        crossing, offset = self._crossings[source.topic], place.offset
        if offset < 0:
            offset = OFFSET_BEGINNING
        elif not start <= offset <= end:
            raise self._lost(source, f"{offset} is not among {start} to {end}")
        self._consumer.incremental_assign([Place(source.topic, source.partition, offset)])
        self.granted.discard(source)
        self.running[source] = SourcePartition(source, crossing, offset, offset)

    def read(self, records_max: int, wait_s: float) -> Parts:
        """What has come, by partition; records that were seen before are left out."""
        kept, self._kept = self._kept, []
        parts = kept or self._consumed(records_max, wait_s)
        # A partition that was taken away meanwhile may be ours again, from another offset on.
        return [part for part in parts if self.running.get(part[0].source) is part[0]]

    def commit(self, waits: Callable[[float], None]) -> None:
        """Everything that was sent, which must have been delivered.

        Not by the call that waits for the answer itself: where the broker dies while it is asked,
        that call comes back a minute later. `waits` is told for how many seconds nobody has
        answered, and may raise.
        """
        ahead = [each for each in self.running.values() if each.sent > each.committed]
        self._asked = {position.source: position.sent for position in ahead}
        if not ahead:
            return
        places = [Place(*source, offset) for source, offset in self._asked.items()]
        started_s = self._clock.monotonic_s()
        self._refusal = None
        with asking("source"):
            self._consumer.commit(offsets=places, asynchronous=True)
            while self._asked:
                if sum(len(messages) for _, messages in self._kept) >= _KEPT_RECORDS_MAX:
                    self._clock.sleep(_ANSWER_S)
                # The answer is handed over by this call alone, and records come along.
                self._kept += self._consumed(AT_ONCE, _ANSWER_S)
                waits(self._clock.monotonic_s() - started_s)
            if self._refusal is not None:
                raise KafkaException(self._refusal)
        for position in ahead:
            position.committed = position.sent

    def rewind(self) -> None:
        """Read every partition again from what is committed."""
        places = [Place(*each.source, each.committed) for each in self.running.values()]
        with asking("source"):
            self._consumer.incremental_unassign(places)
            self._consumer.incremental_assign(places)
        self._kept.clear()
        for position in self.running.values():
            position.sent = position.committed

    def log(self, position: SourcePartition) -> tuple[int, int] | None:
        """Start and end of its log, open transactions left out, as the fetcher last heard."""
        place = Place(*position.source)
        start, end = self._consumer.get_watermark_offsets(place, cached=True)
        return (start, end) if end >= 0 else None

    def lag(self, position: SourcePartition) -> int | None:
        """How many offsets lie ahead, as far as the fetcher has heard; asked between batches."""
        log = self.log(position)
        if log is None:
            return None
        start, end = log
        (read,) = self._consumer.position([Place(*position.source)])
        # Reading passes what is no record: without it a transactional topic always has a rest.
        at = max(read.offset, position.committed)
        return max(0, end - (at if at >= 0 else start))

    @property
    def caught_up(self) -> bool:
        """Whether nothing that we own waits to be forwarded."""
        running = self.running.values()
        return not self.granted and all(self.lag(position) == 0 for position in running)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _consumed(self, records_max: int, wait_s: float) -> Parts:
        with asking("source"):
            messages = self._consumer.consume(records_max, wait_s)
            errors = errors_of(messages)
            for error, source in errors:
                self._heard(error, source)
        records = [m for m in messages if m.error() is None] if errors else messages
        parts = [
            (self.running[source], _unseen(mine, self.running[source].sent))
            for source, mine in by_source(records, self.running).items()
        ]
        return [(position, mine) for position, mine in parts if mine]

    def _heard(self, error: KafkaError, source: PartitionId | None) -> None:
        """An error that came among the records."""
        if error.code() == KafkaError._AUTO_OFFSET_RESET and source in self.running:  # noqa: SLF001 - its name
            raise self._lost(source, f"{self.running[source].sent} is out of range")
        if error.fatal() or error.code() in _REFUSALS:
            raise KafkaException(error)

    def _note_error(self, error: KafkaError) -> None:
        """What the client says beside the records; it goes on trying by itself."""
        self.shaken = self.shaken or error.code() in _GONE

    def _note_commit(self, error: KafkaError | None, places: list[Place]) -> None:
        """An answer; one that comes too late is for other offsets and is not looked at."""
        if {
            PartitionId(place.topic, place.partition): place.offset for place in places
        } == self._asked:
            self._refusal = next((p.error for p in places if p.error is not None), error)
            self._asked = {}

    def _lost(self, source: PartitionId, why: str) -> ExitError:
        topic, number = source
        return ExitError(
            ExitCode.CONTRADICTION,
            f"The source's log of {topic}-{number} lacks the offset where group {self._group_id} "
            f"goes on ({why}): records were deleted before they were forwarded; "
            "reset the group's offset there to go on without them.",
        )

    # The callbacks run inside `consume`; an exception there would lose the records it returns.

    def _on_assign(self, consumer: Consumer, granted: list[Place]) -> None:
        self.rebalances += 1
        consumer.incremental_assign([])
        self.granted.update(_sources(granted))

    def _on_revoke(self, consumer: Consumer, taken: list[Place]) -> None:
        self.rebalances += 1
        gone = _sources(taken)
        read = [source for source in gone if self.running.pop(source, None) is not None]
        consumer.incremental_unassign([Place(*source) for source in read])
        self.granted.difference_update(gone)


def _unseen(messages: list[Message], expected: int) -> list[Message]:
    """Those from an offset on: librdkafka has delivered again after a rewind."""
    offsets = offsets_of(messages)
    if min(offsets) >= expected:
        return messages
    return list(compress(messages, [offset >= expected for offset in offsets]))


def _sources(places: Iterable[Place]) -> list[PartitionId]:
    return [PartitionId(place.topic, place.partition) for place in places]
