"""The loop: consume → decide → commit, on one thread, with one consumer and one producer.

A transaction never outlives the `consume` that its batch came from, so no rebalance ever sees an
open one. Whatever goes wrong, nothing local changes before a commit has succeeded.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from service.apply import apply
from service.assignment import Assignment
from service.clock import Clock
from service.commit import Committer, OutcomeUnknownError, TransactionAbortedError
from service.config import Config
from service.consume import Batch, batch_of, errors_of, pieces
from service.decide import Rules, decide
from service.errors import ExitCode, ExitError
from service.faults import Fault, Remedy, fault_of
from service.inputs import Inputs
from service.kafka import Clients
from service.partition import Partition
from service.plan import Output, Plan
from service.refusals import Refusals
from service.target import Placing, TargetMissingError
from service.topics import Targets, fallback
from service.watch import Watch
from state.cache import Cache
from state.changelog import OffsetMetadata, encode
from state.edit import Edit, Source
from state.run import FORMAT
from state.store import StoreCorruptError, Stores

_BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
_NOT_A_MEMBER: Final = Fault(
    Remedy.ABORT, of_record=False, fenced=False, cause="this instance is no member of the group"
)
_REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
# A broker lets no transaction stay open for longer, unless it was told so.
_OPEN_TRANSACTION_S: Final = 900.0
_GONE: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})  # noqa: SLF001
BROKER_PATIENCE_S: Final = 300.0
"""How long the broker may refuse everything before the process ends with exit code 3."""


class Loop:
    """One life of the processor: from joining the group until it ends or is fenced."""

    def __init__(
        self, config: Config, clients: Clients, stores: Stores, clock: Clock, watch: Watch
    ) -> None:
        service = config.service
        self.config, self._clock, self._watch = config, clock, watch
        self.cache = Cache(service.cache_memory_mb * 1024 * 1024)
        self._targets = Targets(clients.cluster)
        self._committer = Committer(clients, service.transaction_timeout_ms, clock)
        self._inputs = Inputs(config, clients.cluster, clock)
        self._targets.refresh(self._inputs.targets() | {fallback(service.group_id)})
        # First, so that what an earlier producer left open is ended before offsets are asked.
        self._committer.prepare(self._targets.batch_bytes_max)
        self.assignment = Assignment(clients, stores, self.cache, service, clock)
        self.assignment.subscribe(self._inputs.routes, self._inputs.topics)
        self._refusals = Refusals(service.batch_records_max)
        self._last_chunk = Batch((), 0)
        self._rules = Rules(
            cluster_id=clients.cluster.cluster_id(),
            book=config.addresses,
            cache=self.cache,
            placing=Placing(
                targets=self._targets,
                fallback=fallback(service.group_id),
                compressing=config.kafka.producer.get("compression.type", "none") != "none",
                refused=self._refusals.by_place,
                homeless=self._refusals.homeless,
            ),
        )
        self._targets_stale = False
        self._failures = 0

    def turn(self) -> None:
        """One round: what comes in, what waits to be taken over; never longer than a batch."""
        self._watch.beat()
        try:
            waiting = self._prepare()
            for chunk in self._pieces(self._consume()):
                plan = Plan()
                self._commit(plan, self._decided(chunk, plan))
        except TransactionAbortedError as aborted:
            self._aborted(aborted.fault)
        except TargetMissingError as missing:
            self._rewind()
            self._targets_stale = True
            self._wait(f"topic {missing.topic}: it does not exist; create it", until_commit=True)
        except KafkaException as error:
            self._rewind()
            self._refused(fault_of(error.args[0]))
        except StoreCorruptError as damaged:
            self._watch.damaged(str(damaged))
            self.assignment.retake(damaged.source, wipe=True)
            self._rewind()
        else:
            self._went_well(waiting)

    def close(self) -> None:
        """Leave the group; every transaction has ended."""
        self.assignment.close()
        self._committer.close()

    def _prepare(self) -> str | None:
        """Inputs that appeared, a producer beyond doubt, partitions to take over."""
        if self._inputs.refresh():
            self._targets_stale = True
            self.assignment.subscribe(self._inputs.routes, self._inputs.topics)
        if self._targets_stale:
            self._targets.refresh(self._inputs.targets())
            self._targets_stale = False
        self._committer.prepare(self._targets.batch_bytes_max)
        waiting = self.assignment.step()
        for partition in [p for p in self.assignment.running.values() if p.to_clear]:
            self._commit(_clearing(partition), ())
            self.assignment.retake(partition.source, wipe=False)
        if self._inputs.missing and waiting is None:
            return f"the input {', '.join(self._inputs.missing)}: it does not exist; create it"
        return waiting

    def _consume(self) -> Batch:
        service = self.config.service
        wait_s = service.batch_wait_ms / 1000 if self.assignment.settled else 0.001
        started_s = self._clock.monotonic_s()
        messages = self.assignment.consumer.consume(service.batch_records_max, wait_s)
        if messages:
            self._watch.stage("poll", self._clock.monotonic_s() - started_s)
        errors = errors_of(messages)
        for error, source in errors:
            self._heard(error, source)
        records = [m for m in messages if m.error() is None] if errors else messages
        # After the errors: a partition whose offset is lost is not read any more.
        return batch_of(records, self.assignment.running, self._clock.wall_ms())

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        return pieces(batch, self._refusals.records_max, self.config.service.batch_bytes_max)

    def _decided(self, chunk: Batch, plan: Plan) -> Iterator[Sequence[Output]]:
        """The outputs as they are decided, timed; then what may be done while the broker works."""
        self._last_chunk = chunk
        parts, lookup_s = decide(chunk, self._rules, plan), 0.0
        while True:
            started_s = self._clock.monotonic_s()
            part = next(parts, None)
            lookup_s += self._clock.monotonic_s() - started_s
            if part is None:
                break
            yield part
        self._watch.stage("lookup", lookup_s)
        self.cache.tidy()

    def _commit(self, plan: Plan, outputs: Iterable[Sequence[Output]]) -> None:
        """The plan in one transaction; then, and only then, store and memory."""
        started_s = self._clock.monotonic_s()
        partitions = self.assignment.running
        changelog_next: dict[Source, int] = {}

        def marks(written: Mapping[Source, int]) -> list[TopicPartition]:
            changelog_next.update({log: offset + 1 for log, offset in written.items()})
            return [
                _mark(partitions[source], offset, changelog_next)
                for source, offset in plan.next_offsets.items()
            ]

        consumer = self.assignment.consumer
        if not consumer.memberid():
            # The broker takes the offsets of a consumer that never joined without a check.
            raise TransactionAbortedError(_NOT_A_MEMBER)
        self._committer.commit(plan, outputs, marks, consumer.consumer_group_metadata())
        self._watch.committed(plan, self._clock.monotonic_s() - started_s)
        apply(plan, changelog_next, partitions, self.cache, self._clock.wall_ms())
        self._refusals.passed(partitions, self.config.service.batch_records_max)

    def _aborted(self, fault: Fault) -> None:
        """Read the batch again: in halves when one of its records is to blame."""
        self._watch.aborted(fault)
        self._rewind()
        if not (fault.of_record and self._refusals.narrow(self._last_chunk, fault)):
            sentence = f"the broker, which answered {fault.cause}; see its log"
            self._wait(sentence, until_commit=True)

    def _rewind(self) -> None:
        """Nothing that was consumed but not committed may be passed over by the next commit."""
        try:
            self.assignment.rewind()
        except KafkaException as error:
            raise OutcomeUnknownError(fault_of(error.args[0])) from error

    def _heard(self, error: KafkaError, source: Source | None) -> None:
        """An error that came among the messages."""
        self._watch.client_error(error.name(), error.str())
        fault = fault_of(error)
        if fault.remedy is Remedy.REBUILD:
            raise OutcomeUnknownError(fault)
        if error.code() in _GONE:
            self._inputs.suspect()
        if error.code() == KafkaError._AUTO_OFFSET_RESET and source:  # noqa: SLF001 - its name
            self.assignment.retake(source, wipe=False)
        elif error.code() in _REFUSALS:
            raise KafkaException(error)

    def _refused(self, fault: Fault) -> None:
        """The broker did not answer, or said no, outside of a transaction."""
        if fault.remedy is Remedy.REBUILD:
            raise OutcomeUnknownError(fault)
        self._wait(f"the broker, which answered {fault.cause}; see its log and our rights")

    def _went_well(self, waiting: str | None) -> None:
        if waiting is not None:
            self._watch.wait(waiting)
            if self._watch.waited_s() > _OPEN_TRANSACTION_S:
                raise ExitError(ExitCode.BROKER, f"Gave up waiting for {waiting}.")
        elif self._watch.go_on():
            self._failures = 0
        self._watch.turned(self.assignment, complete=self.assignment.has_all)

    def _wait(self, sentence: str, *, until_commit: bool = False) -> None:
        """Back off, say for what, and end when it takes too long."""
        self._watch.wait(sentence, until_commit=until_commit)
        if self._watch.waited_s() > BROKER_PATIENCE_S:
            raise ExitError(ExitCode.BROKER, f"Gave up waiting for {sentence}.")
        self._clock.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
        self._failures += 1


def _mark(
    partition: Partition, offset: int, changelog_next: Mapping[Source, int]
) -> TopicPartition:
    """The offset to commit, and beside it what a takeover will check."""
    facts = partition.facts
    assert facts is not None  # it runs
    last = changelog_next.get(partition.changelog, partition.changelog_next) - 1
    ids = facts.identity
    metadata = OffsetMetadata(last, FORMAT, ids.input_topic_id, ids.changelog_topic_id)
    source = partition.source
    return TopicPartition(source.topic, source.partition, offset, encode(metadata))


def _clearing(partition: Partition) -> Plan:
    """Forget everything that a partition remembers: a tombstone for each key."""
    plan = Plan()
    assert partition.store is not None  # it runs
    plan.edits[partition.changelog] = [Edit(key, None) for key, _ in partition.store.scan(b"r")]
    plan.next_offsets[partition.source] = partition.next_offset
    return plan
