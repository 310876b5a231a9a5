"""A plain record never becomes a Python object; which records do, by route and batch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Message

from ringfence_client.headers import DUPLICATE_ID, Reason
from ringfence_service.dedup.batch import read
from ringfence_service.dedup.evaluator import Columns, Evaluator
from ringfence_service.dedup.record import RejectedError
from ringfence_service.dedup.transaction_group import TransactionGroups
from ringfence_service.kafka.topics import ENVELOPE_BYTES
from ringfence_service.native.records import Records
from tests.fakes.log import FakeCluster
from tests.support.deciding import SOURCE, World, cluster_of, record
from tests.support.native import native_deciding, needs_native
from tests.unit.service.dedup.test_evaluator import ALL, FEW, KINDS, ROUTE, with_one_in_twenty

pytestmark = needs_native

NOTHING: Mapping[str, object] = {}
RECORDS = 40
IDS = 4


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The rows of the records that were asked for as objects."""
    made, getitem = list[int](), Records.__getitem__

    def counted(self: Records, index: int | slice) -> object:
        found = getitem(self, index)
        if isinstance(index, int):
            made.append(index)
        return found

    monkeypatch.setattr(Records, "__getitem__", counted)
    with native_deciding():
        yield made


def world(on_duplicate: str = "dead_letter", route: Mapping[str, object] = NOTHING) -> World:
    cluster = cluster_of(orders_unique=3, orders_dlq=3, a=3)
    settings = {"#": {"on_duplicate": on_duplicate}}
    return World(replace(ROUTE, **route), settings, cluster)  # type: ignore[arg-type]


def messages(ids: int = RECORDS, size: int = 1) -> list[Message]:
    """Records of two addresses in turn; with fewer ids than records the later ones are repeats."""
    return [
        record(
            number,
            ("address", b"ab"[number % 2 : number % 2 + 1]),
            ("other", b"a"),
            (DUPLICATE_ID, b"%d" % (number % ids)),
            key=b"k",
            value=bytes(size),
        )
        for number in range(RECORDS)
    ]


@pytest.mark.parametrize(
    ("route", "made"),
    [
        ({}, 1),
        ({"address": "{key}"}, 1),
        ({"address": "{header:address}"}, 2),
        ({"output": "a"}, 1),
    ],
    ids=str,
)
def test_only_the_first_record_of_an_address_becomes_an_object(
    route: dict[str, object], made: int, objects: list[int]
) -> None:
    plan = world(route=route).decide(*messages())
    assert plan.tally.accepted.total() == RECORDS
    assert len(objects) == made


@pytest.mark.parametrize(
    "route",
    [
        {"id": "{header:_DUPL_ID}"},
        {"address": "{header:address}{header:other}"},
        {"output": "{header:other}"},
    ],
    ids=str,
)
def test_all_records_become_objects_where_the_address_decides_too_little(
    route: dict[str, object], objects: list[int]
) -> None:
    world(route=route).decide(*messages())
    assert len(objects) >= RECORDS


@pytest.mark.parametrize("on_duplicate", ["dead_letter", "drop"])
def test_repeats_become_no_objects(on_duplicate: str, objects: list[int]) -> None:
    plan = world(on_duplicate).decide(*messages(IDS))
    assert plan.tally.duplicates.total() == RECORDS - IDS
    assert len(objects) == 1


@pytest.mark.parametrize(
    ("on_duplicate", "route"),
    [("mark", {}), ("dead_letter", {"dead_letter": "{header:other}"})],
)
def test_repeats_that_are_sent_by_more_than_their_address_become_objects(
    on_duplicate: str, route: dict[str, object], objects: list[int]
) -> None:
    plan = world(on_duplicate, route).decide(*messages(IDS))
    assert plan.tally.duplicates.total() == RECORDS - IDS
    assert len(objects) >= 1 + RECORDS - IDS


@pytest.mark.parametrize(
    ("address", "made"),
    [("{topic}", 1), ("{header:address}", 2), ("{header:address}{header:other}", RECORDS)],
)
def test_of_what_is_forwarded_only_the_first_of_a_value_becomes_an_object(
    address: str, made: int, objects: list[int]
) -> None:
    plan = world(route={"address": address, "scope": "address"}).decide(*messages())
    assert plan.tally.carried.total() == RECORDS
    assert len(objects) == made


def test_each_transaction_opens_an_address_again(objects: list[int]) -> None:
    here = world()
    for transactions in (1, 2, 3):
        here.decide(*messages())
        assert len(objects) == transactions


@pytest.mark.parametrize("topic", ["orders.unique", "orders.dlq"])
def test_no_record_is_plain_that_may_not_fit(topic: str, objects: list[int]) -> None:
    size = max(read([message]).memory_bytes for message in messages(IDS, 100))
    for bytes_max, fits in ((size + ENVELOPE_BYTES, True), (size + ENVELOPE_BYTES - 1, False)):
        cluster = FakeCluster()
        for each in ("orders.unique", "orders.dlq"):
            limit = bytes_max if each == topic else 1 << 20
            cluster.create_topic(each, 3, record_bytes_max=limit)
        objects.clear()
        World(ROUTE, {}, cluster).decide(*messages(IDS, 100))
        assert (len(objects) == 1) == fits


@pytest.mark.parametrize(("plain", "alone"), [(0, 17), (10, 17), (17, 17), (18, 18), (30, 30)])
def test_where_most_are_not_plain_python_decides_the_rest_at_once(
    plain: int, alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After more than 16 that compiled code had to leave one by one."""
    calls, rows = list[int](), Evaluator._rows

    def counted(
        self: Evaluator, columns: Columns, apart: Sequence[int], grouping: TransactionGroups
    ) -> None:
        calls.append(len(columns.messages))
        rows(self, columns, apart, grouping)

    monkeypatch.setattr(Evaluator, "_rows", counted)
    some = messages()[:plain]
    others = [record(plain + n, (DUPLICATE_ID, b"o%d" % n), timestamp_ms=0) for n in range(60)]
    with native_deciding():
        plan = world().decide(*some, *others)
    assert plan.tally.accepted.total() == plain + 60
    opening = min(plain, 1)  # Python decides the first record of an address
    assert calls == [*(1 for _ in range(alone)), opening + 60 - alone]


@pytest.mark.parametrize("kind", KINDS)
def test_of_records_that_only_the_full_path_may_decide_no_others_become_objects(
    kind: str, objects: list[int]
) -> None:
    here, few_and_others = with_one_in_twenty(kind)
    assert len(here.decide(*few_and_others).outputs) == ALL
    assert sorted(set(objects) - {1}) == list(FEW)  # 1 opens the address


@pytest.mark.parametrize("address", ["{topic}", "{key}"])
def test_of_what_is_forwarded_a_refused_record_alone_becomes_an_object(
    address: str, objects: list[int]
) -> None:
    here = world(route={"address": address, "scope": "address"})
    here.refused[SOURCE, 7] = RejectedError(Reason.TOO_LARGE, "no")
    plan = here.decide(*messages())
    assert (plan.tally.carried.total(), plan.tally.dead_letters.total()) == (RECORDS - 1, 1)
    assert objects == [0, 7]
