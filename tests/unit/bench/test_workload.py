"""The workload is what it says, and the same for everyone."""

import zlib
from collections import Counter, deque

import pytest

from bench.encoded import Encoding, registry_url
from bench.workload import LARGE_BYTES, Odd, Workload, messages, sent_as
from ringfence_service.config.model import SchemaRegistrySettings
from ringfence_service.dedup.field import field_of
from ringfence_service.schemas.documents import connect, use
from tests.support.deciding import record

WORK = Workload(records=20_000, partitions=3, value_bytes=64, distance=50, addresses=5)


def test_a_seed_gives_the_same_records_and_another_seed_others() -> None:
    assert list(messages(WORK)) == list(messages(WORK))
    assert next(messages(WORK)) != next(messages(WORK._replace(seed=2)))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_so_many_are_copies_and_each_lies_near_its_original(share: float) -> None:
    work = WORK._replace(duplicate_share=share)
    recent: list[deque[bytes]] = [deque(maxlen=work.distance) for _ in range(work.partitions)]
    seen: set[bytes] = set()
    copies = 0
    for message in messages(work):
        if message.identifier in seen:
            copies += 1
            assert message.identifier in recent[message.partition]
        else:
            seen.add(message.identifier)
            recent[message.partition].append(message.identifier)
    assert copies / work.records == pytest.approx(share, abs=0.01)


def test_a_copy_has_the_partition_and_the_address_of_its_original() -> None:
    places = {(m.identifier, m.partition, m.address) for m in messages(WORK)}
    assert max(Counter(identifier for identifier, _, _ in places).values()) == 1


def test_addresses_that_are_seen_first_have_one_record_each_and_no_other_after_them() -> None:
    found = [message.address for message in messages(WORK._replace(seen_first=1_000))]
    assert found[:1_000] == [b"seen.%d" % number for number in range(1_000)]
    assert not {*found[:1_000]} & {*found[2_000:]}


def test_values_have_the_wanted_size_and_ids_are_uuids() -> None:
    for message in messages(WORK._replace(records=100)):
        assert len(message.value) == WORK.value_bytes
        assert len(message.identifier) == 36


@pytest.mark.parametrize("encoding", ["json", "avro", "protobuf"])
def test_a_value_has_the_id_too_however_it_is_written(encoding: Encoding) -> None:
    work = WORK._replace(records=200, id_in_value=True, encoding=encoding)
    connect(SchemaRegistrySettings(registry_url()))
    field = field_of("json:/id" if encoding == "json" else "schema:/id")
    try:
        for message in messages(work):
            assert field.of(record(0, value=message.value), []) == message.identifier
    finally:
        use(None)


@pytest.mark.parametrize("odd", ["cut", "schemaless"])
def test_the_id_of_a_value_that_is_cut_or_has_an_unknown_schema_cannot_be_read(odd: Odd) -> None:
    work = WORK._replace(records=20, id_in_value=True, encoding="avro")
    connect(SchemaRegistrySettings(registry_url()))
    try:
        for number, message in enumerate(messages(work)):
            sent = record(0, value=sent_as(odd, number, message.value))
            assert field_of("schema:/id").of(sent, []) is None
    finally:
        use(None)


def test_a_large_value_is_beyond_the_limit_and_only_a_padded_one_can_be_compressed() -> None:
    values = {odd: sent_as(odd, 5, b"value") for odd in ("large", "padded")}
    assert {len(value) for value in values.values()} == {LARGE_BYTES}
    assert len(zlib.compress(values["large"])) > LARGE_BYTES
    assert len(zlib.compress(values["padded"])) < LARGE_BYTES // 100


def test_every_so_many_of_each_partition_are_odd() -> None:
    work = Workload(partitions=4, odd="keyless", odd_every=20)
    odd = [number for number in range(200) if work.is_odd(number)]
    assert odd == [0, 1, 2, 3, 80, 81, 82, 83, 160, 161, 162, 163]
    assert not any(map(work._replace(odd="").is_odd, range(200)))
