"""Restore: a changelog's tail becomes the store's content, read to the very end of the log."""

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaException, Message

from ringfence_service.processor.restore import ChangelogReplay, ForeignRecordError, Restorer
from ringfence_state.keys import UnknownFormatError
from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import PartitionId
from ringfence_state.segment import Segment, encode, key
from ringfence_state.store import Identity, StorePosition
from tests.fakes.consumer import FakeConsumer
from tests.fakes.log import Chance, FakeCluster
from tests.fakes.partition import Record
from tests.fakes.producer import FakeProducer
from tests.simulation.instance import FakeClock
from tests.support.helpers import some

LOG = PartitionId("log", 0)
OTHER = PartitionId("log", 1)
START = StorePosition(Identity("c", "i", "l", 1), 7, 0, 1_000)


def run_of(number: int) -> Record:
    run = Segment(number, 0, 10, (PartitionId("in", 0),), (b"id",), (0,), (number,), (1,))
    return Record(key("a", number), encode(run))


class OneByOne(Chance):
    """One record at a time from each partition."""

    def fetched(self, records_max: int) -> int:
        return min(records_max, 1)


class Lingering(Chance):
    """What was assigned before is forgotten a while after something else is."""

    def lingers(self) -> bool:
        return True


class World:
    """A changelog of two partitions, and a restorer."""

    def __init__(self, chance: Chance | None = None) -> None:
        self.cluster = FakeCluster(chance)
        self.cluster.create_topic("log", 2)
        self.made: list[FakeConsumer] = []
        self.clock = FakeClock(self.cluster)
        self.restorer = Restorer(self._consumer, self.clock)
        self.store = MemoryStore()

    def _consumer(self) -> Consumer:
        self.made.append(FakeConsumer(self.cluster, "g"))
        return cast("Consumer", self.made[-1])

    def write(self, *records: Record, partition: int = 0) -> None:
        for record in records:
            self.cluster.write("log", partition, record)

    def begun(self, name: str, *records: Record) -> FakeProducer:
        """A producer with an open transaction that holds these records."""
        producer = FakeProducer(self.cluster, name)
        producer.init_transactions()
        producer.begin_transaction()
        for record in records:
            producer.produce("log", record.value, record.key, partition=0)
        producer.flush()
        return producer

    def replay(
        self, log: PartitionId = LOG, store: MemoryStore | None = None, start: int = 0
    ) -> ChangelogReplay:
        """Under way, to the end that the log has now."""
        partition = some(self.cluster.log(*log))
        position = START._replace(changelog_next=start)
        replay = ChangelogReplay(log, store or self.store, position, partition.end)
        self.restorer.add(replay)
        return replay

    @property
    def keys(self) -> list[bytes]:
        return [key for key, _ in self.store.scan(b"")]


def test_a_replay_brings_every_record_into_the_store_with_its_position() -> None:
    world = World()
    world.write(run_of(0), run_of(1))
    replay = world.replay()
    world.restorer.step(0)
    assert replay.done
    assert replay.end == 2
    assert dict(world.store.scan(b"")) == {run_of(n).key: run_of(n).value for n in (0, 1)}
    assert world.store.position() == START._replace(changelog_next=2)
    assert replay.records == 2


def test_a_replay_begins_where_the_store_stands() -> None:
    world = World()
    world.write(run_of(0), run_of(1))
    world.replay(start=1)
    world.restorer.step(0)
    assert world.keys == [run_of(1).key]


def test_a_tombstone_deletes_its_run() -> None:
    world = World()
    world.write(run_of(0), run_of(1), Record(run_of(0).key, None))
    replay = world.replay()
    world.restorer.step(0)
    assert replay.position.changelog_next == replay.end == 3
    assert world.keys == [run_of(1).key]


def test_the_marker_behind_the_last_record_is_passed_to_reach_the_end() -> None:
    world = World()
    world.begun("ours", run_of(0)).commit_transaction()
    replay = world.replay()
    assert replay.end == 2
    world.restorer.step(0)
    assert replay.done
    assert replay.position.changelog_next == 2
    assert replay.records == 1


def test_what_was_aborted_is_passed_and_leaves_nothing() -> None:
    world = World()
    world.begun("ours", run_of(0)).abort_transaction()
    replay = world.replay()
    world.restorer.step(0)
    assert replay.done
    assert world.keys == []
    assert world.store.position() == START._replace(changelog_next=2)


def test_an_open_transaction_below_the_end_is_waited_for() -> None:
    world = World()
    world.write(run_of(0))
    open_transaction = world.begun("another", run_of(1))
    replay = world.replay()
    world.restorer.step(0)
    assert (replay.done, replay.position.changelog_next) == (False, 1)
    world.restorer.step(0)
    assert (replay.done, replay.position.changelog_next) == (False, 1)
    open_transaction.commit_transaction()
    world.restorer.step(0)
    assert replay.done
    assert world.keys == [run_of(0).key, run_of(1).key]


def test_between_two_steps_the_store_holds_a_prefix_and_knows_which() -> None:
    world = World(OneByOne())
    world.write(run_of(0), run_of(1), run_of(2))
    replay = world.replay()
    for held in (1, 2, 3):
        world.restorer.step(0)
        assert len(world.keys) == held
        assert world.store.position() == START._replace(changelog_next=held)
        assert replay.done == (held == 3)


def test_replays_go_on_beside_each_other_and_one_that_is_removed_stops() -> None:
    world, other = World(OneByOne()), MemoryStore()
    for partition in (0, 1):
        world.write(run_of(0), run_of(1), partition=partition)
    stopped, going = world.replay(LOG), world.replay(OTHER, other)
    world.restorer.step(0)
    world.restorer.remove(LOG)
    assert world.restorer.replays == {OTHER: going}
    world.restorer.step(0)
    assert going.done
    assert (stopped.done, len(world.keys), len(list(other.scan(b"")))) == (False, 1, 2)


def test_a_replay_that_joins_late_does_not_restart_the_others() -> None:
    world = World(OneByOne())
    for partition in (0, 1):
        world.write(run_of(0), run_of(1), partition=partition)
    first = world.replay(LOG)
    world.restorer.step(0)
    late = world.replay(OTHER, MemoryStore())
    world.restorer.step(0)
    assert first.done
    assert first.records == 2
    assert late.position.changelog_next == 1


def test_a_log_that_moved_on_is_read_to_the_end_that_was_asked_for_at_least() -> None:
    world = World()
    world.write(run_of(0))
    replay = world.replay()
    world.write(run_of(1))
    world.restorer.step(0)
    assert replay.done
    assert replay.position.changelog_next == len(world.keys) == 2


@pytest.mark.parametrize(
    "foreign",
    [
        Record(b"who", b"?"),
        Record(None, b"?"),
        Record(some(run_of(0).key)[:-1], run_of(0).value),
        Record(run_of(0).key, b"\xff"),
    ],
    ids=["a key", "no key", "half a key", "a value"],
)
def test_a_foreign_record_is_refused_and_nothing_is_applied(foreign: Record) -> None:
    world = World()
    world.write(run_of(0), foreign)
    world.replay()
    with pytest.raises(UnknownFormatError, match=r"^log-0@1: "):
        world.restorer.step(0)
    assert world.store.position() is None


def test_a_foreign_record_that_was_deleted_is_in_nobodys_way() -> None:
    world = World()
    world.write(run_of(0), Record(b"who", None))
    replay = world.replay()
    world.restorer.step(0)
    assert replay.done
    assert [key for key, _ in world.store.scan(b"")] == [run_of(0).key]


def test_what_the_broker_answers_in_place_of_records_is_raised() -> None:
    world = World()
    world.write(run_of(0), run_of(1))
    log = some(world.cluster.log(*LOG))
    world.replay()
    log.delete_before(1)
    for _ in range(2):  # it is asked for again
        with pytest.raises(KafkaException, match="out of range"):
            world.restorer.step(0)


def test_without_a_replay_there_is_neither_work_nor_a_consumer() -> None:
    world = World()
    world.restorer.step(0)
    world.restorer.remove(LOG)
    world.restorer.close()
    assert world.made == []
    world.replay()
    world.restorer.remove(LOG)
    before_ms = world.cluster.now_ms
    world.restorer.step(5)
    assert world.cluster.now_ms == before_ms


def test_a_restorer_that_was_closed_makes_a_new_consumer_when_it_is_needed() -> None:
    world = World()
    world.write(run_of(0))
    world.replay()
    world.restorer.close()
    assert world.restorer.replays == {}
    world.replay()
    world.restorer.step(0)
    assert [consumer._closed for consumer in world.made] == [True, False]
    assert len(world.keys) == 1


def test_what_came_with_an_error_is_in_the_store_and_nothing_is_passed_over() -> None:
    world, other = World(Lingering()), MemoryStore()
    for partition in (0, 1):
        world.write(run_of(0), run_of(1), partition=partition)
    world.replay(LOG)
    replay = world.replay(OTHER, other)
    world.cluster.log(*LOG).delete_before(1)  # type: ignore[union-attr]  # it was made above
    with pytest.raises(KafkaException):
        world.restorer.step(0)
    assert (replay.position.changelog_next, replay.records) == (2, 2)
    world.restorer.remove(LOG)
    for _ in range(4):
        world.restorer.step(0)
        assert len(list(other.scan(b""))) == replay.position.changelog_next
    assert replay.done
    assert replay.position == other.position()


def test_a_log_that_comes_back_with_an_empty_store_is_read_from_its_start() -> None:
    world, wiped = World(Lingering()), MemoryStore()
    world.write(run_of(0), run_of(1))
    world.replay()
    world.restorer.step(0)
    world.restorer.remove(LOG)
    replay = world.replay(store=wiped)
    for _ in range(4):
        world.restorer.step(0)
        assert len(list(wiped.scan(b""))) == replay.position.changelog_next
    assert replay.done


class Deaf(OneByOne):
    """Gets nothing while it is deaf."""

    is_deaf = False

    def fetched(self, records_max: int) -> int:
        return 0 if self.is_deaf else super().fetched(records_max)


def test_where_no_replay_advances_a_new_consumer_goes_on_where_the_old_one_stood() -> None:
    chance = Deaf()
    world = World(chance)
    world.write(run_of(0), run_of(1))
    replay = world.replay()
    chance.is_deaf = True
    for _ in range(3):
        assert [consumer._closed for consumer in world.made] == [False]
        world.restorer.step(0)
        world.cluster.wait(16)
    chance.is_deaf = False
    world.restorer.step(0)
    world.restorer.step(0)
    assert (replay.done, replay.records) == (True, 2)
    assert [consumer._closed for consumer in world.made] == [True, False]


def test_what_was_read_and_not_applied_is_read_again_by_the_next_restorer() -> None:
    world = World()
    world.write(run_of(0), run_of(1), Record(b"?foreign", b"value"))
    replay = world.replay()
    with pytest.raises(ForeignRecordError):
        world.restorer.step(0)
    assert (len(replay.edits), replay.position.changelog_next) == (2, 0)
    world.restorer.remove(LOG)
    replay.discard_read()
    replay.end = 2
    world.restorer.add(replay)
    with pytest.raises(ForeignRecordError):
        world.restorer.step(0)
    assert len(replay.edits) == 2


def test_a_replay_that_is_done_needs_no_new_consumer() -> None:
    world = World()
    world.write(run_of(0))
    assert world.replay().position.changelog_next == 0
    for _ in range(4):
        world.restorer.step(0)
        world.cluster.wait(16)
    assert [consumer._closed for consumer in world.made] == [False]


class Counting(FakeConsumer):
    """Notes the bytes that each read returns."""

    def __init__(self, cluster: FakeCluster, group_id: str, reads: list[int]) -> None:
        super().__init__(cluster, group_id)
        self._reads = reads

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        messages = super().consume(num_messages, timeout)
        self._reads.append(sum(map(len, messages)))
        return messages


def test_large_records_are_replayed_a_few_at_a_time() -> None:
    world, reads = World(), list[int]()
    world.restorer = Restorer(
        lambda: cast("Consumer", Counting(world.cluster, "g", reads)), world.clock
    )
    large = encode(Segment(0, 0, 10, (PartitionId("in", 0),), (bytes(60_000),), (0,), (0,), (1,)))
    world.write(*(Record(key("a", number), large) for number in range(2_000)))
    replay = world.replay()
    while not replay.done:
        world.restorer.step(0)
    assert len(world.keys) == 2_000
    assert max(reads) <= 8 * 1024 * 1024
