"""The registry: who gets a name, and that nobody of an earlier session is accepted after that."""

import json
from typing import Final

import pytest

from ringfence_client.headers import EPOCH, NUMBER, PUBLISHER
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_service.queries.errors import NameInUse, NotPossible, Unavailable
from ringfence_service.queries.publishers import (
    PublisherAnswer,
    PublisherQuery,
    PublishersQuery,
    SetSequence,
)
from tests.simulation.disk import Disk
from tests.support.helpers import answer, answered
from tests.support.living import (
    ORDERS,
    Living,
    gone,
    late,
    refused,
    registry_of,
    turn_until_running,
    turns,
)

SEQUENCE: Final = {"#": {"strategy": "sequence"}}
Header = tuple[str, bytes | None]


def send(living: Living, number: int, *headers: Header, publisher: str = "P") -> None:
    told = ((PUBLISHER, publisher.encode()), (NUMBER, b"%d" % number))
    living.write(b"%d" % number, *told, *headers)


def asked(query: PublisherQuery | SetSequence, loop: Loop) -> PublisherAnswer:
    return answered(PublisherAnswer, query, loop)


# Sessions.


def test_an_epoch_is_given_when_every_partition_decides_by_it() -> None:
    living = Living(addresses=SEQUENCE, partitions=3)
    loop = living.running()
    session = registry_of(living, loop).open("P", "a")
    assert session.epoch == 1
    send(living, 1)
    turns(loop, 2)
    assert living.reasons("orders.dlq") == ["name-in-use"]


def test_the_same_user_fences_itself_and_another_is_refused() -> None:
    living = Living(addresses=SEQUENCE)
    loop = living.running()
    registry = registry_of(living, loop)
    registry.open("P", "a")
    assert registry.open("P", "a").epoch == 2
    with pytest.raises(NameInUse, match="another user"):
        registry.open("P", "b")
    with pytest.raises(NameInUse):
        registry.end("P", "b")
    registry.end("P", "a")
    assert registry.open("P", "b").epoch == 3


def test_the_numbers_that_are_read_after_it_are_the_last_of_the_session_before() -> None:
    living = Living(addresses=SEQUENCE)
    loop = living.running()
    registry = registry_of(living, loop)
    registry.open("P", "a")
    send(living, 7, (EPOCH, b"1"))
    turns(loop, 2)
    send(living, 8, (EPOCH, b"1"))  # on its way when the next session is opened
    registry.open("P", "a")
    (place,) = asked(PublisherQuery("P"), loop).positions
    send(living, 9, (EPOCH, b"1"))
    turns(loop, 2)
    assert place.number == 7
    assert asked(PublisherQuery("P"), loop).positions == (place,)
    assert living.reasons("orders.dlq") == ["name-in-use"] * 2


def test_without_a_loop_that_follows_it_is_not_given() -> None:
    living = Living(addresses=SEQUENCE)
    living.running()
    with pytest.raises(Unavailable, match="orders-0"):
        registry_of(living, None).open("P", "a")


def test_a_broker_that_does_not_answer_is_not_waited_for_in_silence() -> None:
    living = Living(addresses=SEQUENCE)
    loop = living.running()
    living.faults.at["init_transactions"] = iter([gone()])
    with pytest.raises(Unavailable, match="try again"):
        registry_of(living, loop).open("P", "a")


# Numbers.


def test_a_publisher_is_known_by_address_and_partition() -> None:
    living = Living(addresses=SEQUENCE)
    send(living, 4)
    loop = living.running()
    found = asked(PublisherQuery("P"), loop)
    assert found.positions == (("orders", "orders", 0, 4, None),)
    assert found.complete
    assert asked(PublisherQuery("Q"), loop).positions == ()


def test_names_come_in_order_and_in_pages() -> None:
    living = Living(addresses=SEQUENCE)
    for name in ("c", "a", "b"):
        send(living, 1, publisher=name)
    loop = living.running()
    registry_of(living, loop).open("d", "")
    assert answer(PublishersQuery("", 2), loop)[0] == ("a", "b")
    assert answer(PublishersQuery("b", 2), loop)[0] == ("c", "d")


def test_a_dry_run_of_setting_a_number_reports_it_and_changes_nothing() -> None:
    living = Living(addresses=SEQUENCE)
    send(living, 9)
    loop = living.running()
    tried = asked(SetSequence("P", "orders", 4, dry_run=True), loop)
    assert tried.positions == (("orders", "orders", 0, 4, None),)
    assert asked(PublisherQuery("P"), loop).positions[0].number == 9


def test_a_duplicate_of_a_number_that_was_set_names_no_original() -> None:
    living = Living(addresses=SEQUENCE)
    loop = living.running()
    asked(SetSequence("P", "orders", 4), loop)
    send(living, 4)
    turns(loop, 2)
    (letter,) = living.cluster.records("orders.dlq")
    told = dict(letter.headers or [])
    assert b"set by an administrator" in (told["ringfence.cause"] or b"")
    assert "ringfence.original" not in told


def test_of_an_audit_numbers_may_be_missing_below_the_one_that_is_set() -> None:
    living = Living(addresses={"#": {"strategy": "audit", "audit_depth": 10}})
    loop = living.running()
    asked(SetSequence("P", "orders", 9, missing=(4, 7)), loop)
    for number in (3, 4, 5, 7, 4, 9):
        send(living, number)
    turns(loop, 2)
    assert living.values("orders.unique") == ["4", "7"]
    assert living.values("orders.dlq") == ["3", "5", "4", "9"]


@pytest.mark.parametrize(
    ("strategy", "change", "sentence"),
    [
        ("sequence", SetSequence("P", "orders", 9, missing=(3,)), "covers all lower ones"),
        ("ring", SetSequence("P", "orders", 1), "strategy ring"),
        ("ordered", SetSequence("P", "orders", 1), "stream"),
        ("sequence", SetSequence("P", "orders", 1, stream=1), "stream"),
        ("sequence", SetSequence("P", "orders", 1), "name topic and partition"),
        ("sequence", SetSequence("P", "orders", 1, None, "orders", 7), "name topic and partition"),
    ],
)
def test_what_cannot_be_set_says_why(strategy: str, change: SetSequence, sentence: str) -> None:
    living = Living(addresses={"#": {"strategy": strategy}}, partitions=2)
    loop = living.running()
    with pytest.raises(NotPossible, match=sentence):
        answer(change, loop)


def test_a_new_publisher_is_set_where_topic_and_partition_say() -> None:
    living = Living(addresses=SEQUENCE, partitions=2)
    loop = living.running()
    answered = asked(SetSequence("P", "orders", 3, None, "orders", 1), loop)
    assert answered.positions == (("orders", "orders", 1, 3, None),)


# While something else goes on.


def test_a_session_is_not_given_while_a_partition_is_restored() -> None:
    living = Living(addresses=SEQUENCE, partitions=2)
    for number in range(1, 50):
        send(living, number)
    living.running().close()
    living.stores = Disk(living.cluster.step)
    loop = living.loop()
    turn_until_running(loop)
    loop.assignment.retake(ORDERS, wipe=True)
    send(living, 50)
    session = registry_of(living, loop).open("P", "a")
    assert loop.assignment.settled
    (place,) = asked(PublisherQuery("P"), loop).positions
    send(living, place.number + 1)
    send(living, place.number + 1, (EPOCH, b"%d" % session.epoch))
    turns(loop)
    assert living.values("orders.unique")[-1] == str(place.number + 1)
    assert living.values("orders.dlq")[-1:] == [str(place.number + 1)]
    assert living.reasons("orders.dlq")[-1:] == ["name-in-use"]
    assert asked(PublisherQuery("P"), loop).positions[0].number == place.number + 1


@pytest.mark.parametrize(
    "step", ["send_offsets_to_transaction", "commit_transaction", "commit_transaction.done"]
)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_session_that_is_opened_while_a_transaction_is_aborted_is_given_when_one_commits(
    step: str, partitions: int
) -> None:
    living = Living(addresses=SEQUENCE, partitions=partitions)
    send(living, 1)
    loop = living.running()
    send(living, 2)
    # The registry's own transaction commits first.
    fault = late if step.endswith("done") else refused
    living.faults.at[step] = iter([None] * (step != "send_offsets_to_transaction") + [fault()] * 2)
    epoch = registry_of(living, loop).open("P", "a").epoch
    assert next(living.faults.at[step], None) is None
    (place,) = asked(PublisherQuery("P"), loop).positions
    send(living, 3)
    send(living, 3, (EPOCH, b"%d" % epoch))
    turns(loop)
    accepted = ["1", "2", "3"] if place.number == 2 else ["1", "3"]
    assert living.values("orders.unique") == accepted
    assert set(living.reasons("orders.dlq")) == {"name-in-use"}


def test_a_change_that_was_aborted_is_neither_seen_nor_acknowledged() -> None:
    living = Living(addresses=SEQUENCE)
    send(living, 5)
    loop = living.running()
    living.faults.at["commit_transaction"] = iter([refused()])
    with pytest.raises(TransactionAbortedError):
        answer(SetSequence("P", "orders", 9), loop)
    assert asked(PublisherQuery("P"), loop).positions[0].number == 5
    send(living, 6)
    turns(loop)
    assert living.values("orders.unique") == ["5", "6"]
    acks = living.cluster.records("g.acks")
    assert [json.loads(record.value or b"")["sequence"] for record in acks] == [5, 6]


def test_a_change_that_the_broker_refuses_is_put_down_to_no_record() -> None:
    living = Living(addresses=SEQUENCE)
    living.cluster.create_topic("g.acks", limit_bytes=10, cleanup_policy="compact")
    loop = living.running()
    with pytest.raises(TransactionAbortedError) as aborted:
        answer(SetSequence("P", "orders", 9), loop)
    assert aborted.value.fault.of_record
    loop.failures.aborted(aborted.value.fault, loop.committer.plan)
    assert asked(PublisherQuery("P"), loop).positions == ()
    living.cluster.create_topic("g.acks", cleanup_policy="compact")
    send(living, 1)
    turns(loop)
    assert living.values("orders.unique") == ["1"]


def test_a_session_is_held_to_by_a_loop_that_lost_its_process_meanwhile() -> None:
    living = Living(addresses=SEQUENCE)
    send(living, 1)
    loop = living.running()
    with pytest.raises(Unavailable):
        registry_of(living, None).open("P", "a")
    send(living, 2)
    loop.close()
    again = living.running()
    assert living.reasons("orders.dlq") == ["name-in-use"]
    assert registry_of(living, again).open("P", "a").epoch == 2
