"""Scope `id`: the ids of one address are spread over all deciding partitions."""

from dataclasses import replace

import pytest
from confluent_kafka import murmur2

from ringfence_client.headers import (
    DUPLICATE_ID,
    GROUP_POSITION,
    GROUP_SIZE,
    NUMBER,
    PUBLISHER,
    DeadLetter,
)
from ringfence_client.headers import (
    GROUP as TX_ID,
)
from ringfence_service.dedup.record import KnownId
from ringfence_service.queries.ids import IdAnswer, IdQuery, ImportIds
from ringfence_service.queries.publishers import PublisherAnswer, PublisherQuery, SetSequence
from ringfence_state.model import PartitionId
from tests.loop.test_two_hops import BY_ADDRESS, ROUTE, Hops
from tests.support.helpers import answer

BY_ID = replace(ROUTE, scope="id", address="{topic}")
IDS = [b"id-%d" % number for number in range(40)]


def decided_on(hops: Hops) -> list[int]:
    """How many records each deciding partition has got."""
    return [len(hops.living.cluster.records(BY_ADDRESS, number)) for number in range(2)]


def test_the_ids_of_an_address_are_spread_and_each_copy_is_caught() -> None:
    hops = Hops(BY_ID)
    for round_ in range(2):
        for number, identifier in enumerate(IDS):
            hops.send((number + round_) % 3, b"k", identifier)
        hops.turns()
    assert sorted(record.value or b"" for record in hops.out("orders.unique")) == sorted(IDS)
    letters = hops.out("orders.dlq")
    assert sorted(record.value or b"" for record in letters) == sorted(IDS)
    assert all(dict(each.headers or [])[DeadLetter.ORIGINAL] for each in letters)
    first, second = decided_on(hops)
    assert (first + second, min(first, second) > 20) == (80, True)


def test_a_key_is_the_address_and_the_id_so_that_other_programs_can_compute_it() -> None:
    hops = Hops(BY_ID)
    for identifier in IDS:
        hops.send(0, b"k", identifier)
    hops.turns()
    for number in range(2):
        for record in hops.living.cluster.records(BY_ADDRESS, number):
            assert murmur2(b"orders\0i%b" % (record.value or b""), 2) == number


def test_records_without_an_id_keep_their_order() -> None:
    hops = Hops(BY_ID)
    values = [b"%d" % number for number in range(30)]
    for value in values:
        hops.living.write(value, key=b"k", partition=1)
    hops.turns()
    assert 30 in decided_on(hops)
    assert [record.value for record in hops.out("orders.unique")] == values


def test_a_group_is_decided_on_one_partition() -> None:
    hops = Hops(BY_ID)
    for attempt in range(2):
        for position in (1, 2, 3):
            names = (TX_ID, b"t"), (GROUP_SIZE, b"3"), (GROUP_POSITION, b"%d" % position)
            own = ((DUPLICATE_ID, b"of t"),) if position == 2 else ()
            hops.living.write(b"%d" % position, *names, *own, key=b"k", partition=attempt)
    hops.turns()
    assert sorted(r.value or b"" for r in hops.out("orders.unique")) == [b"1", b"2", b"3"]
    assert len(hops.out("orders.dlq")) == 3


def test_the_numbers_of_a_publisher_are_decided_on_one_partition() -> None:
    hops = Hops(BY_ID, addresses={"#": {"strategy": "audit"}})
    for number in (*range(1, 20), *range(1, 20)):
        names = ((PUBLISHER, b"P"), (NUMBER, b"%d" % number))
        hops.living.write(b"%d" % number, *names, key=b"k", partition=0)
    hops.turns()
    assert 38 in decided_on(hops)
    assert (len(hops.out("orders.unique")), len(hops.out("orders.dlq"))) == (19, 19)


def test_the_size_of_a_ring_is_divided() -> None:
    hops = Hops(BY_ID, addresses={"#": {"id_cache_size": 9}})
    partitions: dict[int, list[bytes]] = {0: [], 1: []}
    for identifier in IDS:
        partitions[murmur2(b"orders\0i" + identifier, 2)].append(identifier)
        hops.send(0, b"k", identifier)
    hops.turns()
    held = {each for ids in partitions.values() for each in ids[-5:]}
    for identifier in IDS:
        found = answer(IdQuery("orders", identifier), hops.deciding)
        assert isinstance(found, IdAnswer)
        assert (found.known) == (identifier in held)


def test_imported_ids_are_known_where_their_copies_are_decided() -> None:
    hops = Hops(BY_ID)
    known = tuple(KnownId(identifier, 5, None) for identifier in IDS)
    answer(ImportIds("orders", "orders", 0, known), hops.deciding)
    for number, identifier in enumerate(IDS):
        hops.send(number % 3, b"k", identifier)
    hops.turns()
    assert (len(hops.out("orders.unique")), len(hops.out("orders.dlq"))) == (0, 40)


def test_a_publisher_whose_number_is_set_goes_on_where_its_records_are_decided() -> None:
    hops = Hops(BY_ID, addresses={"#": {"strategy": "sequence"}})
    for name in ("P", "Q", "R", "S"):
        answer(SetSequence(name, "orders", 4, None, "orders", 1), hops.deciding)
        for number in (4, 5):
            names = ((PUBLISHER, name.encode()), (NUMBER, b"%d" % number))
            hops.living.write(b"%d" % number, *names, key=b"k", partition=1)
    hops.turns()
    assert [record.value for record in hops.out("orders.unique")] == [b"5"] * 4
    found = answer(PublisherQuery("Q"), hops.deciding)
    assert isinstance(found, PublisherAnswer)
    assert [each.number for each in found.positions] == [5]


@pytest.mark.parametrize("headers", [[(TX_ID, b"t")], [(DUPLICATE_ID, b"x" * 70_000)]])
def test_a_record_with_an_invalid_claim_is_a_dead_letter(headers: list[tuple[str, bytes]]) -> None:
    hops = Hops(BY_ID)
    hops.living.write(b"1", *headers, key=b"k", partition=2)
    hops.turns()
    (letter,) = hops.out("orders.dlq")
    assert dict(letter.headers or [])[DeadLetter.REASON] == b"invalid-claim"
    assert hops.living.committed(PartitionId("orders", 2)) == 1
