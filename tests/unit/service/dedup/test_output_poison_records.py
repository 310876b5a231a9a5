"""Refusals: what the broker refuses for itself is found, and nothing else suffers for it."""

from dataclasses import replace

import pytest

from ringfence_client.headers import Reason
from ringfence_service.dedup.plan import Plan
from ringfence_service.dedup.poison_records import PoisonRecords
from ringfence_service.dedup.record import RejectedError
from ringfence_service.kafka.errors import KafkaFailure, Recovery
from ringfence_state.model import PartitionId
from tests.support.deciding import SOURCE, World
from tests.support.helpers import rows
from tests.support.living import LOG, Living, in_group, turn_until_running, turns


def small_output(bytes_max: int = 500, **settings: object) -> Living:
    """The output's settings promise more than its broker takes."""
    living = Living(**settings)  # type: ignore[arg-type]  # by name
    living.cluster.create_topic("orders.unique", limit_bytes=bytes_max)
    return living


def test_a_batch_that_is_refused_as_too_large_is_halved_until_the_one_is_dead_lettered() -> None:
    living = small_output()
    living.send("a", "b", "c", "d", "e")
    living.send("large", size=600)
    living.send("f", "g")
    turns(living.running(), 40)
    assert living.values("orders.unique") == ["a", "b", "c", "d", "e", "f", "g"]
    assert living.values("orders.dlq") == ["large"]
    assert living.reasons("orders.dlq") == ["too-large"]
    assert living.committed() == 8


def refusing(*refused: str, names_records: bool = True, **settings: object) -> Living:
    """The broker refuses records with these values, for a reason that no setting shows."""
    living = Living(**settings)  # type: ignore[arg-type]  # by name
    values = {name.encode() for name in refused}
    living.cluster.logs["orders.unique"] = replace(
        living.cluster.logs["orders.unique"],
        refuses=lambda record: record.value in values,
    )
    living.cluster.names_records = names_records
    return living


def aborts(living: Living) -> int:
    return living.faults.passed["abort_transaction"]


NUMBERS = [f"{number:03}" for number in range(300)]


@rows(
    "every",
    {"one in 20": 20, "one in 100": 100, "one": 300},
)
def test_all_records_of_a_batch_that_the_broker_refuses_cost_two_transactions(every: int) -> None:
    bad = NUMBERS[::every]
    living = refusing(*bad)
    living.send(*NUMBERS)
    turns(living.running(), 10)
    assert aborts(living) == 2
    assert living.values("orders.unique") == [name for name in NUMBERS if name not in bad]
    assert living.values("orders.dlq") == bad
    assert living.committed() == 300


def test_a_refused_record_costs_one_transaction_where_others_were_refused_just_before() -> None:
    living = refusing("003", "103", "203", batch_records_max=100)
    living.send(*NUMBERS)
    turns(living.running(), 20)
    assert living.values("orders.dlq") == ["003", "103", "203"]
    assert aborts(living) == 2 + 1 + 1


def test_records_that_no_one_refuses_end_the_search() -> None:
    living = refusing("003", "250", batch_records_max=100)
    living.send(*NUMBERS)
    turns(living.running(), 20)
    assert living.values("orders.dlq") == ["003", "250"]
    assert aborts(living) == 2 + 2


def test_the_refused_of_each_partition_are_found() -> None:
    living = refusing("a", "b", "c", partitions=3)
    for partition, names in enumerate(["ax", "by", "zc"]):
        living.send(*names, partition=partition)
    turns(living.running(), 20)
    assert [living.values("orders.dlq", each) for each in range(3)] == [["a"], ["b"], ["c"]]
    assert [living.values("orders.unique", each) for each in range(3)] == [["x"], ["y"], ["z"]]
    assert aborts(living) == 2


def test_only_partitions_with_refused_records_are_read_one_record_at_a_time() -> None:
    living = refusing("a", partitions=2)
    living.send("a", "b")
    living.send("c", "d", partition=1)
    loop = living.loop()
    poison, traced = loop.committer._poison_records, set[frozenset[PartitionId]]()
    turn_until_running(loop)
    for _ in range(10):
        loop.turn()
        traced.add(poison.traced)
    assert frozenset({PartitionId("orders", 0)}) in traced
    living.send("e")
    turns(loop)
    assert not poison.traced


def test_a_batch_of_nothing_but_refused_records_costs_one_transaction_more() -> None:
    living = refusing(*NUMBERS)
    living.send(*NUMBERS)
    turns(living.running(), 10)
    assert living.values("orders.dlq") == NUMBERS
    assert aborts(living) == 2 + 1  # which finds out that the broker means each of them


def test_the_batch_is_halved_until_one_record_is_left_where_the_broker_names_none() -> None:
    living = refusing("large", names_records=False, batch_records_max=8)
    sizes = [0]

    def produced() -> None:
        sizes[-1] += 1

    living.faults.at["begin_transaction"] = iter(lambda: sizes.append(0), 0)
    living.faults.at["produce"] = iter(produced, 0)
    living.send(*"abcdefg", "large")
    turns(living.running(), 40)
    # One is for the changelog. The third transaction tries whether the broker names records.
    assert [size - 1 for size in sizes[1:]] == [8, 8, 1, 4, 4, 2, 2, 1, 1, 0]
    assert living.values("orders.unique") == list("abcdefg")
    assert living.values("orders.dlq") == ["large"]


def test_a_record_that_is_refused_by_itself_is_dead_lettered_next() -> None:
    living = small_output()
    living.send("large", size=600)
    turns(living.running(), 3)
    assert living.values("orders.dlq") == ["large"]


def test_a_record_that_its_dead_letter_topic_refuses_too_ends_in_the_fallback() -> None:
    living = small_output()
    living.cluster.create_topic("orders.dlq", limit_bytes=500)
    living.send("a")
    living.send("large", size=600)
    living.send("b")
    turns(living.running(), 40)
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == []
    assert living.values("g.dead-letters") == ["large"]
    assert living.reasons("g.dead-letters") == ["too-large"]


def test_after_a_refusal_batches_grow_again() -> None:
    living = small_output(batch_records_max=8)
    living.send("large", size=600)
    living.send(*"abcdefg")
    loop = living.running()
    turns(loop, 40)
    for batch in range(8):
        living.send(*(f"{batch}{letter}" for letter in "abcdefgh"))
        turns(loop, 2)
    before = living.faults.passed["begin_transaction"]
    living.send(*"ijklmnop")
    loop.turn()
    assert living.faults.passed["begin_transaction"] == before + 1


# Dead letters of others.


def send_member(living: Living, value: str, group: str, position: int, size: int = 3) -> None:
    living.write(value.encode(), *in_group(group, position, size))


def small_letters(**address: object) -> Living:
    """The dead-letter topic takes less than its settings promise."""
    living = Living(addresses={"#": address})
    living.cluster.create_topic("orders.dlq", limit_bytes=800)
    return living


LARGE = "l" * 700
"""It fits, and its dead letter does not."""


def test_a_dead_letter_of_a_group_that_made_room_goes_to_the_fallback_alone() -> None:
    living = small_letters(groups_open_max=1)
    send_member(living, LARGE, "old", 1)
    loop = living.running()
    send_member(living, "a", "new", 1, 2)
    turns(loop)
    assert living.values("g.dead-letters") == [LARGE]
    assert living.reasons("g.dead-letters") == ["group-incomplete"]
    send_member(living, "b", "new", 2, 2)
    turns(loop)
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values("orders.dlq") == []


def test_a_dead_letter_of_a_copy_that_was_replaced_goes_to_the_fallback_alone() -> None:
    living = small_letters()
    send_member(living, LARGE, "t", 1, 2)
    loop = living.running()
    send_member(living, "a", "t", 1, 2)
    turns(loop)
    assert living.values("g.dead-letters") == [LARGE]
    send_member(living, "b", "t", 2, 2)
    turns(loop)
    assert living.values("orders.unique") == ["a", "b"]


def test_a_group_that_grew_too_large_is_dead_lettered_whole_where_it_fits() -> None:
    living = small_letters(group_bytes_max=1024)
    send_member(living, LARGE, "t", 1)
    loop = living.running()
    send_member(living, "m" * 400, "t", 2)
    turns(loop)
    assert living.reasons("g.dead-letters") == ["group-too-large"] * 2
    assert living.values("g.dead-letters") == [LARGE, "m" * 400]


def test_a_record_that_is_refused_while_it_makes_room_is_blamed_in_the_end() -> None:
    living = Living(addresses={"#": {"groups_open_max": 1}})
    living.cluster.create_topic(
        LOG.topic, cleanup_policy="compact", record_bytes_max=2 << 20, limit_bytes=800
    )
    send_member(living, "old", "old", 1)
    loop = living.running()
    send_member(living, "l" * 900, "new", 1, 2)
    turns(loop)
    assert living.reasons("orders.dlq") == ["too-large"]
    send_member(living, "two", "old", 2)
    send_member(living, "three", "old", 3)
    turns(loop)
    assert living.values("orders.unique") == ["old", "two", "three"]


# A missing output topic.


def test_a_refused_record_gets_through_while_another_partition_is_busy() -> None:
    living = Living(partitions=2)
    living.cluster.logs["orders.unique"] = replace(
        living.cluster.logs["orders.unique"], limit_bytes=500
    )
    loop = living.loop()
    turn_until_running(loop)
    living.send("large", partition=1, size=600)
    for number in range(50):
        living.send(f"{number}-a", f"{number}-b")
        loop.turn()
    assert living.values("orders.dlq", partition=1) == ["large"]
    assert len(living.values("orders.unique")) == 100


# One decision at a time.

OFFSET = 7
BLAMED = (SOURCE, OFFSET)
REFUSED = KafkaFailure(Recovery.ABORT, of_record=True, fenced=False, cause="no")
TOO_LARGE = REFUSED._replace(too_large=True)
FAILED = REFUSED._replace(raised=LookupError("nobody foresaw this"))


def read(records: int = 1, dead_letters: int = 0) -> Plan:
    """A transaction that read so many records, of which the last has the offset 7."""
    plan = Plan(next_offsets={SOURCE: OFFSET + 1})
    plan.tally.records_read = records
    plan.tally.dead_letters["orders", Reason.EXPIRED] = dead_letters
    return plan


ACCEPTED, WITH_DEAD_LETTER = read(), read(dead_letters=1)


@rows(
    ("attempts", "reason", "to_fallback"),
    {
        "refused": ([(ACCEPTED, REFUSED)], Reason.REFUSED, False),
        "too large": ([(ACCEPTED, TOO_LARGE)], Reason.TOO_LARGE, False),
        "and its dead letter too": (
            [(ACCEPTED, TOO_LARGE), (WITH_DEAD_LETTER, TOO_LARGE)],
            Reason.TOO_LARGE,
            True,
        ),
        "a dead letter of others": ([(WITH_DEAD_LETTER, REFUSED)], None, True),
        "the record, after a dead letter of others": (
            [(WITH_DEAD_LETTER, REFUSED)] * 2,
            Reason.REFUSED,
            False,
        ),
        "failed": ([(ACCEPTED, FAILED)], Reason.FAILED_CHECK, False),
        "failed after a dead letter of others": (
            [(WITH_DEAD_LETTER, FAILED)],
            Reason.FAILED_CHECK,
            False,
        ),
        "failed again": ([(ACCEPTED, FAILED)] * 2, Reason.FAILED_CHECK, True),
        "failed after it was refused": (
            [(ACCEPTED, REFUSED), (WITH_DEAD_LETTER, FAILED)],
            Reason.FAILED_CHECK,
            False,
        ),
    },
)
def test_each_attempt_leads_to_another_one_that_differs(
    attempts: list[tuple[Plan, KafkaFailure]], reason: Reason | None, *, to_fallback: bool
) -> None:
    poison = PoisonRecords(8)
    assert all(poison.narrow(plan, fault) is True for plan, fault in attempts)
    assert {at: error.why.reason for at, error in poison.by_position.items()} == (
        {} if reason is None else {BLAMED: reason}
    )
    assert poison.undeliverable == ({BLAMED} if to_fallback else set())


def test_after_the_fallback_nothing_is_left_to_try() -> None:
    poison = PoisonRecords(8)
    attempts = [(ACCEPTED, REFUSED), *[(WITH_DEAD_LETTER, REFUSED)] * 2]
    assert [poison.narrow(*attempt) for attempt in attempts] == [True, True, False]


def test_what_fails_without_any_check_is_raised() -> None:
    poison = PoisonRecords(8)
    assert poison.narrow(ACCEPTED, FAILED)
    assert poison.narrow(WITH_DEAD_LETTER, FAILED)
    with pytest.raises(LookupError, match="nobody foresaw"):
        poison.narrow(WITH_DEAD_LETTER, FAILED)


def test_a_transaction_that_read_nothing_is_not_tried_in_another_way() -> None:
    assert PoisonRecords(8).narrow(Plan(), REFUSED) is False


def test_records_of_a_group_that_timed_out_go_to_the_fallback_once() -> None:
    poison, other = PoisonRecords(8), (SOURCE, 9)
    tried = [{BLAMED}, {BLAMED}, {BLAMED, other}, {other}]
    assert [poison.narrow(Plan(given_up=each), REFUSED) for each in tried] == [
        True,
        False,
        True,
        False,
    ]
    assert poison.undeliverable == {BLAMED, other}


@pytest.mark.parametrize(("records", "halved"), [(9, 4), (3, 1), (2, 1), (1, 1), (0, 8)])
def test_a_transaction_that_took_too_long_is_read_again_in_halves(
    records: int, halved: int
) -> None:
    poison = PoisonRecords(8)
    poison.halve(read(records))
    assert poison.records_max == halved
    assert not poison.by_position


@rows(
    ("next_offset", "is_kept"),
    {
        "still ahead": (OFFSET, True),
        "committed": (OFFSET + 1, False),
        "owned by another": (None, False),
    },
)
def test_a_refusal_is_forgotten_with_its_record(next_offset: int | None, *, is_kept: bool) -> None:
    poison, partition = PoisonRecords(8), World().partition
    for plan in (read(4), read(4), ACCEPTED, WITH_DEAD_LETTER):
        poison.begin()
        poison.narrow(plan, REFUSED)
    partition.next_offset = next_offset or 0
    poison.passed({} if next_offset is None else {SOURCE: partition}, 8)
    assert list(poison.by_position) == ([BLAMED] if is_kept else [])
    assert poison.undeliverable == ({BLAMED} if is_kept else set())
    assert poison.traced == ({SOURCE})
    assert poison.records_max == (2 if is_kept else 8)


def test_batches_grow_no_larger_than_they_may() -> None:
    poison, partition = PoisonRecords(3), World().partition
    poison.passed({PartitionId("orders", 0): partition}, 5)
    assert poison.records_max == 5


def test_checks_are_not_run_again_only_for_a_record_that_is_read_alone_and_failed_them() -> None:
    failed = RejectedError(Reason.FAILED_CHECK, "its checks failed")
    refused = {(SOURCE, 5): failed, (SOURCE, 6): RejectedError(Reason.TOO_LARGE, "too large")}
    resolver = replace(World().rules().output_resolver, refused=refused)
    assert resolver.failure(SOURCE, [5]) is failed
    assert [resolver.failure(SOURCE, offsets) for offsets in ([6], [7], [5, 6], [4, 5])] == [
        None
    ] * 4


def test_no_reply_is_sent_for_a_record_whose_reply_or_dead_letter_was_refused() -> None:
    resolver = replace(
        World().rules().output_resolver, unanswerable={(SOURCE, 1)}, undeliverable={(SOURCE, 2)}
    )
    found = [each for each in range(4) if resolver.is_unanswerable((SOURCE, each))]
    assert found == [1, 2]
