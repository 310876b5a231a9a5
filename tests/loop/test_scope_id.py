"""Scope `id`: the ids of one address are spread over all deciding partitions."""

from collections import Counter
from dataclasses import replace
from random import Random

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
from ringfence_service.queries.addresses import AddressAnswer, AddressQuery
from ringfence_service.queries.ids import IdAnswer, IdQuery, ImportIds
from ringfence_service.queries.publishers import PublisherAnswer, PublisherQuery, SetSequence
from ringfence_service.queries.settings import EvictionAnswer, EvictionQuery
from ringfence_service.schemas.documents import UNKNOWN_S, use
from ringfence_state.model import PartitionId
from ringfence_state.segment import remembered
from tests.fakes.schema_registry import FakeSchemas
from tests.loop.test_schemas import KNOWN, living_with, order
from tests.loop.test_two_hops import BY_ADDRESS, ROUTE, Hops
from tests.oracle.model import DequeRing
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


SIZE = 600
WINDOW_MS = 20_000
COUNTS = [20_000, pytest.param(1_000_000, marks=pytest.mark.long)]


class OneWindow:
    """A single window over the whole address: when each id was seen last."""

    def __init__(self) -> None:
        self.seen_ms: dict[bytes, int] = {}

    def is_new(self, identifier: bytes, now_ms: int) -> bool:
        seen_ms = self.seen_ms.get(identifier)
        self.seen_ms[identifier] = now_ms
        return seen_ms is None or now_ms - seen_ms > WINDOW_MS


class ManyRings:
    """A ring on each deciding partition."""

    def __init__(self) -> None:
        self.rings = [DequeRing(SIZE // 2) for _ in range(2)]

    def is_new(self, identifier: bytes, now_ms: int) -> bool:
        del now_ms
        ring = self.rings[murmur2(b"orders\0i" + identifier, 2)]
        is_known = ring.judge(identifier)
        if not is_known:
            ring.remember(identifier)
        return not is_known


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("strategy", ["window", "ring"])
def test_random_records_are_decided_as_by_one_window_or_by_a_ring_on_each_partition(
    strategy: str, count: int
) -> None:
    settings = {"strategy": strategy, "window_ms": WINDOW_MS, "id_cache_size": SIZE}
    hops = Hops(BY_ID, addresses={"#": {**settings, "window_size": 10**6, "on_duplicate": "drop"}})
    hops.living.faults.steps_max, every = 10**9, count // 20
    model = OneWindow() if strategy == "window" else ManyRings()
    chance, newest, read, expected = Random(strategy), 0, 0, list[int]()
    for number in range(count):
        if chance.random() < 0.6:
            newest += 1
        back = min(newest, chance.choice((5, 500, 900, 3_000)))
        identifier = b"%d" % (newest - chance.randrange(back + 1))
        hops.living.clock.sleep(chance.random() / 50)
        value = b"%d" % number
        hops.living.write(value, (DUPLICATE_ID, identifier))  # one partition: in this order
        if model.is_new(identifier, hops.living.cluster.now_ms):
            expected.append(number)
        if number % 50 == 49:
            hops.turns(1)
        if number % every == every - 1:
            hops.turns()
            records = hops.living.cluster.records("orders.unique", 0)
            found = [int(record.value or b"") for record in records[read:]]
            read = len(records)
            assert sorted(found) == expected
            assert len(expected) < every
            expected = []


def test_a_long_id_that_was_exported_and_imported_is_known_where_its_copies_are_decided() -> None:
    hops, long = Hops(BY_ID), [each.rjust(90, b"x") for each in IDS]
    known = tuple(KnownId(remembered(each), 5, None, hashed=True) for each in long)
    answer(ImportIds("orders", "orders", 0, known), hops.deciding)
    for identifier in long:
        hops.send(0, b"k", identifier)
    hops.turns()
    assert (len(hops.out("orders.unique")), len(hops.out("orders.dlq"))) == (0, 40)


def test_each_partition_shows_its_share_of_a_ring() -> None:
    hops = Hops(BY_ID, addresses={"#": {"id_cache_size": 9}})
    for identifier in IDS:
        hops.send(0, b"k", identifier)
    hops.turns()
    found = answer(AddressQuery("orders"), hops.deciding)
    assert isinstance(found, AddressAnswer)
    assert [(each.ids_held, each.capacity) for each in found.partitions] == [(5, 5), (5, 5)]
    assert (found.shares, found.settings["id_cache_size"].value) == (2, 9)
    halved = EvictionQuery({"#": {"id_cache_size": 4}})
    preview = answer(halved, hops.deciding)
    assert isinstance(preview, EvictionAnswer)
    assert preview.ids_forgotten == 6
    other = answer(EvictionQuery({"#": {"id_cache_size": 9, "window_ms": 5}}), hops.deciding)
    assert isinstance(other, EvictionAnswer)
    assert other.ids_forgotten == 0


def test_what_was_reported_is_kept_for_all_numbers_of_all_publishers() -> None:
    audit = {"strategy": "audit", "dead_letter_audit": True, "audit_producers": 20}
    hops = Hops(BY_ID, addresses={"#": audit})
    for _ in range(3):
        for number in range(1, 31):
            names = ((PUBLISHER, b"P"), (NUMBER, b"%d" % number))
            hops.living.write(b"%d" % number, *names, key=b"k", partition=0)
        hops.turns()
    assert (len(hops.out("orders.unique")), len(hops.out("orders.dlq"))) == (30, 30)


def test_a_stamp_counts_whatever_else_a_record_names() -> None:
    hops = Hops(BY_ID, addresses={"#": {"strategy": "audit"}})
    for number in range(12):
        stamp = (DUPLICATE_ID, b"cluster/t/0/%d" % number)
        hops.living.write(b"%d" % number, stamp, (PUBLISHER, b"P"), key=b"k")
        hops.living.write(b"%d" % number, stamp, key=b"k")
    hops.turns()
    assert (len(hops.out("orders.unique")), len(hops.out("orders.dlq"))) == (12, 12)


def test_an_id_that_could_not_be_read_when_its_record_was_passed_on_counts_as_none() -> None:
    registry = FakeSchemas(_1=KNOWN)
    hops = Hops(replace(BY_ID, id="{schema:/id}", missing_id="dead_letter"))
    living_with(registry, hops.living)
    try:
        for number in range(20):
            hops.living.write(order(f"id-{number}", 0), partition=0)
        hops.turns()
        for number in range(20):  # copies, by a schema that is registered a moment too late
            hops.living.write(order(f"id-{number}", 1, schema=2), partition=1)
        for _ in range(4):
            hops.carrying.turn()
            hops.living.clock.sleep(UNKNOWN_S)
        registry.schemas[2] = KNOWN
        hops.living.clock.sleep(2 * UNKNOWN_S)
        hops.turns()
        assert len(hops.out("orders.unique")) == 20
        letters = [dict(each.headers or []) for each in hops.out("orders.dlq")]
        reasons = Counter(each[DeadLetter.REASON] for each in letters)
        assert reasons.total() == 20
        assert reasons[b"missing-id"] > 0, "some were passed on by their input partition"
        late = b"its schema was registered after it had been passed on without an id, and the route"
        assert any((each[DeadLetter.CAUSE] or b"").startswith(late) for each in letters)
    finally:
        use(None)
