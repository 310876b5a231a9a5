"""A topic that is deleted and created again while the service works on it is never passed over."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError

from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.processor.transaction import TransactionAbortedError
from tests.fakes.errors import abortable
from tests.fakes.partition import Record
from tests.loop.test_two_hops import BY_ADDRESS, Hops
from tests.support.helpers import ending, some
from tests.support.living import LOG, ORDERS, ROUTE, Living, Telling, turns


@pytest.mark.row(31)
@pytest.mark.parametrize("after_s", [0, 40], ids=["at once", "after the next refresh"])
def test_an_input_that_is_created_again_while_it_is_read_ends_the_service(after_s: float) -> None:
    living = Living()
    living.send("a", "b", "c")
    loop = living.running()
    living.cluster.create_topic("orders", 1)
    living.send("n0", "n1", "n2", "n3", "n4")
    living.clock.sleep(after_s)
    with ending(ExitCode.CONTRADICTION, "The input orders was deleted"):
        turns(loop, 5)
    assert (living.committed(), living.values("orders.unique")) == (3, ["a", "b", "c"])


@pytest.mark.row(31)
def test_an_input_that_is_created_again_amid_a_transaction_is_not_committed() -> None:
    living = Living(batch_records_max=2_000)
    living.send(*(f"old{number}" for number in range(600)))
    loop = living.running()
    assert living.committed() == 600
    living.send(*(f"more{number}" for number in range(512)))

    def recreate() -> Iterator[None]:
        living.cluster.create_topic("orders", 1)
        living.send(*(f"new{number}" for number in range(1_400)))
        yield

    living.faults.at["produce"] = recreate()
    with pytest.raises(ExitError, match="The input orders was deleted"):
        turns(loop, 5)
    assert living.committed() == 600
    assert len(living.values("orders.unique")) == 600


@pytest.mark.row(31)
def test_an_input_that_was_created_again_before_anything_was_committed_is_read_from_its_start() -> (
    None
):
    living = Living()
    loop = living.running()
    living.cluster.create_topic("orders", 1)
    living.send("a", "b")
    turns(loop, 10)
    assert (living.committed(), living.values("orders.unique")) == (2, ["a", "b"])


@pytest.mark.row(31)
def test_what_came_with_a_lost_connection_is_read_again_where_a_topic_is_another_by_then() -> None:
    chance = Telling("orders")
    route = replace(ROUTE, inputs=("orders", "more"), output="orders.unique")
    living = Living(route, chance=chance)
    living.cluster.create_topic("more")
    loop = living.loop()

    def recreate() -> Iterator[None]:
        while not loop.assignment.running:
            yield
        living.cluster.create_topic("orders", 1)
        living.send("a", "b")
        living.cluster.write("more", 0, Record(None, b"m", [], 1))
        chance.errors = [KafkaError(KafkaError._TRANSPORT, "the connection is gone")]
        yield

    living.faults.at["consume"] = recreate()
    turns(loop)
    living.clock.sleep(40)
    turns(loop)
    assert sorted(living.values("orders.unique")) == ["a", "b", "m"]


@pytest.mark.row(31)
@pytest.mark.parametrize("is_refused", [False, True])
def test_what_was_read_for_a_change_is_not_decided_for_the_topic_that_came_after(
    *, is_refused: bool
) -> None:
    living = Living(batch_records_max=1)
    loop = living.running()
    living.send("a")
    if is_refused:
        living.faults.at["commit_transaction"] = iter([abortable(KafkaError.INVALID_RECORD, "no")])
        with pytest.raises(TransactionAbortedError) as refused:
            loop.change(lambda *_: ())
        loop.failures.unchanged(refused.value.fault)
    else:
        loop.change(lambda *_: ())
        living.clock.sleep(40)
    living.cluster.create_topic("orders", 1)
    living.send("b")
    turns(loop)
    assert living.values("orders.unique") == ["b"]


@pytest.mark.row(31)
def test_a_changelog_that_is_created_again_while_it_is_written_ends_the_service() -> None:
    living = Living()
    living.send("a", "b", "c")
    loop = living.running()
    living.cluster.create_topic(LOG.topic, 1, cleanup_policy="compact")
    living.send("d")
    with ending(ExitCode.CONTRADICTION, f"The changelog {LOG.topic} was deleted"):
        turns(loop, 5)
    assert (living.committed(), living.values("orders.unique")) == (3, ["a", "b", "c"])


@pytest.mark.row(31)
def test_a_changelog_that_is_gone_is_not_created_in_silence_while_the_service_runs() -> None:
    living = Living()
    living.send("a", "b", "c")
    loop = living.running()
    del living.cluster.logs[LOG.topic]
    living.clock.sleep(40)
    with pytest.raises(ExitError, match=f"The changelog {LOG.topic} was deleted"):
        turns(loop, 5)


@pytest.mark.row(31)
def test_by_address_that_is_created_again_while_it_is_read_ends_the_service() -> None:
    hops = Hops(by_address_partitions=1)
    hops.send(0, b"k", b"1")
    hops.turns()
    hops.living.cluster.create_topic(BY_ADDRESS, 1)
    for number in range(5):
        hops.send(0, b"k", b"%d" % number)
    with ending(ExitCode.CONTRADICTION, f"The input {BY_ADDRESS} was deleted"):
        hops.turns(10)
    assert [record.value for record in hops.out("orders.unique")] == [b"1"]


@pytest.mark.row(19)
@pytest.mark.parametrize("lost", [2, 4])
def test_a_changelog_that_loses_its_end_while_it_is_written_ends_the_service(lost: int) -> None:
    """What aborted transactions write would fill the gap, and then nobody could find it."""
    living = Living()
    living.send("a", "b")
    loop = living.running()
    living.send("c")
    loop.turn()
    log = some(living.cluster.log(*LOG))
    log.truncate(log.end - lost)
    living.send("d")
    with ending(ExitCode.CONTRADICTION, "it was truncated"):
        turns(loop, 5)
    assert (living.committed(), living.values("orders.unique")) == (3, ["a", "b", "c"])


def test_a_topic_that_is_not_described_for_a_moment_is_not_taken_over_again() -> None:
    living = Living()
    loop = living.running()
    (partition,) = loop.assignment.running.values()
    input_topics = loop.active_settings.inputs.input_topics
    silent = {
        name: each._replace(topic_id="", changelog_id="") for name, each in input_topics.items()
    }
    loop.assignment.subscribe(silent)
    assert loop.assignment.running == {ORDERS: partition}
