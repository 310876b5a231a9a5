"""Ids and addresses by schemas: the record's faults, and a registry that is away for a while."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ringfence_client.headers import DeadLetter, Reason
from ringfence_service.dedup.record import RejectedError
from ringfence_service.schemas.documents import UNKNOWN_S, Documents, use
from ringfence_service.schemas.lookups import FRUITLESS_MAX, FRUITLESS_PER_S, GRACE_S
from ringfence_service.schemas.registry import RegisteredSchema
from ringfence_state.model import PartitionId
from tests.fakes.schema_registry import FakeSchemas, SteppedLookups, payload
from tests.support.deciding import SOURCE, World, record
from tests.support.living import ROUTE, Living, in_group, refused, turns, waiting_for

ORDER = """
{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": ["null", "string"]}, {"name": "n", "type": "int"}]}
"""
KNOWN = RegisteredSchema("AVRO", ORDER)
BY_SCHEMA = replace(ROUTE, id="{schema:/id}", missing_id="dead_letter")
OTHER = replace(ROUTE, name="payments", inputs=("payments",))
CLEAN = replace(BY_SCHEMA, name="clean", inputs=("clean",))


@pytest.fixture
def registry() -> Iterator[FakeSchemas]:
    yield FakeSchemas(_1=KNOWN)
    use(None)


def living_with(registry: FakeSchemas, living: Living) -> Living:
    now_s, on_lookup = living.clock.monotonic_s, living.watch.metrics.schema_lookup
    use(Documents(SteppedLookups(registry, now_s, on_lookup), now_s))
    return living


def order(identifier: str | None, number: int, schema: int = 1) -> bytes:
    """An order of fewer than 64 characters."""
    name = b"\0" if identifier is None else b"\2" + bytes([2 * len(identifier)])
    return payload(schema, name + (identifier or "").encode() + bytes([2 * number]))


def numbers(living: Living, topic: str) -> list[int]:
    return [(each.value or b"\0")[-1] // 2 for each in living.cluster.records(topic)]


def causes(living: Living) -> list[str]:
    letters = living.cluster.records("orders.dlq")
    return [(dict(each.headers or [])[DeadLetter.CAUSE] or b"").decode() for each in letters]


def test_a_duplicate_is_recognised_by_a_member_of_its_payload(registry: FakeSchemas) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    for identifier, number in (("a", 1), ("b", 2), ("a", 3), (None, 4)):
        living.write(order(identifier, number))
    turns(living.running())
    assert numbers(living, "orders.unique") == [1, 2]
    assert living.reasons("orders.dlq") == ["duplicate", "missing-id"]
    assert causes(living)[1] == (
        "the value has nothing at {schema:/id}, and the route requires an id"
    )


def test_a_payload_that_cannot_be_read_has_no_id_and_the_cause_says_why(
    registry: FakeSchemas,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    living.write(b'{"id": "a"}')
    living.write(order("a", 1, schema=9))
    living.write(order("a", 1)[:-1])
    turns(living.running())
    assert living.reasons("orders.dlq") == ["missing-id"] * 3
    ends = ("does not begin with", "has schema 9, which the registry", "by its schema 1: it ends")
    assert [end in cause for end, cause in zip(ends, causes(living), strict=True)] == [True] * 3


def test_an_address_may_come_from_a_payload(registry: FakeSchemas) -> None:
    route = replace(ROUTE, address="{schema:/id}", id="{key}", allowed_outputs=("orders.unique",))
    living = living_with(registry, Living(route))
    for identifier, number in (("a", 1), ("b", 2), ("a", 3), (None, 4)):
        living.write(order(identifier, number), key=b"same")
    turns(living.running())
    assert numbers(living, "orders.unique") == [1, 2]
    assert living.reasons("orders.dlq") == ["duplicate", "no-address"]


@pytest.mark.row(38)
def test_a_registry_that_is_away_is_waited_for_and_no_record_is_blamed(
    registry: FakeSchemas,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    registry.away = "does not answer (refused)"
    living.write(order("a", 1))
    living.write(order("a", 2))
    loop = living.loop()
    for _ in range(20):
        living.cluster.wait(100)
        turns(loop, 5)
        assert (
            waiting_for(living) == f"the schema registry at {registry.url}, which {registry.away}"
        )
        assert living.board.read().phase == "waiting"
    assert living.committed() is None
    registry.away = ""
    living.cluster.wait(5)
    turns(loop)
    assert (waiting_for(living), living.committed()) == (None, 2)
    assert numbers(living, "orders.unique") == [1]
    assert living.reasons("orders.dlq") == ["duplicate"]


@pytest.mark.row(38)
def test_known_schemas_are_read_while_the_registry_is_away(registry: FakeSchemas) -> None:
    registry.schemas[2] = KNOWN
    living = living_with(registry, Living(BY_SCHEMA))
    living.write(order("a", 1))
    loop = living.running()
    turns(loop)
    registry.away = "does not answer"
    living.write(order("b", 2))
    turns(loop)
    assert (numbers(living, "orders.unique"), waiting_for(living)) == ([1, 2], None)
    living.write(order("b", 3, schema=2))
    turns(loop, 3)
    assert waiting_for(living)
    registry.away = "answered 500: x"
    living.cluster.wait(5)
    turns(loop, 3)
    assert "answered 500" in (waiting_for(living) or "")
    registry.away = ""
    living.cluster.wait(5)
    turns(loop)
    assert living.reasons("orders.dlq") == ["duplicate"]


@pytest.mark.row(38)
def test_a_route_whose_registry_is_away_waits_and_another_one_loses_no_transaction(
    registry: FakeSchemas,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA, others=(OTHER,)))
    loop = living.running()
    registry.away = "does not answer"
    for number in range(50):
        living.write(order(f"a{number}", number))
        living.send(f"p{number}", topic="payments")
        loop.turn()
    turns(loop)
    assert living.values("payments.unique") == [f"p{number}" for number in range(50)]
    status = living.board.read()
    assert (status.phase, status.counts.transactions_aborted) == ("running", 0)
    assert living.committed() is None
    registry.away = ""
    living.cluster.wait(5)
    turns(loop)
    assert numbers(living, "orders.unique") == list(range(50))


@pytest.mark.row(38)
def test_records_before_the_one_that_waits_are_decided_and_order_is_kept(
    registry: FakeSchemas,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    registry.schemas[2] = KNOWN
    registry.refused[2] = "answered 403: no"
    loop = living.running()
    living.write(order("a", 0))
    turns(loop)
    for number, schema in enumerate((1, 1, 2, 1, 1), 1):
        living.write(order(f"b{number}", number, schema=schema))
    turns(loop, 20)
    assert numbers(living, "orders.unique") == [0, 1, 2]
    assert living.committed() == 3
    registry.refused.clear()
    living.cluster.wait(5)
    turns(loop)
    assert numbers(living, "orders.unique") == [0, 1, 2, 3, 4, 5]


@pytest.mark.row(38)
@pytest.mark.parametrize("batch_records_max", [1, 3, 1_000])
def test_nothing_is_lost_or_doubled_around_records_that_wait(
    registry: FakeSchemas, batch_records_max: int
) -> None:
    """Every third record has a new schema, on two partitions, beside a route that has none."""
    living = living_with(
        registry,
        Living(BY_SCHEMA, others=(OTHER,), partitions=2, batch_records_max=batch_records_max),
    )
    registry.schemas |= dict.fromkeys(range(1, 41), KNOWN)
    for number in range(60):
        schema = number // 3 + 1 + 20 * (number % 2)
        living.write(order(f"a{number}", number, schema=schema), partition=number % 2)
        living.send(f"p{number}", topic="payments", partition=number % 2)
    turns(living.running(), 400)
    for partition in range(2):
        mine = [number for number in range(60) if number % 2 == partition]
        values = [each.value or b"" for each in living.cluster.records("orders.unique", partition)]
        assert [value[-1] // 2 for value in values] == mine
        assert living.values("payments.unique", partition) == [f"p{number}" for number in mine]
    assert living.board.read().counts.transactions_aborted == 0


@pytest.mark.row(38)
def test_a_record_that_its_partition_keeps_for_the_next_transaction_is_not_decided_early(
    registry: FakeSchemas,
) -> None:
    """Of one piece that does not fit, the rest is kept; the partition waits from its middle on."""
    living = living_with(registry, Living(BY_SCHEMA, others=(OTHER,), batch_bytes_max=1_024))
    registry.refused[2] = "answered 403: no"
    loop = living.running()
    for number in range(40):
        schema = 2 if number == 1 else 1
        living.write(order(f"a{number}", number, schema=schema), ("large", b"." * 200))
        living.send(f"p{number}", topic="payments", size=100)
    turns(loop, 100)
    assert numbers(living, "orders.unique") == [0]
    assert living.committed(PartitionId("payments", 0)) == 40
    registry.refused.clear()
    registry.schemas[2] = KNOWN
    living.cluster.wait(5)
    turns(loop, 100)
    assert numbers(living, "orders.unique") == list(range(40))


@pytest.mark.row(38)
def test_an_id_that_the_registry_refuses_becomes_a_fact_about_its_records(
    registry: FakeSchemas,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    registry.refused[2] = "answered 403: User is denied operation Read on Subject"
    living.write(order("a", 1))
    living.write(order("b", 2, schema=2))
    living.write(order("c", 3))
    loop = living.running()
    for _ in range(10):
        turns(loop, 2)
        living.cluster.wait(GRACE_S / 5)
    assert numbers(living, "orders.unique") == [1, 3]
    assert living.reasons("orders.dlq") == ["missing-id"]
    (cause,) = causes(living)
    assert "has schema 2, which the registry refuses: it answered 403: User is denied" in cause
    assert b'ringfence_schema_lookups_total{result="refused"} 1.0' in living.metrics.exposition()


@pytest.mark.row(38)
@pytest.mark.parametrize("seed", range(10))
def test_a_clean_route_waits_for_two_turns_at_most_whatever_the_registry_does(
    registry: FakeSchemas, seed: int
) -> None:
    """It is away, slow or refusing in turn, and transactions fail; every record has one fate."""
    chance, sent = random.Random(seed), list[int]()
    routes = replace(BY_SCHEMA, missing_id="pass")
    size = chance.choice((2, 7, 1_000))
    living = Living(routes, others=(OTHER,), partitions=2, batch_records_max=size)
    lookups = SteppedLookups(registry, living.clock.monotonic_s)
    use(Documents(lookups, living.clock.monotonic_s))
    registry.schemas |= dict.fromkeys(range(1, 30), KNOWN)
    loop = living.running()
    for number in range(60):
        lookups.is_held = chance.random() < 0.3
        registry.away = "does not answer" if chance.random() < 0.3 else ""
        registry.refused = {chance.randrange(30): "answered 403: no"}
        if chance.random() < 0.1:
            living.faults.at["commit_transaction"] = iter([refused()])
            loop.turn()
        for _ in range(chance.randrange(4)):
            schema, value = chance.randrange(1, 35), len(sent)
            living.write(order(f"a{value}", value % 100, schema=schema), partition=value % 2)
            sent.append(value)
        living.send(f"p{number}", topic="payments")
        turns(loop, 2)
        if size > 2:
            assert living.committed(PartitionId("payments", 0)) == number + 1
        living.cluster.wait(chance.random() * 3)
    lookups.is_held, registry.away, registry.refused = False, "", {}
    for _ in range(60):
        turns(loop, 2)
        living.cluster.wait(1)
    for partition in range(2):
        values = [each.value or b"" for each in living.cluster.records("orders.unique", partition)]
        mine = [value % 100 for value in sent if value % 2 == partition]
        assert [value[-1] // 2 for value in values] == mine
        assert living.committed(PartitionId("orders", partition)) == len(mine)


@pytest.mark.row(38)
def test_a_flood_of_unknown_ids_slows_its_own_route_alone(registry: FakeSchemas) -> None:
    living = living_with(registry, Living(BY_SCHEMA, others=(OTHER, CLEAN)))
    registry.schemas[5_000] = KNOWN
    loop = living.running()
    for number in range(1_000):
        living.write(order("a", 1, schema=100 + number))
    for number in range(20):
        living.send(f"p{number}", topic="payments")
        loop.turn()
    living.write(order("new", 7, schema=5_000), topic="clean")
    turns(loop, 10)
    assert living.committed(PartitionId("payments", 0)) == 20
    assert living.committed(PartitionId("clean", 0)) == 1
    assert (living.committed() or 0) < 1_000
    asked = len(registry.asked)
    began_s = living.clock.monotonic_s()
    while (living.committed() or 0) < 1_000:
        turns(loop, 2)
        living.cluster.wait(1)
    passed_s = living.clock.monotonic_s() - began_s
    assert len(registry.asked) - asked <= FRUITLESS_MAX + FRUITLESS_PER_S * (passed_s + 1)
    assert living.reasons("orders.dlq") == ["missing-id"] * 1_000
    assert living.board.read().counts.transactions_aborted == 0


def test_a_schema_that_is_registered_later_is_found_later(registry: FakeSchemas) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    loop = living.running()
    living.write(order("a", 1, schema=2))
    turns(loop)
    registry.schemas[2] = KNOWN
    living.write(order("a", 2, schema=2))
    turns(loop)
    assert living.reasons("orders.dlq") == ["missing-id"] * 2
    living.cluster.wait(UNKNOWN_S + 1)
    living.write(order("a", 3, schema=2))
    turns(loop)
    assert numbers(living, "orders.unique") == [3]


def test_each_look_up_is_counted_and_a_known_schema_is_asked_for_once(
    registry: FakeSchemas,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    for number in range(20):
        living.write(order(f"a{number}", number))
    living.write(order("x", 1, schema=5))
    turns(living.running())
    told = living.watch.metrics.exposition()
    assert b'ringfence_schema_lookups_total{result="found"} 1.0' in told
    assert b'ringfence_schema_lookups_total{result="unknown"} 1.0' in told
    assert registry.asked == [1, 5]


def test_a_failed_record_of_a_group_waits_for_the_registry_that_has_its_address(
    registry: FakeSchemas,
) -> None:
    living_with(registry, Living())
    registry.away = "does not answer"
    refusal = RejectedError(Reason.FAILED_CHECK, "its checks failed")
    world = World(replace(ROUTE, address="{schema:/id}"), refused={(SOURCE, 0): refusal})
    member = record(0, *in_group("g", 1, 2), value=order("a", 1))
    assert world.decide(member).waiting.keys() == {SOURCE}
