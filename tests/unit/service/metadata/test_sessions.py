"""Sessions: a name belongs to who took it last, and the committed offsets tell since when."""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import repeat
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException

from ringfence_client.headers import DUPLICATE_ID, EPOCH, NUMBER, PUBLISHER, DeadLetter
from ringfence_service.metadata import topic as config_topic
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.instances import Registration
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.sessions import SessionRecord, record_of
from ringfence_service.metadata.topic import MetadataReader, MetadataWriter
from ringfence_state.model import PartitionId
from ringfence_state.offset_metadata import decode, encode
from tests.fakes.clients import FakeClients
from tests.fakes.errors import fenced
from tests.fakes.log import Chance
from tests.fakes.partition import Record
from tests.fakes.producer import FakeProducer
from tests.support.deciding import World, reasons, record, told
from tests.support.helpers import some
from tests.support.living import GROUP, ORDERS, Living, Telling, late, turns, waiting_for
from tests.support.waiting import LIMIT_S, eventually

TOPIC: Final = "g.config"
SEQUENCE: Final = {"#": {"strategy": "sequence"}}
Header = tuple[str, bytes | None]


def said(publisher: str = "P", epoch: int | None = None) -> list[Header]:
    headers: list[Header] = [(PUBLISHER, publisher.encode())]
    return headers if epoch is None else [*headers, (EPOCH, b"%d" % epoch)]


def opening(publisher: str = "P", user: str = "", epoch: int = 1) -> MetadataRecord:
    return record_of(publisher, SessionRecord(epoch, user, 0))


def writer(living: Living) -> MetadataWriter:
    return MetadataWriter(lambda: living.clients("admin"), TOPIC, living.clock)


def revision(living: Living) -> int | None:
    found = living.cluster.group(GROUP).committed.get(ORDERS)
    metadata = None if found is None else decode(found.metadata)
    return None if metadata is None else metadata.revision


# What is refused.


@pytest.mark.parametrize(
    ("epoch", "what"), [(None, "of no session"), (0, "of no session"), (1, "of epoch 1")]
)
def test_a_record_of_an_earlier_epoch_or_of_none_is_refused(epoch: int | None, what: str) -> None:
    world = World(epochs={"P": 2})
    plan = world.commit(record(0, *said(epoch=epoch), (DUPLICATE_ID, b"a")))
    assert reasons(plan.outputs) == ["name-in-use"]
    cause = f"P has opened a session of epoch 2, and this record is {what}"
    assert told(plan.outputs[0][-1])[DeadLetter.CAUSE] == cause
    again = world.commit(record(1, *said(epoch=2), (DUPLICATE_ID, b"a")))
    assert reasons(again.outputs) == [None]


def test_who_never_opened_a_session_is_not_checked() -> None:
    world = World(epochs={"P": 2})
    plan = world.commit(
        record(0, *said("Q"), (DUPLICATE_ID, b"a")), record(1, (DUPLICATE_ID, b"b"))
    )
    assert reasons(plan.outputs) == [None, None]


def test_an_epoch_that_is_no_number_is_invalid() -> None:
    world = World(epochs={"P": 2})
    plan = world.commit(record(0, (PUBLISHER, b"P"), (EPOCH, b"two")))
    assert reasons(plan.outputs) == ["invalid-claim"]


@pytest.mark.parametrize("strategy", ["ring", "window", "audit", "sequence"])
def test_every_strategy_keeps_out_who_lost_the_name(strategy: str) -> None:
    world = World(addresses={"#": {"strategy": strategy}}, epochs={"P": 1})
    numbered = ((NUMBER, b"1"), (DUPLICATE_ID, b"a"))
    assert reasons(world.commit(record(0, *said(), *numbered)).outputs) == ["name-in-use"]


# In the loop.


def test_a_session_decides_from_the_offset_that_says_so() -> None:
    living = Living(addresses=SEQUENCE)
    living.write(b"1", *said(), (NUMBER, b"1"))
    loop = living.running()
    written = writer(living).write(lambda _: opening())
    turns(loop, 1)
    assert revision(living) == written
    living.write(b"2", *said(), (NUMBER, b"2"))
    living.write(b"3", *said(epoch=1), (NUMBER, b"3"))
    turns(loop, 2)
    assert living.values("orders.unique") == ["1", "3"]
    assert living.reasons("orders.dlq") == ["name-in-use"]


def test_a_partition_of_which_nothing_was_read_says_so_too() -> None:
    living = Living()
    loop = living.running()
    assert living.committed() is None
    written = writer(living).write(lambda _: opening())
    turns(loop, 1)
    assert (living.committed(), revision(living)) == (0, written)


def test_a_name_that_was_given_back_is_free_and_its_epochs_go_on() -> None:
    living = Living()
    loop = living.running()
    writer(living).write(lambda _: opening())
    writer(living).write(lambda _: record_of("P", SessionRecord(1, "", 0, is_open=False)))
    living.write(b"1", *said(), (DUPLICATE_ID, b"a"))
    turns(loop, 2)
    assert living.values("orders.unique") == ["1"]

    def next_epoch(settings: MetadataImage) -> MetadataRecord:
        return opening(epoch=settings.sessions.by_publisher["P"].epoch + 1)

    writer(living).write(next_epoch)
    turns(loop, 1)
    assert loop.sessions.epochs == {"P": 2}


def test_a_recreated_config_topic_holds_nobody_up() -> None:
    living = Living()
    loop = living.running()
    for _ in range(3):
        writer(living).write(lambda _: opening())
    turns(loop, 1)
    loop.close()
    del living.cluster.logs[TOPIC]
    loop = living.running()
    asked = living.faults.passed["ends"]
    turns(loop)
    assert living.faults.passed["ends"] == asked, "it looks for what is not there any more"
    living.write(b"1", *said(), (DUPLICATE_ID, b"a"))
    turns(loop)
    assert living.values("orders.unique") == ["1"]
    assert revision(living) == 0


class Slow(Chance):
    """What stands in the metadata topic takes its time to come."""

    after_ms = 0

    def answers_after_ms(self, topic: str) -> int:
        return self.after_ms if topic == TOPIC else 0


def test_nothing_is_decided_by_less_than_an_earlier_owner_knew() -> None:
    chance = Slow()
    living = Living(chance=chance)
    living.send("a")
    loop = living.running()
    chance.after_ms = 300
    written = writer(living).write(lambda _: opening())
    committed = living.cluster.group(GROUP).committed
    theirs = some(decode(committed[ORDERS].metadata))._replace(revision=written)
    committed[ORDERS] = committed[ORDERS]._replace(metadata=encode(theirs))
    loop.assignment.retake(ORDERS, wipe=False)
    living.write(b"1", *said(), (DUPLICATE_ID, b"b"))
    turns(loop)
    assert living.reasons("orders.dlq") == ["name-in-use"]


# The topic.


def test_each_writer_sees_what_was_written_before() -> None:
    living = Living()
    living.running()
    seen: list[int] = []

    def change(settings: MetadataImage) -> MetadataRecord:
        seen.append(len(settings.sessions.by_publisher))
        return opening(f"P{len(seen)}")

    revisions = [writer(living).write(change) for _ in range(3)]
    assert seen == [0, 1, 2]
    assert revisions == sorted(set(revisions))


def test_what_a_change_raises_comes_through_and_nothing_is_written() -> None:
    living = Living()
    living.running()
    before = living.cluster.records(TOPIC)

    def refuse(_settings: MetadataImage) -> MetadataRecord:
        raise ValueError("taken")

    with pytest.raises(ValueError, match="taken"):
        writer(living).write(refuse)
    assert living.cluster.records(TOPIC) == before


def test_what_a_writer_left_open_when_it_died_holds_nobody_up() -> None:
    living = Living()
    living.running().close()
    dying = living.clients("admin").settings_producer()
    dying.init_transactions()
    dying.begin_transaction()
    dying.produce(TOPIC, b"{}", b"[]", 0)
    dying.flush()
    started_ms = living.cluster.now_ms
    living.running()
    assert living.cluster.now_ms - started_ms < 5_000


def test_what_comes_with_an_error_is_not_lost() -> None:
    chance = Telling(TOPIC)
    living = Living(chance=chance)
    loop = living.running()
    writer(living).write(lambda _: opening())
    chance.errors = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")]
    loop.turn()
    assert "TOPIC_AUTHORIZATION_FAILED" in (waiting_for(living) or "")
    turns(loop, 2)
    assert not chance.errors
    assert loop.sessions.epochs == {"P": 1}


def following(living: Living) -> tuple[MetadataReader, list[int]]:
    """One that has read what there is, and the offsets that it reads."""
    passed: list[int] = []
    follower = MetadataReader(living.clients("other"), TOPIC, living.clock, on_offset=passed.append)
    follower.catch_up()
    return follower, passed


def test_the_records_of_the_audit_are_heard_and_no_part_of_the_settings() -> None:
    living, heard = Living(), list[tuple[bytes | None, bytes | None]]()
    living.cluster.write(TOPIC, 0, Record(b'["audit","1"]', b"{}", None, 1))
    follower = MetadataReader(
        living.clients(), TOPIC, living.clock, lambda key, value: heard.append((key, value))
    )
    follower.catch_up()
    assert heard == [(b'["audit","1"]', b"{}")]
    assert follower.settings.revision == 0


def test_a_revision_is_the_offset_after_the_last_record() -> None:
    living = Living()
    living.cluster.create_topic(TOPIC)
    assert writer(living).write(lambda _: opening()) == 1
    assert following(living)[0].settings.revision == 1
    end = some(living.cluster.log(TOPIC, 0)).end
    assert writer(living).write(lambda _: [opening("P"), opening("Q")]) == end + 2


@pytest.mark.parametrize(("open_s", "waited_s"), [(5, 5), (100, 10)])
def test_a_transaction_that_stays_open_is_waited_for_ten_seconds(
    open_s: int, waited_s: int
) -> None:
    """Of a name that nobody asks for; of a writer's own, its end would be its own too."""
    living, inits = Living(), "init_transactions"
    other = FakeProducer(living.cluster, "another", open_s * 1000)
    other.init_transactions()
    other.begin_transaction()
    other.produce(TOPIC, b"{}", b"[]", 0)
    other.flush()
    begun_s, before = living.clock.monotonic_s(), living.faults.passed[inits]
    is_read = (
        nullcontext()
        if open_s < 10
        else pytest.raises(KafkaException, match="cannot be read to its end")
    )
    with is_read:
        writer(living).write(lambda _: opening())
    assert living.faults.passed["close"] == 1
    assert 0 <= living.clock.monotonic_s() - begun_s - waited_s < 0.1
    assert living.faults.passed[inits] == before + 1
    with is_read:
        following(living)
    assert living.faults.passed[inits] == before + (1 if open_s < 10 else 2), "it is asked once"


def test_a_recreated_config_topic_is_read_from_its_beginning() -> None:
    living = Living()
    living.clients().cluster.delete_before({PartitionId(TOPIC, 0): 1})
    writer(living).write(lambda _: opening())
    follower, passed = following(living)
    living.cluster.create_topic(TOPIC)
    living.cluster.write(TOPIC, 0, Record(*opening("Q"), None, 1))
    passed.clear()
    for _ in range(3):
        follower.poll()
    assert (passed, follower.has_caught_up()) == ([0], True)
    assert "Q" in follower.settings.sessions.epochs


def test_a_client_that_hears_nothing_and_finds_no_broker_is_replaced_by_one_that_reads_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living, asked_s = Living(), list[float]()
    follower, passed = following(living)
    begun_s = living.clock.monotonic_s()

    def finds(_client: object, _topic: str) -> bool:
        asked_s.append(living.clock.monotonic_s() - begun_s)
        return len(asked_s) > 1

    monkeypatch.setattr(config_topic, "finds_a_broker", finds)
    for second in range(85):
        if second in (20, 60):
            living.cluster.write(TOPIC, 0, Record(*opening(), None, 1))
            assert not follower.has_caught_up()
        living.clock.sleep(1)
        follower.poll()
    assert (passed, follower.has_caught_up()) == ([0, 1, 2, 3], True)
    assert asked_s == [51]
    follower.close()
    assert living.faults.passed["close"] == 2


def test_a_client_that_no_longer_fetches_is_replaced_by_one_that_reads_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living()
    follower, passed = following(living)
    monkeypatch.setattr(follower._consumer, "consume", lambda *_: [])
    for second in range(70):
        if second == 35:  # after it was asked once, and there was nothing to read
            assert living.faults.passed["close"] == 0
            living.cluster.write(TOPIC, 0, Record(*opening(), None, 1))
        living.clock.sleep(1)
        follower.poll()
    assert (passed, follower.has_caught_up()) == ([0, 1, 2], True)
    assert living.faults.passed["close"] == 1
    follower.close()


def test_what_a_client_could_not_send_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living()
    before = living.cluster.records(TOPIC)
    monkeypatch.setattr(FakeProducer, "flush", lambda *_: 1)
    with pytest.raises(KafkaException, match="accepts no records"):
        writer(living).write(lambda _: opening())
    assert living.cluster.records(TOPIC) == before
    assert living.faults.passed["close"] == 1, "of the client that has read the topic"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"[]", b"{}"),
        (b'["session"]', b"{}"),
        (b'["session","P"]', None),
        (b'["session","P"]', b'{"epoch":1}'),
        (b'["session","P"]', b'{"epoch":"1","user":"","opened_at_ms":0,"is_open":true}'),
        (b'["route","P"]', b'{"epoch":1,"user":"","opened_at_ms":0,"is_open":true}'),
    ],
)
def test_what_another_version_wrote_is_passed_over(key: bytes | None, value: bytes | None) -> None:
    settings = MetadataImage()
    settings.take(4, key, value)
    assert (settings.revision, settings.sessions.epochs) == (0, {})


def test_what_no_decision_depends_on_is_known_and_changes_no_revision() -> None:
    settings, announced = MetadataImage(), Registration("0", "http://here", 1, "0.1.0")
    settings.take(4, *announced.record)
    assert (settings.revision, settings.instances.all) == (0, (announced,))


@pytest.mark.parametrize("step", ["init_transactions", "commit_transaction"])
def test_a_writer_whom_another_comes_between_looks_and_writes_again(step: str) -> None:
    living, looked = Living(), list[int]()

    def change(settings: MetadataImage) -> MetadataRecord:
        looked.append(settings.revision)
        return opening()

    living.faults.at[step] = iter([fenced(), fenced(), None])
    assert writer(living).write(change) > 0
    assert len(looked) == (3 if step == "commit_transaction" else 1)
    living.faults.at[step], begun_s = repeat(fenced()), living.clock.monotonic_s()
    with pytest.raises(KafkaException):
        writer(living).write(change)
    assert living.clock.monotonic_s() - begun_s > 1, "each time it waits longer"


def next_epoch(given: list[int]) -> Callable[[MetadataImage], MetadataRecord]:
    """As the registry does: a session more than there were."""

    def change(settings: MetadataImage) -> MetadataRecord:
        last = settings.sessions.by_publisher.get("P")
        given.append(1 if last is None else last.epoch + 1)
        return opening(epoch=given[-1])

    return change


@pytest.mark.row(35)
@pytest.mark.parametrize("error", [fenced, late])
def test_what_was_committed_without_an_answer_is_not_written_again(
    error: Callable[[], KafkaException],
) -> None:
    living, given = Living(), list[int]()
    before = len(living.cluster.records(TOPIC))
    living.faults.at["commit_transaction.done"] = iter([error()])
    revision = writer(living).write(next_epoch(given))
    assert given == [1]
    assert len(living.cluster.records(TOPIC)) == before + 1
    assert writer(living).write(next_epoch(given)) > revision > 0
    assert given == [1, 2]


@pytest.mark.row(35)
@pytest.mark.parametrize("error", [fenced, late])
def test_what_was_not_committed_is_written_again(error: Callable[[], KafkaException]) -> None:
    living, given = Living(), list[int]()
    before = len(living.cluster.records(TOPIC))
    living.faults.at["commit_transaction"] = iter([error()])
    assert writer(living).write(next_epoch(given)) > 0
    assert given == [1, 1]
    assert len(living.cluster.records(TOPIC)) == before + 1


@pytest.mark.row(35)
@pytest.mark.parametrize("is_answered", [True, False])
def test_at_whatever_step_another_process_writes_each_change_is_made_once(
    monkeypatch: pytest.MonkeyPatch, *, is_answered: bool
) -> None:
    def other_at(step: int) -> tuple[Living, list[int], list[int]]:
        living, mine, others = Living(), list[int](), list[int]()
        left, lost = step, iter([] if is_answered else [fenced()])

        def on_step(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                monkeypatch.setattr(config_topic, "_PROCESS_LOCK", threading.Lock())
                living.cluster.on_step = living.faults
                writer(living).write(next_epoch(others))
                living.cluster.on_step = on_step
            if name == "commit_transaction.done":
                for error in lost:
                    raise error

        living.cluster.on_step = on_step
        writer(living).write(next_epoch(mine))
        return living, mine, others

    step, orders = 1, set[tuple[int, int]]()
    while (found := other_at(step))[2]:
        living, mine, others = found
        told = living.cluster.records(TOPIC)
        sessions = [record for record in told if b"session" in (record.key or b"")]
        assert [mine[-1], others[-1]] in ([1, 2], [2, 1])
        assert len(sessions) == 2
        orders.add((mine[-1], others[-1]))
        step += 1
    assert step > 10
    assert orders == {(1, 2), (2, 1)}


def test_threads_that_wait_for_each_other_read_the_topic_once() -> None:
    living, given, made = Living(), list[int](), list[FakeClients]()
    change = next_epoch(given)

    def clients() -> FakeClients:
        made.append(living.clients("admin"))
        return made[-1]

    shared = MetadataWriter(clients, TOPIC, living.clock)

    def first(settings: MetadataImage) -> MetadataRecord:
        eventually(lambda: len(shared._waiting) >= 6)
        return change(settings)

    inits = living.faults.passed["init_transactions"]
    threads = [threading.Thread(target=shared.write, args=(change,)) for _ in range(5)]

    def begin(settings: MetadataImage) -> MetadataRecord:
        for thread in threads:
            thread.start()
        return first(settings)

    shared.write(begin)
    for thread in threads:
        thread.join(LIMIT_S)
    assert given == [1, 2, 3, 4, 5, 6]
    assert living.faults.passed["init_transactions"] == inits + 1
    assert len(made) == 2, "of one producer, and of one follower"
    assert shared.write(change) > 0
    assert len(made) == 4, "nothing is kept while nobody waits"
