"""Partitions come and go: what is done before one is read, and what is left when it goes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ringfence_service.config.tasks import Hop
from ringfence_service.dedup.partition import PartitionPhase
from ringfence_service.processor.assignment import Assignment
from ringfence_service.processor.input_topics import InputTopics
from ringfence_state.cache import Cache
from ringfence_state.model import Edit, PartitionId
from ringfence_state.offset_metadata import TOMBSTONES_KEPT_MS, OffsetMetadata, encode
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.segment import FORMAT
from ringfence_state.store import Identity, StoreCorruptError, StoreLockedError, StorePosition
from tests.fakes.group import Committed, GroupMetadata
from tests.fakes.log import Chance
from tests.fakes.producer import FakeProducer
from tests.simulation.disk import Disk, StoreOnDisk
from tests.support.helpers import some
from tests.support.living import GROUP, LOG, ORDERS, Living, gone, phases
from tests.support.rings import ring_of
from tests.unit.service.processor.test_restore import OneByOne, run_of

SECOND = PartitionId("orders", 1)
STORE_AGE_MS_MAX = TOMBSTONES_KEPT_MS // 2


class Member(NamedTuple):
    """An assignment that has joined, with the cache it drops rings from."""

    living: Living
    assignment: Assignment
    cache: Cache

    def hear(self) -> list[Message]:
        """Let the group speak, and see what the fetcher has."""
        return self.assignment.consumer.consume(100, 0.001)

    def take_over(self) -> None:
        """Until every partition that was granted runs."""
        self.hear()
        for _ in range(50):
            self.assignment.step()
            if self.assignment.settled:
                return
        raise AssertionError("its partitions do not come to run")

    def offsets(self) -> list[int | None]:
        return [message.offset() for message in self.hear()]

    @property
    def fetched(self) -> list[TopicPartition]:
        return self.assignment.consumer.assignment()


def member(living: Living, instance: str = "0") -> Member:
    clients = living.clients(instance)
    cache = Cache(1 << 30)
    inputs = InputTopics(living.config, clients.cluster, living.clock, Hop.INPUTS)
    service = living.config.service
    assignment = Assignment(clients, living.stores, cache, service, living.clock)
    assignment.subscribe(inputs.input_topics)
    return Member(living, assignment, cache)


def remembering(
    chance: Chance | None = None, runs: int = 3, offset: int | None = 0, **settings: object
) -> Living:
    """A cluster whose changelog holds runs, and whose group has committed an offset."""
    living = Living(chance=chance, **settings)  # type: ignore[arg-type]  # by name
    InputTopics(living.config, living.clients().cluster, living.clock, Hop.INPUTS)
    for number in range(runs):
        living.cluster.write(*LOG, run_of(number))
    if offset is not None:
        commit(living, offset, last=runs - 1)
    return living


def commit(living: Living, offset: int, last: int = 2, **ids: str) -> None:
    """An offset as we commit it: it names the last changelog offset and both topics."""
    logs = living.cluster.logs
    input_id = ids.get("input_topic_id", logs["orders"].id)
    changelog_id = ids.get("changelog_topic_id", logs[LOG.topic].id)
    metadata = encode(OffsetMetadata(last, FORMAT, input_id, changelog_id))
    living.cluster.group(GROUP).store(ORDERS, Committed(offset, metadata))


def content(ours: Member) -> Mapping[bytes, bytes]:
    store = some(ours.assignment.partitions[ORDERS].store)
    return dict(store.scan(b""))


RUNS = {run_of(number).key: run_of(number).value for number in range(3)}


def test_a_grant_is_only_recorded_and_nothing_is_fetched_before_the_partition_runs() -> None:
    ours = member(Living(partitions=2))
    ours.living.send("a", "b")
    asked = ours.living.faults.passed["committed"]
    assert ours.hear() == []
    assert phases(ours.assignment) == [PartitionPhase.ASSIGNED, PartitionPhase.ASSIGNED]
    assert (ours.fetched, ours.offsets()) == ([], [])
    assert ours.living.faults.passed["committed"] == asked
    ours.assignment.step()
    assert phases(ours.assignment) == [PartitionPhase.RUNNING, PartitionPhase.RUNNING]
    assert len(ours.fetched) == 2
    assert ours.offsets() == [0, 1]


def test_a_partition_is_not_read_while_it_is_restored() -> None:
    ours = member(remembering(OneByOne()))
    ours.living.send("a")
    ours.hear()
    for _ in range(2):
        ours.assignment.step()
        assert phases(ours.assignment) == [PartitionPhase.RESTORING]
        assert (ours.assignment.settled, ours.offsets()) == (False, [])
        assert not some(ours.assignment.replay(ours.assignment.partitions[ORDERS])).done
    ours.assignment.step()
    assert (ours.assignment.settled, ours.offsets()) == (True, [0])
    assert content(ours) == RUNS
    assert ours.assignment.running[ORDERS].restored_records == 3


def test_reading_begins_at_the_committed_offset() -> None:
    living = remembering(offset=2)
    living.send("a", "b", "c")
    ours = member(living)
    ours.take_over()
    partition = ours.assignment.running[ORDERS]
    assert (partition.committed_offset, partition.next_offset) == (2, 2)
    assert (partition.changelog_next, partition.addresses) == (3, {"a"})
    assert ours.offsets() == [2]


def test_the_end_of_a_restore_is_behind_the_marker_of_the_last_transaction() -> None:
    living = remembering(runs=0)
    producer = FakeProducer(living.cluster, "another")
    producer.init_transactions()
    producer.begin_transaction()
    record = run_of(0)
    producer.produce(LOG.topic, record.value, record.key, partition=0)
    producer.commit_transaction()
    ours = member(living)
    ours.take_over()
    assert ours.assignment.running[ORDERS].changelog_next == 2


def test_a_rewind_reads_the_same_records_again() -> None:
    ours = member(Living())
    ours.living.send("a", "b")
    ours.take_over()
    assert ours.offsets() == [0, 1]
    assert ours.offsets() == []
    ours.assignment.rewind()
    assert ours.offsets() == [0, 1]


def test_a_rewind_passes_over_what_was_committed() -> None:
    ours = member(Living())
    ours.living.send("a", "b")
    ours.take_over()
    ours.hear()
    ours.assignment.running[ORDERS].next_offset = 1
    ours.assignment.rewind()
    assert ours.offsets() == [1]


def test_a_store_that_grows_too_old_while_it_is_restored_is_wiped_and_restored_again() -> None:
    ours = member(remembering(OneByOne()))
    ours.hear()
    ours.assignment.step()
    ours.living.clock.sleep(STORE_AGE_MS_MAX / 1000 + 1)
    ours.assignment.step()
    ours.assignment.step()
    assert phases(ours.assignment) == [PartitionPhase.ASSIGNED]
    assert ours.assignment.partitions[ORDERS].store is None
    assert ours.living.faults.passed["store.wipe"] == 1
    ours.take_over()
    assert content(ours) == RUNS
    assert ours.assignment.running[ORDERS].restored_records == 3
    assert ours.living.faults.passed["store.wipe"] == 1


def test_a_store_that_keeps_up_is_not_wiped() -> None:
    living = remembering()
    for restored in (3, 0):
        ours = member(living)
        ours.take_over()
        assert ours.assignment.running[ORDERS].restored_records == restored
        ours.assignment.close(leaves=False)
    assert living.faults.passed["store.wipe"] == 0
    assert ours.assignment.restorer.replays == {}


@pytest.mark.parametrize(
    ("changelog_next", "input_next", "age_ms"),
    [(9, 0, 0), (1, 9, 0), (1, 0, STORE_AGE_MS_MAX + 1)],
    ids=["beyond the changelog", "ahead of the offset", "too old"],
)
def test_a_store_that_is_not_the_copy_we_need_is_wiped_before_it_is_restored(
    changelog_next: int, input_next: int, age_ms: int, tmp_path: Path
) -> None:
    living = remembering(stores=RocksStores(tmp_path))
    logs = living.cluster.logs
    identity = Identity("fake-cluster", logs["orders"].id, logs[LOG.topic].id, FORMAT)
    level_at_ms = living.cluster.now_ms - age_ms
    position = StorePosition(identity, input_next, changelog_next, level_at_ms)
    store = living.stores.open(ORDERS)
    store.apply([Edit(b"rubbish", b"")], position)
    store.close()
    ours = member(living)
    ours.take_over()
    assert {key: value for key, value in content(ours).items() if key[:1] != b"\0"} == RUNS


def test_a_store_that_cannot_be_opened_is_wiped_and_restored() -> None:
    living = remembering()
    living.faults.at["store.open"] = iter([StoreCorruptError(ORDERS, "a bit flipped")])
    ours = member(living)
    ours.take_over()
    assert living.faults.passed["store.wipe"] == 1
    assert content(ours) == RUNS


def test_a_revoked_partition_closes_its_store_and_is_forgotten(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path)
    ours = member(remembering(stores=stores))
    ours.take_over()
    store = some(ours.assignment.running[ORDERS].store)
    ring_of(ours.cache, ORDERS, store, "a")
    with pytest.raises(Exception, match="lock"):
        stores.open(ORDERS)
    ours.assignment.on_revoke(ours.assignment.consumer, [TopicPartition(*ORDERS)])
    assert (ours.assignment.partitions, ours.assignment.running) == ({}, {})
    assert (ours.fetched, ours.cache.memory_bytes) == ([], 0)
    stores.open(ORDERS).close()


def test_a_partition_that_is_revoked_in_the_middle_of_its_restore_is_restored_no_further() -> None:
    ours = member(remembering(OneByOne()))
    ours.hear()
    ours.assignment.step()
    ours.assignment.on_revoke(ours.assignment.consumer, [TopicPartition(*ORDERS)])
    assert ours.assignment.restorer.replays == {}
    ours.assignment.step()
    assert ours.assignment.partitions == {}


def test_partitions_are_shared_with_a_joining_member_and_the_rest_goes_on() -> None:
    living = Living(partitions=2)
    ours = member(living, "a")
    ours.take_over()
    theirs = member(living, "b")
    for _ in range(5):
        ours.hear()
        theirs.hear()
    theirs.assignment.step()
    assert list(ours.assignment.running) == [ORDERS]
    assert list(theirs.assignment.running) == [SECOND]
    living.send("a", partition=0)
    assert ours.offsets() == [0]


def test_a_partition_that_comes_back_is_taken_over_again() -> None:
    ours = member(remembering())
    ours.take_over()
    consumer = ours.assignment.consumer
    ours.assignment.on_revoke(consumer, [TopicPartition(*ORDERS)])
    commit(ours.living, 5)
    ours.living.send(*"abcdef")
    ours.assignment.on_assign(consumer, [TopicPartition(*ORDERS)])
    assert phases(ours.assignment) == [PartitionPhase.ASSIGNED]
    ours.assignment.step()
    assert ours.offsets() == [5]


def test_retaking_keeps_the_store_unless_it_has_to_be_wiped() -> None:
    for wipe, wiped in ((False, 0), (True, 1)):
        ours = member(remembering())
        ours.take_over()
        ours.assignment.retake(ORDERS, wipe=wipe)
        assert (ours.fetched, phases(ours.assignment)) == ([], [PartitionPhase.ASSIGNED])
        ours.take_over()
        assert ours.living.faults.passed["store.wipe"] == wiped
        assert content(ours) == RUNS


def test_retaking_what_belongs_to_somebody_else_does_nothing() -> None:
    ours = member(Living())
    ours.take_over()
    ours.assignment.retake(PartitionId("orders", 7), wipe=True)
    assert ours.living.faults.passed["store.wipe"] == 0
    assert ours.assignment.settled


def test_an_earlier_transaction_that_holds_the_offset_is_waited_for() -> None:
    living = Living()
    producer = FakeProducer(living.cluster, "another")
    producer.init_transactions()
    producer.begin_transaction()
    offset = [TopicPartition(*ORDERS, 1)]
    producer.send_offsets_to_transaction(offset, GroupMetadata(GROUP))
    living.send("a", "b")
    ours = member(living)
    ours.hear()
    waiting = some(ours.assignment.step())
    assert "orders-0" in waiting
    assert phases(ours.assignment) == [PartitionPhase.ASSIGNED]
    producer.commit_transaction()
    assert ours.assignment.step() is None
    assert ours.offsets() == [1]


def test_what_else_the_broker_answers_when_it_is_asked_for_offsets_is_raised() -> None:
    ours = member(Living())
    ours.hear()
    ours.living.faults.at["committed"] = iter([gone()])
    with pytest.raises(KafkaException) as caught:
        ours.assignment.step()
    assert caught.value.args[0].code() == KafkaError._TRANSPORT
    ours.take_over()


def test_an_offset_that_the_broker_refuses_to_tell_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = member(remembering(offset=2))
    ours.living.send("a", "b", "c")
    ours.hear()
    refusal = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    told = [SimpleNamespace(error=refusal, offset=-1001, metadata=None)]
    with monkeypatch.context() as refusing:
        refusing.setattr(ours.assignment.consumer, "committed", lambda *_, **__: told)
        with pytest.raises(KafkaException):
            ours.assignment.step()
    ours.take_over()
    assert ours.offsets() == [2]


class Still(Chance):
    """A restore that is brought nothing, as by a client that has forgotten its brokers."""

    is_still = True

    def fetched(self, records_max: int) -> int:
        return 0 if self.is_still else records_max


def test_a_restore_that_stands_still_for_half_a_minute_goes_on_with_a_new_client() -> None:
    chance = Still()
    ours = member(remembering(chance))
    ours.hear()
    closed = []
    for _ in range(64):
        ours.assignment.step()
        ours.living.clock.sleep(0.95)  # it has waited for records
        closed.append(ours.living.faults.passed["close"])
    assert [closed.index(count) for count in (1, 2)] == [31, 62]
    chance.is_still = False
    ours.take_over()
    assert content(ours) == RUNS


def test_a_reset_offset_marks_the_state_to_be_cleared() -> None:
    ours = member(remembering(offset=None, on_reset_offset="clear_state"))
    ours.take_over()
    assert ours.assignment.running[ORDERS].to_clear


def test_a_grant_of_a_topic_that_is_not_read_counts_once_it_is_until_it_is_taken_back() -> None:
    ours, former = member(Living()), PartitionId("former", 0)
    ours.take_over()
    assignment, input_topics = ours.assignment, ours.assignment._input_topics
    both = {**input_topics, "former": input_topics["orders"]}
    assignment.on_assign(assignment.consumer, [TopicPartition(*former)])
    for _ in range(2):
        assert list(assignment.partitions) == [ORDERS]
        assignment.subscribe(both)
        found = assignment.partitions[former]
        assignment.subscribe(both)
        assert assignment.partitions[former] is found
        assignment.subscribe(input_topics)
    assignment.on_revoke(assignment.consumer, [TopicPartition(*former)])
    assignment.subscribe(both)
    assert list(assignment.partitions) == [ORDERS]


def test_a_topic_that_is_no_input_any_more_is_not_read(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path)
    ours = member(remembering(stores=stores))
    ours.take_over()
    ours.assignment.subscribe({"other": ours.assignment._input_topics["orders"]})
    assert (ours.fetched, ours.assignment.running) == ([], {})
    stores.open(ORDERS).close()


def test_a_topic_whose_new_route_is_paused_is_not_read() -> None:
    ours = member(Living())
    ours.take_over()
    ours.assignment.fetching.pause(frozenset({"paused"}), ours.assignment.running.values())
    input_topic = ours.assignment._input_topics["orders"]
    route = some(input_topic.route)
    paused = route._replace(settings=replace(route.settings, name="paused"))
    ours.assignment.subscribe({"orders": input_topic._replace(route=paused)})
    assert (ours.fetched, list(ours.assignment.running)) == ([], [ORDERS])


def test_subscribing_to_the_same_inputs_joins_no_second_time() -> None:
    ours = member(Living())
    ours.assignment.subscribe(ours.assignment._input_topics)
    assert ours.living.faults.passed["subscribe"] == 1


@pytest.mark.parametrize("is_replaced", [False, True])
def test_closing_leaves_the_group_and_closes_every_store(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    stores = RocksStores(tmp_path)
    ours = member(remembering(stores=stores))
    ours.take_over()
    if is_replaced:  # it is no longer notified about its partitions
        member(ours.living)
        ours.hear()
    ours.assignment.close(leaves=False)
    assert ours.living.faults.passed["close"] == 2, "the member and the reader of changelogs"
    stores.open(ORDERS).close()
    assert ours.assignment.partitions == {}
    with pytest.raises(RuntimeError, match="closed"):
        ours.hear()


@pytest.mark.parametrize(("is_replaced", "waited_ms"), [(False, 50), (True, 2_000)])
def test_who_leaves_waits_until_its_partitions_are_given_back_but_two_seconds_at_most(
    *, is_replaced: bool, waited_ms: int
) -> None:
    ours = member(Living())
    ours.take_over()
    if is_replaced:
        member(ours.living)
    members, began_ms = ours.living.cluster.group(GROUP).members, ours.living.cluster.now_ms
    ours.assignment.close(leaves=True)
    assert (len(members), ours.living.cluster.now_ms - began_ms) == (is_replaced, waited_ms)


def test_what_a_member_lost_is_let_go_with_its_membership_and_counted() -> None:
    ours = member(Living())
    ours.take_over()
    group = ours.living.cluster.group(GROUP)
    group.leave(next(iter(group.members.values())))
    ours.hear()
    assert (ours.assignment.partitions, ours.assignment.membership()) == ({}, None)
    assert ours.assignment.changes == {"assigned": 1, "lost": 1}
    ours.take_over()


def test_every_change_of_the_group_is_counted() -> None:
    ours = member(Living())
    assert (ours.assignment.rebalances, ours.assignment.membership()) == (0, None)
    ours.hear()
    assert ours.assignment.rebalances == 1
    ours.assignment.close(leaves=False)
    assert ours.assignment.rebalances == 2


class HeldOnce(Disk):
    """Stores that another process releases after the first try."""

    tries = 0

    def open(self, source: PartitionId) -> StoreOnDisk:
        self.tries += 1
        if self.tries == 1:
            raise StoreLockedError(source.topic)
        return super().open(source)


def test_a_store_that_another_process_has_is_waited_for_and_not_wiped() -> None:
    living = remembering()
    living.stores = stores = HeldOnce(living.cluster.step)
    ours = member(living)
    ours.hear()
    assert ours.assignment.step() == (
        "the stores of orders-0, which another process of this instance still has open"
    )
    ours.assignment.step()
    assert stores.tries == 1, "it tries again without a pause"
    living.clock.sleep(1)
    ours.take_over()
    assert ours.assignment.step() is None
    assert living.faults.passed["store.wipe"] == 0


# What it reports of its progress.


def test_it_has_caught_up_once_each_partition_is_read_to_its_end_or_paused() -> None:
    ours = member(remembering(OneByOne()))
    ours.living.send("a", "b")
    assignment, found = ours.assignment, list[bool]()

    def ask() -> None:
        found.append(assignment.has_caught_up())

    ask()  # it has not joined
    ours.hear()
    assignment.step()
    ask()  # it is restored
    ours.take_over()
    ask()
    while ours.offsets() != [1]:
        pass
    ask()  # it is read, though not committed
    ours.living.send("c")
    ask()
    del ours.living.cluster.logs["orders"]
    ask()  # the client knows no end
    assignment.fetching.pause(frozenset({"orders"}), assignment.running.values())
    ask()
    assert found == [False, False, False, True, False, False, True]


def test_the_end_of_a_partition_is_that_of_its_log_with_open_transactions() -> None:
    ours = member(Living())
    ours.take_over()
    partition = ours.assignment.running[ORDERS]
    assert ours.assignment.end_of(partition) == 0
    producer = FakeProducer(ours.living.cluster, "another")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush()
    assert ours.assignment.end_of(partition) == 1
    del ours.living.cluster.logs["orders"]
    assert ours.assignment.end_of(partition) is None


def test_where_the_client_does_not_tell_its_position_a_partition_is_read_to_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = member(remembering(offset=2))
    ours.living.send("a", "b", "c")
    ours.take_over()
    ours.hear()
    assert ours.assignment.reached() == {ORDERS: 3}

    def position(_partitions: list[TopicPartition]) -> list[TopicPartition]:
        raise gone()

    monkeypatch.setattr(ours.assignment.consumer, "position", position)
    assert ours.assignment.reached() == {ORDERS: 2}


def test_a_consumer_that_finds_no_broker_says_so_and_looks_every_five_seconds() -> None:
    ours, told = member(Living()), list[str | None]()
    ours.take_over()
    ours.living.faults.at["metadata"] = iter([gone()])
    for _ in range(12):
        ours.living.clock.sleep(1.5)
        told.append(ours.assignment.step())
    astray = "the broker, which our consumer cannot find"
    assert told == [None] * 3 + [astray] * 4 + [None] * 5
    assert ours.living.faults.passed["metadata"] == 3


def test_who_has_not_joined_yet_does_not_miss_partitions() -> None:
    ours = member(Living())
    for _ in range(4):
        ours.living.clock.sleep(5)
        assert ours.assignment.step() is None
    assert ours.living.faults.passed["assigned"] == 0
