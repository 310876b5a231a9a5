"""What the broker refuses, lacks or has lost: waited for, left to a policy, or the end."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import cycle, repeat

import pytest
from confluent_kafka import KafkaError, Message

from ringfence_service.dedup.output import TargetMissingError
from ringfence_service.dedup.plan import Output
from ringfence_service.errors import ExitCode, missing_inputs
from ringfence_service.kafka.errors import fault_of
from ringfence_service.kafka.model import VisibleTopics
from ringfence_service.processor.transaction import OutcomeUnknownError
from ringfence_state.model import Edit, PartitionId
from ringfence_state.segment import key
from ringfence_state.store import StoreCorruptError
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import Chance
from tests.support.helpers import ending, some
from tests.support.living import (
    ORDERS,
    ROUTE,
    Living,
    Telling,
    gone,
    refused,
    turns,
    waiting_for,
)


def without_output(chance: Chance | None = None) -> Living:
    living = Living(chance=chance)
    del living.cluster.logs["orders.unique"]
    return living


STEERED = replace(ROUTE, output="{header:TO}", allowed_outputs=("orders.unique", "later"))


def steer(living: Living, *targets: bytes) -> None:
    for number, target in enumerate(targets):
        living.write(b"%d" % number, ("TO", target))


def test_a_record_that_names_an_absent_topic_holds_up_nothing() -> None:
    living = Living(STEERED)
    steer(living, b"orders.unique", b"later", b"orders.unique")
    turns(living.running())
    assert living.values("orders.unique") == ["0", "2"]
    assert living.reasons("g.dead-letters") == ["no-output"]
    assert (living.committed(), waiting_for(living)) == (3, None)


def test_a_topic_that_was_absent_and_is_there_now_is_written() -> None:
    living = Living(STEERED)
    steer(living, b"later")
    loop = living.running()
    turns(loop)
    assert living.reasons("g.dead-letters") == ["no-output"]
    living.cluster.create_topic("later")
    for _ in range(8):
        steer(living, b"later")
        living.cluster.wait(1.0)
        loop.turn()
    turns(loop)
    assert living.values("later")
    assert living.reasons("g.dead-letters").count("no-output") <= 4


def test_a_topic_that_nobody_has_named_since_it_was_absent_is_found() -> None:
    living = Living(STEERED)
    loop = living.running()
    living.cluster.create_topic("later")
    living.cluster.wait(4)
    loop.turn()
    steer(living, b"later")
    turns(loop)
    assert (living.values("later"), living.reasons("g.dead-letters")) == (["0"], [])


def test_records_that_go_on_naming_an_absent_topic_hold_up_nothing() -> None:
    living = Living(STEERED)
    loop = living.running()
    for _ in range(10):
        steer(living, b"later")
        living.cluster.wait(1)
        loop.turn()
        assert waiting_for(living) is None
    turns(loop)
    assert living.reasons("g.dead-letters") == ["no-output"] * 10


def test_a_topic_that_we_have_just_created_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine, is_described = FakeAdmin.visible, False

    def visible(admin: FakeAdmin, names: Iterable[str]) -> VisibleTopics:
        found, hidden = genuine(admin, names)
        shown = {name: found[name] for name in found if is_described or name != "later"}
        return VisibleTopics(shown, hidden)

    monkeypatch.setattr(FakeAdmin, "visible", visible)
    living = Living(STEERED, create_topics=True)
    loop = living.running()
    steer(living, b"later")
    turns(loop, 3)
    assert "later" in some(waiting_for(living))
    is_described = True
    living.cluster.wait(3)
    turns(loop)
    assert (living.values("later"), living.committed()) == (["0"], 1)


def test_a_change_that_misses_a_topic_makes_the_loop_look_it_up_again() -> None:
    living = Living(STEERED)
    loop = living.running()
    living.cluster.create_topic("later")

    def fill(*_: object) -> list[list[Output]]:
        raise TargetMissingError("later", "it is missing", lambda: True)

    with pytest.raises(TargetMissingError):
        loop.change(fill)
    steer(living, b"later")
    turns(loop)
    assert living.values("later") == ["0"]


def test_a_missing_output_topic_is_named_waited_for_and_written_when_it_is_there() -> None:
    living = without_output()
    living.send("a", "b")
    loop = living.loop()
    turns(loop, 5)
    assert "orders.unique" in (waiting_for(living) or "")
    assert living.committed() is None
    living.cluster.create_topic("orders.unique")
    living.cluster.wait(3)
    turns(loop)
    assert living.board.read().phase == "running"
    assert living.values("orders.unique") == ["a", "b"]


def test_a_missing_input_is_named_waited_for_and_read_when_it_is_there() -> None:
    living = Living()
    del living.cluster.logs["orders"]
    loop = living.loop()
    for _ in range(3):
        living.cluster.wait(6)
        loop.turn()
        assert waiting_for(living) == missing_inputs("orders")
    living.cluster.create_topic("orders")
    living.send("a")
    living.cluster.wait(6)
    turns(loop)
    assert (living.values("orders.unique"), waiting_for(living)) == (["a"], None)


class Sluggish(Chance):
    """Fetches nothing four times of five."""

    calls = 0

    def fetched(self, records_max: int) -> int:
        self.calls += 1
        return 0 if self.calls % 5 else records_max


def test_a_round_that_brings_nothing_does_not_end_a_wait() -> None:
    living = Living(chance=Sluggish())
    living.faults.at["commit_transaction"] = iter(refused, None)
    living.send("a")
    loop = living.loop()
    turns(loop, 5)
    for _ in range(10):
        loop.turn()
        assert living.board.read().phase == "waiting"
    living.faults.at.clear()
    turns(loop)
    assert living.board.read().phase == "running"


@pytest.mark.parametrize("chance", [Chance(), Sluggish()], ids=["each round", "now and then"])
def test_a_topic_that_stays_missing_is_waited_for_without_an_end(chance: Chance) -> None:
    living = without_output(chance)
    living.send("a")
    loop = living.loop()
    turns(loop, 400)
    for _ in range(20):
        living.cluster.wait(100)
        turns(loop, 2)
        assert living.board.read().phase == "waiting"
        assert "topic orders.unique: it does not exist" in some(waiting_for(living))


def test_clients_that_find_no_broker_for_long_are_given_up_with_their_life() -> None:
    living = Living()
    loop = living.running()
    living.faults.at["names"] = repeat(gone())
    begun_s = living.clock.monotonic_s()
    with pytest.raises(OutcomeUnknownError, match="_TRANSPORT"):
        turns(loop, 5_000)
    assert living.clock.monotonic_s() - begun_s < 60


def test_a_broker_that_answers_now_and_then_ends_no_life() -> None:
    living = Living()
    loop = living.running()
    living.faults.at["names"] = cycle([gone(), None])
    turns(loop, 1_000)
    assert living.clock.monotonic_s() > 60


@pytest.mark.parametrize("instance", ["0", "1"], ids=["owner", "idle"])
def test_a_consumer_that_finds_no_broker_is_given_up_with_its_life(instance: str) -> None:
    living = Living()
    loops = {"0": living.running(), "1": living.loop("1")}
    loop = loops[instance]
    turns(loop, 100)
    assert waiting_for(living) is None
    living.faults.at["metadata"] = repeat(gone())
    with pytest.raises(OutcomeUnknownError, match="the consumer finds no broker"):
        turns(loop, 5_000)


def test_a_missing_right_to_read_is_waited_for() -> None:
    chance = Telling("orders")
    living = Living(chance=chance)
    loop = living.running()
    chance.errors = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")]
    living.send("a")
    loop.turn()
    assert "TOPIC_AUTHORIZATION_FAILED" in (waiting_for(living) or "")
    turns(loop)
    assert waiting_for(living) is None
    assert living.values("orders.unique") == ["a"]


def test_an_error_that_the_client_recovers_from_by_itself_is_passed_over() -> None:
    chance = Telling("orders")
    living = Living(chance=chance)
    loop = living.running()
    chance.errors = [KafkaError(KafkaError._ALL_BROKERS_DOWN, "gone")]
    living.send("a")
    loop.turn()
    assert waiting_for(living) is None
    assert living.values("orders.unique") == ["a"]
    told = loop.reporter.metrics.exposition()
    assert b'client_errors_total{code="_ALL_BROKERS_DOWN"} 1.0' in told


@pytest.mark.parametrize(("policy", "read"), [("earliest", ["d", "e"]), ("latest", [])])
def test_an_offset_that_the_log_has_lost_is_left_to_the_policy(
    policy: str, read: list[str]
) -> None:
    living = Living(on_lost_offset=policy)
    living.send("a")
    loop = living.running()
    living.send("b", "c", "d", "e")
    log = some(living.cluster.log(*ORDERS))
    log.delete_before(3)
    turns(loop)
    assert living.values("orders.unique") == ["a", *read]
    assert living.faults.passed["store.wipe"] == 0


def test_an_offset_that_the_log_has_lost_ends_the_process_where_no_policy_says_otherwise() -> None:
    living = Living()
    living.send("a")
    loop = living.running()
    living.send("b", "c")
    log = some(living.cluster.log(*ORDERS))
    log.delete_before(2)
    with ending(ExitCode.CONTRADICTION, "on_lost_offset"):
        turns(loop)


def test_records_that_come_with_the_loss_of_their_offset_are_decided_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living(on_lost_offset="earliest")
    loop = living.running()
    living.send("a")
    consumer = loop.assignment.consumer
    genuine = consumer.consume
    lost = Message(
        topic="orders",
        partition=0,
        error=KafkaError(KafkaError._AUTO_OFFSET_RESET, "Broker: Offset out of range"),
    )
    monkeypatch.setattr(consumer, "consume", lambda *rest: [*genuine(*rest), lost])
    loop.turn()
    monkeypatch.undo()
    turns(loop)
    assert living.values("orders.unique") == ["a"]


@pytest.mark.parametrize(
    ("code", "is_doubted"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
        (KafkaError.REBALANCE_IN_PROGRESS, False),
    ],
)
def test_an_abort_that_neither_a_record_nor_the_group_explains_has_the_topics_described_again(
    code: int, *, is_doubted: bool
) -> None:
    loop = Living().running()
    fault = fault_of(KafkaError(code))
    unchanged = partial(loop.failures.unchanged, fault)
    for handle in (unchanged, partial(loop.failures.aborted, fault, loop.committer.plan)):
        handle()
        assert loop.active_settings.inputs.is_suspect is is_doubted
        turns(loop)


def test_a_damaged_store_is_wiped_and_restored_and_remembers_what_it_did() -> None:
    living = Living(replace(ROUTE, address="{header:_DUPL_ID}"), partitions=2)
    living.send("a")
    loop = living.running()
    store = some(loop.assignment.running[ORDERS].store)
    position = some(store.position())
    store.apply([Edit(key("a", 0), b"torn")], position)
    loop.cache.drop(ORDERS)
    living.send("a", "b")
    living.send("c", partition=1)
    turns(loop)
    assert living.faults.passed["store.wipe"] == 1
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == ["a"]
    assert living.values("orders.unique", 1) == ["c"]


def test_a_store_that_is_damaged_as_it_is_applied_takes_all_of_its_transaction_along() -> None:
    living = Living(partitions=3)
    loop = living.running()
    for partition in range(3):
        living.send(f"a{partition}", partition=partition)
    middle = PartitionId("orders", 1)
    living.faults.at["store.apply"] = iter([None, StoreCorruptError(middle, "a bit flipped")])
    turns(loop, 30)
    for partition in range(3):
        living.send(f"a{partition}", f"b{partition}", partition=partition)
    turns(loop, 30)
    for partition in range(3):
        came_out = living.values("orders.unique", partition)
        assert came_out == [f"a{partition}", f"b{partition}"]
        assert living.values("orders.dlq", partition) == [f"a{partition}"]
    assert living.faults.passed["store.wipe"] == 1


@pytest.mark.row(24)
def test_an_output_that_is_created_again_with_fewer_partitions_is_written_as_it_is_now() -> None:
    living = Living(partitions=2)
    loop = living.running()
    living.cluster.create_topic("orders.unique", 1)
    living.send("a", partition=1)
    turns(loop, 5)
    assert living.values("orders.unique") == ["a"]
