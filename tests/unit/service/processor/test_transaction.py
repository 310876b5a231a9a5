"""A plan becomes one transaction, whose true outcome is reported: committed, aborted or unknown."""

import gc
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer, TopicPartition

from ringfence_service.dedup.plan import Output
from ringfence_service.kafka.client_log import ProducerLog
from ringfence_service.kafka.clients import LIBRDKAFKA
from ringfence_service.kafka.compression import Codec
from ringfence_service.kafka.errors import Recovery, fault_of
from ringfence_service.processor.transaction import (
    ACTIONS,
    EXPIRED,
    SLOW,
    Action,
    OutcomeUnknownError,
    TransactionAbortedError,
    TransactionManager,
    TransactionRequest,
    _ChangelogWriter,
    action_after,
)
from ringfence_state.model import Edit, PartitionId
from tests.fakes.clients import FakeClients
from tests.fakes.errors import abortable, fenced, in_no_transaction
from tests.fakes.group import Committed, GroupMetadata
from tests.fakes.log import Chance, FakeCluster
from tests.fakes.partition import Fate, Partition, Record
from tests.fakes.producer import FakeProducer
from tests.simulation.instance import FakeClock
from tests.support.deciding import Decided
from tests.support.helpers import rows, some
from tests.support.living import GROUP, LOG, ORDERS, Faults, gone, late, refused
from tests.support.waiting import eventually

TIMEOUT_MS = 10_000


def of_the_group() -> Exception:
    return abortable(KafkaError.ILLEGAL_GENERATION, "the group has another generation")


class AtOnce(Chance):
    """Each record leaves the client before the next is handed over."""

    def sends_now(self) -> bool:
        return True


EVERY_FAILURE = [
    (request, remedy, is_late)
    for request in TransactionRequest
    for remedy in Recovery
    for is_late in (False, True)
]


@pytest.mark.parametrize(("request_", "remedy", "is_late"), EVERY_FAILURE)
def test_a_request_that_fails_has_one_action_that_keeps_what_may_be_committed(
    request_: TransactionRequest, remedy: Recovery, *, is_late: bool
) -> None:
    action = action_after(request_, SLOW._replace(remedy=remedy), is_late=is_late)
    if action is Action.REPEAT:
        assert remedy is Recovery.RETRY
        assert not is_late
    if action is Action.ABORT:
        assert request_ in {TransactionRequest.SEND, TransactionRequest.COMMIT}
        assert remedy is not Recovery.REBUILD
    if request_ is not TransactionRequest.SEND and is_late:
        assert action is not Action.ABORT or remedy is Recovery.ABORT
    assert len(ACTIONS) == len(TransactionRequest) * len(Recovery)


class Bench:
    """A committer on a cluster that fails on demand."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.cluster = FakeCluster(on_step=self.faults)
        for name in ("out", LOG.topic):
            self.cluster.create_topic(name, 2)
        self.clients = FakeClients(self.cluster, GROUP, "0")
        self.told: Mapping[PartitionId, int] = {}
        self.transaction_manager = TransactionManager(
            self.clients, TIMEOUT_MS, FakeClock(self.cluster)
        )
        self.transaction_manager.prepare(1000)

    def commit(self, plan: Decided) -> None:
        self.transaction_manager.commit(plan, [plan.outputs], self.marks, GroupMetadata(GROUP))

    def marks(self, written: Mapping[PartitionId, int]) -> list[TopicPartition]:
        self.told = dict(written)
        return [TopicPartition(*ORDERS, 5, "ours")]

    def answers(self, make: Callable[[], Exception], wait_s: float = 5.0) -> Iterator[Exception]:
        """One error for ever, each after the time that the client waited for the broker."""
        while True:
            self.cluster.wait(wait_s)
            yield make()

    def outcome(self) -> tuple[int, int, Committed | None]:
        """How many outputs and changelog records there are, and the offset."""
        records = self.cluster.records
        offset = self.cluster.group(GROUP).committed.get(ORDERS)
        return len(records("out")), len(records(*LOG)), offset

    @property
    def producers(self) -> int:
        return self.faults.passed["init_transactions"]


def plan(*edits: Edit, size: int = 1) -> Decided:
    made = Decided(outputs=[("out", b"v" * size, None, 0, None, None, 1, [])])
    made.edits = {LOG: list(edits or [Edit(b"k", b"v")])}
    return made


NOTHING = (0, 0, None)
ALL = (1, 1, Committed(5, "ours"))


def test_outputs_changelog_and_offsets_come_into_sight_together() -> None:
    bench = Bench()
    seen = []
    bench.faults.at["commit_transaction"] = iter(lambda: seen.append(bench.outcome()), 0)
    bench.commit(plan())
    assert seen == [NOTHING]
    assert bench.outcome() == ALL


def test_the_offsets_are_given_the_last_changelog_offset_of_each_partition() -> None:
    bench = Bench()
    other = PartitionId(LOG.topic, 1)
    both = plan(Edit(b"a", b"1"), Edit(b"b", b"2"), Edit(b"a", None))
    both.edits[other] = [Edit(b"c", b"3")]
    bench.commit(both)
    assert bench.told == {LOG: 2, other: 0}
    assert [record.value for record in bench.cluster.records(*LOG)] == [b"1", b"2", None]


def test_records_are_on_their_way_while_the_offsets_are_sent_and_delivered_before_the_commit() -> (
    None
):
    bench, sent = Bench(), []
    for step in ("send_offsets_to_transaction", "commit_transaction"):
        bench.faults.at[step] = iter(lambda: sent.append(bench.faults.passed["send"]), 0)
    bench.commit(plan())
    assert sent == [0, 2]
    assert bench.outcome() == ALL


def test_of_offsets_that_were_sent_as_expected_and_again_as_written_the_second_are_committed() -> (
    None
):
    bench, sent, offsets = Bench(), [], "send_offsets_to_transaction"
    bench.faults.at[offsets] = iter(lambda: sent.append(bench.faults.passed["send"]), 0)

    def marks(written: Mapping[PartitionId, int]) -> list[TopicPartition]:
        return [TopicPartition(*ORDERS, 5, f"at {written.get(LOG, 7)}")]

    bench.transaction_manager.commit(plan(), [plan().outputs], marks, GroupMetadata(GROUP))
    assert sent == [0, 2]
    assert bench.outcome() == (1, 1, Committed(5, "at 0"))


def test_a_plan_that_remembers_nothing_commits_its_offsets() -> None:
    bench = Bench()
    bench.commit(Decided())
    assert (bench.told, bench.outcome()) == ({}, (0, 0, ALL[2]))


def test_what_is_remembered_after_the_last_output_is_written_too() -> None:
    bench, made = Bench(), plan()

    def pieces() -> Iterator[list[Output]]:
        yield []
        made.edits[LOG].append(Edit(b"l", b"w"))

    bench.transaction_manager.commit(made, pieces(), bench.marks, GroupMetadata(GROUP))
    assert (bench.told, len(bench.cluster.records(*LOG))) == ({LOG: 1}, 2)


@pytest.mark.row(27)
def test_a_full_queue_is_waited_for() -> None:
    bench = Bench()
    bench.faults.at["produce"] = iter([BufferError("full"), BufferError("full")])
    bench.commit(plan())
    assert bench.outcome() == ALL


def test_a_commit_whose_answer_was_lost_is_committed_again_and_never_aborted() -> None:
    bench = Bench()
    bench.faults.at["commit_transaction.done"] = iter([late()])
    bench.commit(plan())
    assert bench.outcome() == ALL
    assert bench.faults.passed["commit_transaction"] == 2
    assert bench.faults.passed["abort_transaction"] == 0


def test_a_commit_that_timed_out_is_not_aborted_even_when_the_broker_then_asks_for_it() -> None:
    bench = Bench()
    bench.faults.at["commit_transaction"] = iter([late(), refused()])
    with pytest.raises(OutcomeUnknownError):
        bench.commit(plan())
    assert bench.faults.passed["abort_transaction"] == 0


def test_past_its_deadline_a_commit_without_an_answer_has_an_unknown_outcome() -> None:
    bench = Bench()
    bench.faults.at["commit_transaction"] = bench.answers(late)
    begun_s = bench.cluster.now_ms / 1000
    with pytest.raises(OutcomeUnknownError):
        bench.commit(plan())
    # As long as the transaction may take, and until the broker has looked for it.
    assert 20 < bench.cluster.now_ms / 1000 - begun_s <= 30
    assert bench.faults.passed["abort_transaction"] == 0


def test_a_commit_that_is_refused_at_once_is_aborted_and_leaves_nothing() -> None:
    bench = Bench()
    bench.faults.at["commit_transaction"] = iter([refused()])
    with pytest.raises(TransactionAbortedError) as caught:
        bench.commit(plan())
    assert not caught.value.fault.of_record
    assert bench.outcome() == NOTHING
    bench.transaction_manager.prepare(1000)
    bench.commit(plan())
    assert bench.outcome() == ALL


@pytest.mark.parametrize("chance", [Chance(), AtOnce()], ids=["at the end", "at once"])
@pytest.mark.parametrize("step", ["send", "send_offsets_to_transaction", "commit_transaction"])
def test_a_fenced_producer_does_not_know_the_outcome(step: str, chance: Chance) -> None:
    bench = Bench()
    bench.cluster.chance = chance
    bench.faults.at[step] = iter([fenced()])
    with pytest.raises(OutcomeUnknownError) as caught:
        bench.commit(plan())
    assert caught.value.fault.fenced
    assert bench.outcome() == NOTHING


def test_the_producer_that_comes_next_fences_the_one_before() -> None:
    bench = Bench()
    TransactionManager(bench.clients, TIMEOUT_MS, FakeClock(bench.cluster)).prepare(1000)
    with pytest.raises(OutcomeUnknownError) as caught:
        bench.commit(plan())
    assert caught.value.fault.fenced


@pytest.mark.parametrize("step", ["send", "send_offsets_to_transaction.done"])
def test_what_the_broker_refuses_on_the_way_is_aborted(step: str) -> None:
    bench = Bench()
    bench.faults.at[step] = iter([refused()])
    with pytest.raises(TransactionAbortedError) as caught:
        bench.commit(plan())
    assert "NOT_ENOUGH_REPLICAS" in caught.value.fault.cause
    assert bench.outcome() == NOTHING


def test_a_record_that_is_too_large_is_a_fault_of_the_record() -> None:
    bench = Bench()
    with pytest.raises(TransactionAbortedError) as caught:
        bench.commit(plan(size=2 << 20))
    assert caught.value.fault.of_record
    assert bench.outcome() == NOTHING


def test_offsets_of_a_member_that_is_none_any_more_are_aborted() -> None:
    bench = Bench()
    bench.clients.consumer().subscribe(["out"])
    stranger = GroupMetadata(GROUP, 1, "stranger", "another")
    with pytest.raises(TransactionAbortedError):
        bench.transaction_manager.commit(plan(), [plan().outputs], bench.marks, stranger)
    assert bench.outcome() == NOTHING


def test_a_step_that_timed_out_is_made_again() -> None:
    bench = Bench()
    bench.faults.at["send_offsets_to_transaction"] = iter([late(), late()])
    begun_ms = bench.cluster.now_ms
    bench.commit(plan())
    assert bench.outcome() == ALL
    assert bench.cluster.now_ms - begun_ms == 200, "with a pause before each"


def test_a_step_that_times_out_for_too_long_is_aborted() -> None:
    bench = Bench()
    bench.faults.at["send_offsets_to_transaction"] = bench.answers(late)
    bench.faults.at["abort_transaction"] = iter([late()])
    with pytest.raises(TransactionAbortedError):
        bench.commit(Decided())
    assert bench.outcome() == NOTHING


@pytest.mark.parametrize(
    "error", [late, gone, in_no_transaction], ids=["never answered", "answered badly", "fatal"]
)
def test_an_abort_that_does_not_succeed_has_an_unknown_outcome_and_tells_what_led_to_it(
    error: Callable[[], Exception],
) -> None:
    bench = Bench()
    bench.faults.at["commit_transaction"] = iter([refused()])
    bench.faults.at["abort_transaction"] = bench.answers(error)
    with pytest.raises(OutcomeUnknownError) as caught:
        bench.commit(plan())
    assert "NOT_ENOUGH_REPLICAS" in caught.value.fault.cause


def test_an_abort_that_finds_itself_fenced_says_so() -> None:
    bench = Bench()
    bench.faults.at["commit_transaction"] = iter([refused()])
    bench.faults.at["abort_transaction"] = iter([fenced()])
    with pytest.raises(OutcomeUnknownError) as caught:
        bench.commit(plan())
    assert caught.value.fault.fenced


def test_a_fault_between_two_transactions_ends_a_producer_that_would_be_used_again() -> None:
    bench = Bench()
    bench.faults.at["poll"] = iter([fenced(), fenced()])
    with pytest.raises(OutcomeUnknownError):
        bench.transaction_manager.prepare(1000)
    with pytest.raises(OutcomeUnknownError):
        bench.commit(plan())
    bench.transaction_manager.note_error(gone().args[0])
    bench.faults.at["poll"] = iter([fenced()])
    bench.transaction_manager.prepare(1000)
    bench.faults.at["poll"] = iter(())
    bench.commit(plan())
    assert bench.outcome() == ALL


def test_a_producer_is_kept_while_all_goes_well() -> None:
    bench = Bench()
    bench.commit(plan())
    bench.transaction_manager.prepare(1000)
    bench.transaction_manager.prepare(2000)
    assert bench.producers == 1


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("send_offsets_to_transaction", late),
        ("commit_transaction", late),
        ("commit_transaction.done", late),
        ("commit_transaction", refused),
    ],
)
def test_after_anything_indefinite_the_next_transaction_has_a_producer_of_its_own(
    step: str, error: Callable[[], KafkaException]
) -> None:
    bench = Bench()
    bench.faults.at[step] = iter([error()])
    try:
        bench.commit(plan())
    except TransactionAbortedError:
        assert error is refused
    bench.commit(plan())
    assert bench.producers == 2


@pytest.mark.row(29)
def test_no_transaction_begins_on_a_producer_of_which_a_request_may_still_arrive() -> None:
    bench = Bench()
    bench.faults.at["commit_transaction.done"] = iter([late()])
    bench.commit(plan())
    bench.commit(plan())
    assert bench.producers == 2


@pytest.mark.row(29)
def test_a_lost_connection_that_the_client_made_up_for_ends_the_use_of_its_producer() -> None:
    bench = stuck_bench()
    assert isinstance(bench.clients, StuckClients)
    losses = ProducerLog({"log_level": 3}, bench.clients.on_error, LIBRDKAFKA)
    losses.log(logging.INFO, "%s [%s] %s", "FAIL", "producer-1", "TxnCoordinator: Disconnected")
    with pytest.raises(TransactionAbortedError):
        bench.commit(plan())
    assert bench.producers == 3


def test_the_client_log_shows_what_it_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "librdkafka")
    errors: list[KafkaError] = []
    losses = ProducerLog({"log_level": 3}, errors.append, LIBRDKAFKA)
    losses.log(logging.ERROR, "%s [%s] %s", "FAIL", "producer-1", "Connection refused")
    losses.log(logging.INFO, "%s [%s] %s", "FAIL", "producer-1", "Disconnected")
    losses.log(logging.DEBUG, "%s [%s] %s", "BROKER", "producer-1", "idle")
    assert caplog.messages == ["FAIL [producer-1] Connection refused"]
    assert [error.str() for error in errors] == [
        "FAIL producer-1 Connection refused",
        "FAIL producer-1 Disconnected",
    ]


@pytest.mark.row(29)
def test_a_late_end_of_an_aborted_transaction_does_not_end_a_later_one() -> None:
    bench = Bench()
    bench.faults.at["send_offsets_to_transaction"] = iter([of_the_group()])
    with pytest.raises(TransactionAbortedError):
        bench.commit(plan())
    (producing,) = bench.cluster.producing.values()
    epoch = producing.epoch

    def abort_again() -> Iterator[None]:
        with suppress(KafkaException):
            producing.end(epoch, Fate.ABORTED)
        yield None

    bench.faults.at["send_offsets_to_transaction"] = abort_again()
    bench.commit(plan())
    assert bench.outcome() == ALL


def test_a_transaction_that_took_long_is_the_last_of_its_producer() -> None:
    bench = Bench()
    bench.faults.at["flush"] = iter(lambda: bench.cluster.wait(3), 0)
    bench.commit(plan())
    bench.commit(plan())
    assert bench.producers == 2


@pytest.mark.row(30)
def test_the_first_part_is_decided_before_the_transaction_begins() -> None:
    bench = Bench()
    seen: list[int] = []

    def decided() -> Iterator[list[Output]]:
        for _ in range(2):
            seen.append(bench.faults.passed["begin_transaction"])
            bench.cluster.wait(TIMEOUT_MS / 1000 * 0.4)
            yield plan().outputs

    bench.transaction_manager.commit(Decided(), decided(), bench.marks, GroupMetadata(GROUP))
    assert seen == [0, 1]


@pytest.mark.row(30)
def test_a_transaction_in_which_deciding_takes_too_long_is_aborted_before_the_broker_ends_it() -> (
    None
):
    bench = Bench()

    def decided() -> Iterator[list[Output]]:
        yield plan().outputs
        bench.cluster.wait(TIMEOUT_MS / 1000 * 0.6)
        yield plan().outputs

    with pytest.raises(TransactionAbortedError, match="deciding took too much") as caught:
        bench.transaction_manager.commit(Decided(), decided(), bench.marks, GroupMetadata(GROUP))
    assert caught.value.fault == SLOW
    assert bench.outcome() == NOTHING
    bench.commit(plan())
    assert bench.outcome() == ALL


@pytest.mark.row(30)
@rows(
    ("step", "answers"),
    {
        "a record is sent": ("send", [None, None]),
        "all are sent": ("flush.done", [None]),
        "offsets are sent": ("send_offsets_to_transaction", [None]),
        "it is aborted": ("send_offsets_to_transaction", [of_the_group()]),
    },
)
def test_a_transaction_that_the_broker_ended_for_its_age_is_an_abort_and_no_rival(
    step: str, answers: list[Exception | None]
) -> None:
    bench = Bench()
    bench.cluster.chance = AtOnce()

    def slow() -> Iterator[Exception | None]:
        *first, last = answers
        yield from first
        bench.cluster.wait(TIMEOUT_MS / 1000 * 2)
        yield last

    bench.faults.at[step] = slow()
    with pytest.raises(TransactionAbortedError) as caught:
        bench.commit(plan())
    assert caught.value.fault == EXPIRED
    assert "the broker ended it" in EXPIRED.cause
    assert "take a transaction within transaction_timeout_ms" in some(EXPIRED.waits_for)
    assert bench.outcome() == NOTHING
    bench.commit(plan())
    assert bench.outcome() == ALL


@pytest.mark.row(30)
def test_a_commit_that_is_refused_for_its_age_has_an_unknown_outcome_with_both_causes() -> None:
    bench = Bench()

    def slow() -> Iterator[Exception]:
        bench.cluster.wait(TIMEOUT_MS / 1000 * 2)
        yield fenced()

    bench.faults.at["commit_transaction"] = slow()
    with pytest.raises(OutcomeUnknownError) as caught:
        bench.commit(plan())
    told = f"{EXPIRED.cause}; {fault_of(fenced().args[0]).cause}"
    assert caught.value.fault == EXPIRED._replace(cause=told)


@pytest.mark.row(30)
def test_a_member_that_is_fenced_has_a_rival_however_old_its_transaction_is() -> None:
    bench = Bench()
    of_member = abortable(KafkaError.FENCED_INSTANCE_ID, "another has this instance id")
    bench.faults.at["send_offsets_to_transaction"] = bench.answers(lambda: of_member, 20)
    with pytest.raises(OutcomeUnknownError) as caught:
        bench.commit(plan())
    assert caught.value.fault.of_group


@pytest.mark.parametrize("step", ["send", "send_offsets_to_transaction"])
def test_a_producer_that_is_fenced_in_a_young_transaction_has_a_rival(step: str) -> None:
    bench = Bench()
    bench.faults.at[step] = iter([fenced()])
    with pytest.raises(OutcomeUnknownError) as caught:
        bench.commit(plan())
    assert caught.value.fault.fenced


@pytest.mark.parametrize("step", ["flush", "send", "send_offsets_to_transaction"])
def test_what_a_refused_transaction_held_is_freed_without_a_search_for_cycles(step: str) -> None:
    bench = stuck_bench(refused()) if step == "flush" else Bench()
    bench.faults.at[step] = (refused() for _ in range(1))  # a list would keep the error
    refused_plan = plan()
    held = weakref.ref(refused_plan)
    gc.collect()
    gc.disable()
    try:
        with suppress(TransactionAbortedError):
            bench.commit(refused_plan)
        del refused_plan
        assert held() is None
    finally:
        gc.enable()


def test_whether_a_broker_names_records_is_unknown_where_no_transaction_begins() -> None:
    bench = Bench()
    bench.commit(plan())
    bench.faults.at["init_transactions"] = iter([refused()])
    assert bench.transaction_manager.names_bad_records(LOG.topic) is None
    bench.commit(plan())


def test_smaller_batches_need_a_producer_of_their_own() -> None:
    bench = Bench()
    bench.transaction_manager.prepare(999)
    bench.commit(plan())
    assert bench.producers == 2


@pytest.mark.row(29)
def test_a_producer_that_reports_a_loss_before_its_first_transaction_serves_for_that_one() -> None:
    bench = Bench()
    bench.transaction_manager.close()

    def lost() -> Iterator[None]:
        bench.transaction_manager.note_error(gone().args[0])
        yield None

    bench.faults.at["init_transactions"] = lost()
    bench.commit(plan())
    assert bench.producers == 2
    bench.commit(plan())
    bench.commit(plan())
    assert bench.producers == 3
    bench.faults.at["poll"] = lost()
    bench.commit(plan())
    assert bench.producers == 4, "the loss was reported before this transaction began"


def test_a_producer_that_cannot_be_initialised_is_no_producer() -> None:
    bench = Bench()
    bench.transaction_manager.note_error(gone().args[0])
    bench.faults.at["init_transactions"] = iter([refused()])
    with pytest.raises(TransactionAbortedError):
        bench.commit(plan())
    bench.transaction_manager.prepare(1000)
    bench.commit(plan())
    assert (bench.outcome(), bench.producers) == (ALL, 3), "nor is the one before it any more"


class Stuck(FakeProducer):
    """Its records never leave it; the next begin raises the given error, if any."""

    told: KafkaException | None = None

    def flush(self, timeout: float = -1) -> int:
        self._log.wait(timeout)
        return len(self)

    def begin_transaction(self) -> None:
        if self.told is not None and len(self):
            raise KafkaException(*self.told.args)
        super().begin_transaction()

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: GroupMetadata, timeout: float = -1
    ) -> None:
        del positions, group_metadata, timeout


class StuckClients(FakeClients):
    """The fake sends at once: records that cannot leave the client need this."""

    def __init__(self, log: FakeCluster, told: KafkaException | None) -> None:
        super().__init__(log, GROUP, "0")
        self._told = told

    def producer(
        self,
        batch_bytes_max: int,
        on_error: Callable[[KafkaError], None],
        *,
        waits_for_flush: bool = False,
        codec: Codec | None = None,
    ) -> Producer:
        del batch_bytes_max, waits_for_flush, codec
        self.on_error = on_error
        stuck = Stuck(self._log, self._identity)
        stuck.told = self._told
        return cast("Producer", stuck)


def stuck_bench(told: KafkaException | None = None) -> Bench:
    bench = Bench()
    bench.clients = StuckClients(bench.cluster, told)
    bench.transaction_manager = TransactionManager(
        bench.clients, TIMEOUT_MS, FakeClock(bench.cluster)
    )
    bench.transaction_manager.prepare(1000)
    return bench


def test_a_changelog_record_that_was_not_delivered_in_time_is_no_ground_to_commit_on() -> None:
    bench = stuck_bench()
    with pytest.raises(TransactionAbortedError, match="not delivered in time") as caught:
        bench.commit(plan())
    assert (caught.value.fault.of_record, caught.value.fault.fenced) == (False, False)
    assert bench.faults.passed["commit_transaction"] == 0


def test_a_changelog_record_at_an_unknown_offset_aborts_the_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new leader refuses a copy as a duplicate, and the client reports it as delivered."""
    bench, append = Bench(), FakeProducer._append

    def copied(producer: FakeProducer, log: Partition, record: Record) -> int:
        append(producer, log, record)
        return OFFSET_INVALID

    with monkeypatch.context() as led:
        led.setattr(FakeProducer, "_append", copied)
        with pytest.raises(TransactionAbortedError, match="at an unknown offset"):
            bench.commit(plan())
    assert (bench.told, bench.outcome()) == ({}, NOTHING)
    bench.commit(plan())
    assert bench.outcome() == ALL


def test_no_offset_is_reported_for_a_changelog_that_did_not_take_the_whole_plan() -> None:
    """The offset of an earlier piece would say that the last edit stands there."""
    bench, made = Bench(), plan()

    def pieces() -> Iterator[list[Output]]:
        yield []
        made.edits[LOG].append(Edit(b"l", b"w"))
        yield []

    bench.faults.at["send"] = iter([None, refused()])
    with pytest.raises(TransactionAbortedError, match="NOT_ENOUGH_REPLICAS"):
        bench.transaction_manager.commit(made, pieces(), bench.marks, GroupMetadata(GROUP))
    assert (bench.told, bench.outcome()) == ({}, NOTHING)


def test_where_the_client_takes_no_more_the_record_that_was_refused_is_blamed() -> None:
    bench, made = Bench(), plan()
    bench.cluster.chance = AtOnce()
    pieces = [plan(size=2 << 20).outputs, made.outputs]
    with pytest.raises(TransactionAbortedError, match="MSG_SIZE_TOO_LARGE") as caught:
        bench.transaction_manager.commit(made, pieces, bench.marks, GroupMetadata(GROUP))
    assert caught.value.fault.of_record
    assert bench.outcome() == NOTHING


def test_a_flush_ends_as_soon_as_the_client_asks_for_an_abort() -> None:
    bench = stuck_bench(abortable(KafkaError.MSG_SIZE_TOO_LARGE, "refused"))
    begun_ms = bench.cluster.now_ms
    with pytest.raises(TransactionAbortedError) as caught:
        bench.commit(plan())
    assert caught.value.fault.of_record
    assert bench.cluster.now_ms - begun_ms < 1000


def test_an_error_beside_the_transactions_asks_for_a_new_producer_too() -> None:
    bench = stuck_bench()
    assert isinstance(bench.clients, StuckClients)
    bench.clients.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    with pytest.raises(TransactionAbortedError):
        bench.commit(plan())
    assert bench.producers == 3


def test_what_cannot_be_decided_leaves_nothing_and_the_next_batch_gets_through() -> None:
    bench = Bench()

    def undecided() -> Iterator[list[Output]]:
        yield plan().outputs
        raise LookupError("never asked for")

    with pytest.raises(LookupError):
        bench.transaction_manager.commit(Decided(), undecided(), bench.marks, GroupMetadata(GROUP))
    assert bench.outcome() == NOTHING
    bench.faults.at["abort_transaction"] = iter([gone()])
    with pytest.raises(OutcomeUnknownError, match="could not be decided"):
        bench.transaction_manager.commit(Decided(), undecided(), bench.marks, GroupMetadata(GROUP))
    bench.commit(plan())
    assert bench.outcome() == ALL


@pytest.mark.parametrize("step", ["send_offsets_to_transaction", "commit_transaction", "flush"])
def test_a_step_that_is_made_again_and_again_is_no_silence(step: str) -> None:
    bench = stuck_bench() if step == "flush" else Bench()
    beats_s: list[float] = []
    clock = FakeClock(bench.cluster)

    waits_s: list[float] = []

    def awaits(waited_s: float) -> None:
        beats_s.append(clock.monotonic_s())
        waits_s.append(waited_s)

    bench.transaction_manager = TransactionManager(bench.clients, 120_000, clock, awaits)
    bench.transaction_manager.prepare(1000)
    bench.faults.at[step] = bench.answers(late)
    with suppress(TransactionAbortedError, OutcomeUnknownError):
        bench.commit(plan())
    beats_s.append(clock.monotonic_s())
    assert max(later - earlier for earlier, later in pairwise(beats_s)) < 10
    assert max(waits_s) > 100, "how long it takes is reported"


def client_threads() -> int:
    """The threads of this process that belong to Kafka clients."""
    names = (task.read_text() for task in Path("/proc/self/task").glob("*/comm"))
    return sum(name.startswith("rdk:") for name in names)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux tells threads by name")
def test_a_producer_goes_when_it_is_dropped_whatever_reports_are_still_to_come() -> None:
    before = client_threads()
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    changelog = _ChangelogWriter({LOG: [Edit(b"k", b"v")]})
    changelog.write(producer)
    assert client_threads() > before
    del producer
    eventually(lambda: client_threads() <= before)  # those of another test may end meanwhile
    assert not changelog.is_written
