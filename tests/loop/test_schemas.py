"""Ids and addresses by schemas: the record's faults, and a registry that is away for a while."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ringfence.headers import DeadLetter, Reason
from service.config.model import SchemaRegistrySettings
from service.dedup.record import RejectedError
from service.errors import ExitCode
from service.schemas import documents as documents_module
from service.schemas.documents import UNKNOWN_S, connect, use
from service.schemas.errors import RegistryUnavailableError
from tests.fakes.schema_registry import FakeRegistry, payload
from tests.support.deciding import SOURCE, World, record
from tests.support.helpers import ending
from tests.support.living import ROUTE, Living, in_group, turns, waiting_for

ORDER = """
{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": ["null", "string"]}, {"name": "n", "type": "int"}]}
"""
BY_SCHEMA = replace(ROUTE, id="{schema:/id}", missing_id="dead_letter")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    registry.start()
    registry.register("orders-value", "AVRO", ORDER)
    yield registry
    use(None)
    registry.stop()


def living_with(registry: FakeRegistry, living: Living) -> Living:
    metrics = living.watch.metrics
    connect(SchemaRegistrySettings(registry.url), living.watch.beat, metrics.schema_lookup)
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


def test_a_duplicate_is_recognised_by_a_member_of_its_payload(registry: FakeRegistry) -> None:
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
    registry: FakeRegistry,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    living.write(b'{"id": "a"}')
    living.write(order("a", 1, schema=9))
    living.write(order("a", 1)[:-1])
    turns(living.running())
    assert living.reasons("orders.dlq") == ["missing-id"] * 3
    ends = ("does not begin with", "has schema 9, which the registry", "by its schema 1: it ends")
    assert [end in cause for end, cause in zip(ends, causes(living), strict=True)] == [True] * 3


def test_an_address_may_come_from_a_payload(registry: FakeRegistry) -> None:
    route = replace(ROUTE, address="{schema:/id}", id="{key}", allowed_outputs=("orders.unique",))
    living = living_with(registry, Living(route))
    for identifier, number in (("a", 1), ("b", 2), ("a", 3), (None, 4)):
        living.write(order(identifier, number), key=b"same")
    turns(living.running())
    assert numbers(living, "orders.unique") == [1, 2]
    assert living.reasons("orders.dlq") == ["duplicate", "no-address"]


@pytest.mark.row(38)
def test_a_registry_that_is_away_is_waited_for_and_no_record_is_blamed(
    registry: FakeRegistry,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    registry.stop()
    living.write(order("a", 1))
    living.write(order("a", 2))
    loop = living.loop()
    turns(loop, 5)
    assert "the schema registry at" in (waiting_for(living) or "")
    assert living.board.read().phase == "waiting"
    assert living.committed() is None
    registry.start()
    turns(loop)
    assert (waiting_for(living), living.committed()) == (None, 2)
    assert numbers(living, "orders.unique") == [1]
    assert living.reasons("orders.dlq") == ["duplicate"]


@pytest.mark.row(38)
def test_known_schemas_are_read_while_the_registry_is_away(registry: FakeRegistry) -> None:
    registry.register("orders-value", "AVRO", ORDER)
    living = living_with(registry, Living(BY_SCHEMA))
    living.write(order("a", 1))
    loop = living.running()
    turns(loop)
    registry.stop()
    living.write(order("b", 2))
    turns(loop)
    assert (numbers(living, "orders.unique"), waiting_for(living)) == ([1, 2], None)
    living.write(order("b", 3, schema=2))
    turns(loop, 3)
    assert waiting_for(living)
    registry.broken = 500, "{}"
    registry.start()
    turns(loop, 3)
    assert "answered 500" in (waiting_for(living) or "")
    registry.broken = None
    turns(loop)
    assert living.reasons("orders.dlq") == ["duplicate"]


@pytest.mark.row(38)
def test_a_registry_that_stays_away_ends_the_process_as_a_broker_does(
    registry: FakeRegistry,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    registry.stop()
    living.write(order("a", 1))
    worker = living.worker()
    with ending(ExitCode.BROKER, "Gave up waiting for the schema registry"):
        worker.run()


def test_a_schema_that_is_registered_later_is_found_later(registry: FakeRegistry) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    loop = living.running()
    living.write(order("a", 1, schema=2))
    turns(loop)
    registry.register("orders-value", "AVRO", ORDER)
    living.write(order("a", 2, schema=2))
    turns(loop)
    assert living.reasons("orders.dlq") == ["missing-id"] * 2
    living.cluster.wait(UNKNOWN_S + 1)
    living.write(order("a", 3, schema=2))
    turns(loop)
    assert numbers(living, "orders.unique") == [3]


@pytest.mark.row(38)
def test_many_ids_that_a_slow_registry_does_not_know_block_nobody(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents_module, "LOOKUPS_S", 0.0)
    living = living_with(registry, Living(BY_SCHEMA))
    for number in range(40):
        living.write(order("a", number, schema=100 + number))
    living.write(order("a", 1))
    turns(living.running(), 100)
    assert living.reasons("orders.dlq") == ["missing-id"] * 40
    assert (numbers(living, "orders.unique"), waiting_for(living)) == ([1], None)


def test_each_look_up_is_counted_and_a_known_schema_is_asked_for_once(
    registry: FakeRegistry,
) -> None:
    living = living_with(registry, Living(BY_SCHEMA))
    for number in range(20):
        living.write(order(f"a{number}", number))
    living.write(order("x", 1, schema=5))
    turns(living.running())
    told = living.watch.metrics.exposition()
    assert b'ringfence_schema_lookups_total{result="found"} 1.0' in told
    assert b'ringfence_schema_lookups_total{result="unknown"} 1.0' in told
    assert registry.requests == ["/schemas/ids/1", "/schemas/ids/5"]


def test_a_failed_record_of_a_group_waits_for_the_registry_that_has_its_address(
    registry: FakeRegistry,
) -> None:
    living_with(registry, Living())
    registry.stop()
    refusal = RejectedError(Reason.FAILED_CHECK, "its checks failed")
    world = World(replace(ROUTE, address="{schema:/id}"), refused={(SOURCE, 0): refusal})
    member = record(0, *in_group("g", 1, 2), value=order("a", 1))
    with pytest.raises(RegistryUnavailableError):
        world.decide(member)
