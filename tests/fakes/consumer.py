"""The fake's consumer: method names, arguments and errors of confluent_kafka's.

It rejoins and takes a new generation behind the caller's back, as librdkafka's own thread does;
changes are reported by the callbacks, which run inside `consume` and `close` only.
"""

from collections.abc import Callable

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from ringfence_service.kafka.client_log import ConsumerLog
from ringfence_state.model import PartitionId
from tests.fakes.errors import plain
from tests.fakes.group import Committed, GroupMetadata, Member, Move
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Entry, Partition

OnCommit = Callable[[KafkaError | None, list[TopicPartition]], None]
Callback = Callable[["FakeConsumer", list[TopicPartition]], None]


class FakeConsumer:
    """One read_committed consumer with `auto.offset.reset=error`."""

    filters = True
    """Whether it leaves out records of aborted transactions."""

    def __init__(
        self,
        log: FakeCluster,
        group_id: str,
        instance: str | None = None,
        session_timeout_ms: int = 10_000,
        on_commit: OnCommit | None = None,
        logger: ConsumerLog | None = None,
    ) -> None:
        self._on_commit = on_commit
        self._logger = logger
        self._topic_ids: dict[PartitionId, str] = {}
        """Of what is fetched, as reported by the metadata."""
        self._answers: list[tuple[KafkaError | None, list[TopicPartition]]] = []
        self._log = log
        self._group = log.group(group_id)
        self._instance = instance
        self._session_ms = session_timeout_ms
        self._member: Member | None = None
        self._topics: frozenset[str] = frozenset()
        self._callbacks: dict[str, Callback | None] = {}
        self._fetching: dict[PartitionId, int] = {}
        self._due_ms: dict[PartitionId, int] = {}
        """When the answers to fetches come that bring something."""
        self._positions: dict[PartitionId, int] = {}
        self._lingering: dict[PartitionId, int] = {}
        """Revoked, and not stopped yet: how many more times the position is returned."""
        self._stopped: set[PartitionId] = set()
        self._paused: set[PartitionId] = set()
        self._assigned_in_callback = False
        self._is_leaving = False
        self.withheld: set[PartitionId] = set()
        """Of which a call returned nothing by its own choice; who reads it empties it."""
        self._closed = False

    # Membership.

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Join the group; the partitions come later, in `consume`."""
        self._open()
        self._log.step("subscribe")
        self._topics = frozenset(topics)
        self._callbacks = {
            "assign": on_assign,
            "revoke": on_revoke,
            "lost": on_lost or on_revoke,
        }
        if self._member is None:
            self._join()
        elif self._member.id in self._group.members:
            self._group.resubscribe(self._member, self._topics)
            self._log.tick()  # a client that was removed is notified first, in `consume`

    def unsubscribe(self) -> None:
        """Have the next `consume` give back the partitions and leave, a static member too."""
        self._open()
        self._is_leaving = True

    def memberid(self) -> str | None:
        """Return the member id, None outside a group."""
        self._open()
        return self._member.id if self._member and self._member.generation >= 0 else None

    def consumer_group_metadata(self) -> GroupMetadata:
        """Return the generation that the client is in at this moment."""
        self._open()
        if self._member is None or self._member.generation < 0:
            return GroupMetadata(self._group.name, instance=self._instance)
        member = self._member
        return GroupMetadata(self._group.name, member.generation, member.id, self._instance)

    def close(self) -> None:
        """Give back the partitions and leave; a static member's place is kept for its session."""
        if not self._closed:
            self._log.step("close")
            self._leave(keeps_place=self._instance is not None)
            self._closed = True

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def freeze(self) -> None:
        """Stop sending heartbeats, as SIGSTOP and kill -9 do."""
        if self._member:
            self._member.alive = False

    def thaw(self) -> None:
        """Go on as after SIGCONT, perhaps no longer a member."""
        if self._member:
            self._member.alive = True

    # Assignment and positions.

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Replace the assignment."""
        self.unassign()
        self.incremental_assign(partitions)

    def unassign(self) -> None:
        """Drop the assignment."""
        self._open()
        for source in list(self._fetching):
            self._stop(source)

    def assignment(self) -> list[TopicPartition]:
        """Return what is assigned."""
        self._open()
        return [TopicPartition(*source) for source in self._fetching]

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions at their offsets."""
        self._open()
        self._log.step("incremental_assign")
        self._assigned_in_callback = True
        for place in partitions:
            source = PartitionId(place.topic, place.partition)
            if source in self._fetching:
                raise plain(KafkaError._CONFLICT, f"{source} is already assigned")
            self._go(source, place.offset)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take partitions away."""
        self._open()
        self._log.step("incremental_unassign")
        self._assigned_in_callback = True
        for place in partitions:
            source = PartitionId(place.topic, place.partition)
            if source not in self._fetching:
                raise plain(KafkaError._INVALID_ARG, f"{source} is not assigned")
            self._stop(source)

    def seek(self, partition: TopicPartition) -> None:
        """Go to another offset of an assigned partition."""
        self._open()
        self._log.step("seek")
        source = PartitionId(partition.topic, partition.partition)
        if source not in self._fetching:
            raise plain(KafkaError._STATE, "Failed to seek: Local: Erroneous state")
        self._positions.pop(source, None)
        self._go(source, partition.offset)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Deliver nothing of these, which stay assigned at their positions."""
        self._paused.update(PartitionId(each.topic, each.partition) for each in partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Deliver records of these again."""
        self._paused.difference_update(PartitionId(p.topic, p.partition) for p in partitions)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return where reading goes on; invalid until something was read since assign or seek.

        Until the client has stopped its earlier assignment, it returns the position there.
        """
        self._open()
        return [self._position(PartitionId(p.topic, p.partition)) for p in partitions]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, *, cached: bool = False
    ) -> tuple[int, int]:
        """Return start and end: the fetcher knows the log end, a query the last stable offset."""
        del timeout
        log = self._log.log(partition.topic, partition.partition)
        if log is None:
            return (-1001, -1001)
        return (log.start, log.end if cached else log.last_stable)

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return the first offset at or after the time that stands for each; -1 where none is."""
        self._open()
        assert timeout >= 0, "it may block for ever"
        if not partitions:
            raise plain(KafkaError._INVALID_ARG, "Failed to get offsets: Local: Invalid argument")
        return [TopicPartition(p.topic, p.partition, self._first_since(p)) for p in partitions]

    def _first_since(self, place: TopicPartition) -> int:
        log = self._log.log(place.topic, place.partition)
        found = [] if log is None else log.records()
        later = (each for each in found if each.record and each.record.timestamp_ms >= place.offset)
        return next((each.offset for each in later), OFFSET_END)

    def list_topics(self, topic: str, timeout: float = -1) -> None:
        """Ask any broker; nobody looks at what it tells."""
        del topic, timeout
        self._open()
        self._log.step("metadata")

    def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return committed offsets; blocks while a transaction holds some for a partition."""
        self._open()
        assert timeout >= 0, "it may block for ever"
        self._log.step("committed")
        sources = [PartitionId(p.topic, p.partition) for p in partitions]
        if any(self._group.unstable[source] for source in sources):
            self._log.wait(timeout)
            if any(self._group.unstable[source] for source in sources):
                reason = "Failed to get committed offsets: Local: Timed out"
                raise plain(KafkaError._TIMED_OUT, reason)
        return [self._committed(source) for source in sources]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool = True) -> None:
        """Commit outside any transaction; the answer comes with a later `consume`."""
        self._open()
        assert asynchronous, "the fake waits for nothing"
        error: KafkaError | None = None
        try:
            self._log.step("commit")
            self._group.check(self.consumer_group_metadata())
        except KafkaException as refused:
            error = refused.args[0]
        else:
            for place in offsets:
                self._group.store(
                    PartitionId(place.topic, place.partition), Committed(place.offset, "")
                )
        self._answers.append((error, offsets))

    # Reading.

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Serve the callbacks, then return messages and errors; waits all of `timeout` for n.

        As the client, it serves nothing where no message is asked for.
        """
        self._open()
        assert timeout >= 0, "it may block for ever"
        self._log.step("consume")
        if not num_messages:
            return []
        answers, self._answers = self._answers, []
        for answer in answers:
            if self._on_commit is not None:
                self._on_commit(*answer)
        messages = self._serve_group()
        error = self._log.chance.message_error({source.topic for source in self._fetching})
        if error is not None:
            messages.append(Message(error=error))
        for source in list(self._fetching):
            wanted = min(num_messages - len(messages), self._log.chance.fetched(num_messages))
            if wanted > 0:
                messages += self._fetch(source, wanted)
            else:
                self.withheld.add(source)
        if len(messages) < num_messages:
            self._log.wait(timeout)
        self._log.step("consume.done")
        return messages

    def poll(self, timeout: float = -1) -> Message | None:
        """Return one message, if there is one."""
        return next(iter(self.consume(1, timeout)), None)

    def _go(self, source: PartitionId, offset: int) -> None:
        self._fetching[source] = offset
        self._due_ms.pop(source, None)
        self._stopped.discard(source)

    def _fetch(self, source: PartitionId, records_max: int) -> list[Message]:
        log = self._log.log(*source)
        if source in self._stopped | self._paused | self._lingering.keys():
            self.withheld.add(source)
            return []
        if not self._is_known(source):
            self.withheld.add(source)
            return []
        if log is None:
            return []
        offset = self._resolve(source, log)
        if offset is None or not log.start <= offset <= log.end:
            self._stopped.add(source)
            error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "Broker: Offset out of range")
            at = OFFSET_INVALID if offset is None else offset
            return [Message(topic=log.topic, partition=log.number, offset=at, error=error)]
        batch = log.unreadable_at(offset)
        if batch is not None:
            return [_refused(log, batch)]
        entries, onward = log.read(offset, records_max, committed=self.filters)
        if entries and self._is_on_its_way(source):
            self.withheld.add(source)
            return []
        self._fetching[source] = onward
        if onward > offset:
            self._positions[source] = onward
        return [_message(log, entry) for entry in entries]

    def _is_on_its_way(self, source: PartitionId) -> bool:
        """Whether a fetch is not answered yet; the one after it takes its own time."""
        if source not in self._due_ms:
            after_ms = self._log.chance.answers_after_ms(source.topic)
            self._due_ms[source] = self._log.now_ms + after_ms
        if self._log.now_ms < self._due_ms[source]:
            return True
        del self._due_ms[source]
        return False

    def _is_known(self, source: PartitionId) -> bool:
        """Whether a fetch finds its topic; one of another id is read on from the same offset."""
        topic = self._log.logs.get(source.topic)
        found = "" if topic is None else topic.id
        if self._topic_ids.setdefault(source, found) == found:
            return True
        self._topic_ids[source] = found
        if self._logger is not None:
            what = f"{source.topic} [{source.partition}]: broker unavailable"
            self._logger.log(10, "%s [%s] %s", "BROKERUA", "fake", what)
        return False

    def _stop(self, source: PartitionId) -> None:
        del self._fetching[source]
        self._paused.discard(source)
        if source in self._positions and self._log.chance.lingers():
            self._lingering[source] = 2
        else:
            self._positions.pop(source, None)

    def _position(self, source: PartitionId) -> TopicPartition:
        place = TopicPartition(*source, self._positions.get(source, OFFSET_INVALID))
        if source in self._lingering:
            self._lingering[source] -= 1
            if not self._lingering[source]:
                del self._lingering[source]
                self._positions.pop(source, None)
        return place

    def _resolve(self, source: PartitionId, log: Partition) -> int | None:
        offset = self._fetching[source]
        if offset in (OFFSET_STORED, OFFSET_INVALID):
            committed = self._group.committed.get(source)
            return None if committed is None else committed.offset
        return {OFFSET_BEGINNING: log.start, OFFSET_END: log.last_stable}.get(offset, offset)

    def _committed(self, source: PartitionId) -> TopicPartition:
        found = self._group.committed.get(source)
        if found is None:
            return TopicPartition(*source, OFFSET_INVALID)
        if not found.metadata:
            return TopicPartition(*source, found.offset)
        return TopicPartition(*source, found.offset, found.metadata)

    # The group's side.

    def _join(self) -> None:
        self._member = self._group.join(
            self._instance, self._topics, self._session_ms, self._log.now_ms
        )
        self._log.tick()

    def _serve_group(self) -> list[Message]:
        if self._is_leaving:
            self._is_leaving = False
            self._leave(keeps_place=False)
        member = self._member
        if member is None:
            return []
        if member.fenced:
            self._member = None
            self._fetching.clear()
            reason = "Broker: Static consumer fenced by other consumer with same group.instance.id"
            return [Message(error=KafkaError(KafkaError._FATAL, reason))]
        if member.id not in self._group.members:
            self._call("lost", sorted(member.held))
            self._join()
        elif member.moves:
            self._serve(member, member.moves[0])
        return []

    def _serve(self, member: Member, move: Move) -> None:
        if move.revoked:
            self._call("revoke", move.revoked)
        # A second callback follows even when nothing was added, as on a broker.
        self._call("assign", move.added)
        member.moves.remove(move)
        self._group.served(member, move)

    def _call(self, kind: str, sources: list[PartitionId]) -> None:
        """Run a callback; where it does not act itself, act as the binding does."""
        callback = self._callbacks.get(kind)
        places = [TopicPartition(*source) for source in sources]
        self._assigned_in_callback = False
        if callback:
            callback(self, places)
        if not self._assigned_in_callback:
            act = self.incremental_assign if kind == "assign" else self.incremental_unassign
            act(places)

    def _leave(self, *, keeps_place: bool) -> None:
        member = self._member
        if member is not None and not member.fenced and member.id in self._group.members:
            callback = self._callbacks.get("revoke")
            if member.held and callback:
                callback(self, [TopicPartition(*source) for source in sorted(member.held)])
            if keeps_place:
                member.alive = False
            else:
                self._group.leave(member)
        self._fetching.clear()
        self._member = None

    def _open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")


def _message(log: Partition, entry: Entry) -> Message:
    record = entry.record
    assert record is not None
    return Message(
        topic=log.topic,
        partition=log.number,
        offset=entry.offset,
        key=record.key,
        value=record.value,
        headers=None if record.headers is None else [*record.headers],
        timestamp=(TIMESTAMP_CREATE_TIME, record.timestamp_ms),
    )


def _refused(log: Partition, batch: tuple[int, int]) -> Message:
    """Return the error of a batch; it comes again with each fetch, and the position stays."""
    first, last = batch
    text = (
        f"Decompression (codec 0x4) of message at {first} of {200 + last - first} bytes failed: "
        "Local: Invalid compressed data"
    )
    error = KafkaError(KafkaError._BAD_COMPRESSION, text)
    return Message(topic=log.topic, partition=log.number, offset=first, error=error)
