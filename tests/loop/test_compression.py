"""Records that fit their topics only when compressed, as their publishers sent them."""

import random
from collections.abc import Iterator

import pytest

from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from tests.fakes.partition import Record
from tests.loop.test_two_hops import Hops
from tests.support.living import Living, in_group, turns
from tests.support.native import native_rings, needs_native

LIMIT = 64 * 1024
"""Of every topic of the routes; those of the group take 64 KiB more."""
TEXT = b'{"order": 1}' * 50_000
FAR = random.Random(1).randbytes(LIMIT * 3 // 4) * 5
"""What zstd packs and gzip does not."""
TOO_MUCH = random.Random(2).randbytes(4 * LIMIT)
TOPICS = ("orders", "orders.unique", "orders.dlq")


def limited(**limits: int) -> Living:
    living = Living(producer={})
    for name in TOPICS:
        limit = limits.get(name.replace(".", "_"), LIMIT)
        living.cluster.create_topic(name, record_bytes_max=limit)
    return living


@pytest.fixture(params=["python", pytest.param("native", marks=needs_native)], autouse=True)
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "native":
        with native_rings():
            yield
    else:
        yield


def write(living: Living, identifier: str, value: bytes, **given: int) -> None:
    headers: list[tuple[str, bytes | None]] = [(DUPLICATE_ID, identifier.encode())]
    record = Record(b"k", value, headers, living.cluster.now_ms)
    living.cluster.write("orders", given.get("partition", 0), record)


def exposed(living: Living) -> dict[str, float]:
    """How many processes compress, by codec, as the metrics say."""
    name = "ringfence_compressing_processes"
    (family,) = (each for each in living.metrics.families() if each.name == name)
    return {dict(point.labels)["codec"]: point.value for point in family.points}


def values(living: Living, topic: str) -> list[bytes | None]:
    partitions = range(len(living.cluster.logs[topic].partitions))
    return [each.value for number in partitions for each in living.cluster.records(topic, number)]


@pytest.mark.parametrize("value", [TEXT, FAR], ids=["any codec", "zstd"])
def test_a_record_that_its_input_took_compressed_is_accepted_and_costs_no_transaction(
    value: bytes,
) -> None:
    living = limited()
    for name in "abc":
        write(living, name, value + name.encode())
        write(living, f"small {name}", b"small")
    turns(living.running(), 5)
    assert living.cluster.logs["orders.unique"].record_bytes_max < len(value)
    assert len(values(living, "orders.unique")) == 6
    assert values(living, "orders.dlq") == values(living, "g.dead-letters") == []
    assert living.faults.passed["abort_transaction"] == 0, "it was found before the first began"


def test_one_that_comes_in_the_middle_of_a_transaction_costs_one_attempt() -> None:
    living = limited()
    loop = living.running()
    living.send("a")
    turns(loop, 2)
    living.send(*"bcd")
    write(living, "large", TEXT)
    living.send(*"efg")
    turns(loop, 10)
    assert len(values(living, "orders.unique")) == 8
    assert living.faults.passed["abort_transaction"] <= 1
    living.send("h")
    write(living, "another", TEXT)
    turns(loop, 5)
    assert len(values(living, "orders.unique")) == 10
    assert living.faults.passed["abort_transaction"] <= 1


def test_its_duplicate_goes_to_its_own_dead_letter_topic() -> None:
    living = limited()
    for _ in range(2):
        write(living, "a", TEXT)
    turns(living.running(), 5)
    assert values(living, "orders.unique") == [TEXT]
    assert living.reasons("orders.dlq") == ["duplicate"]
    assert values(living, "g.dead-letters") == []


@pytest.mark.parametrize("value", [TEXT, FAR], ids=["any codec", "zstd"])
def test_both_hops_pass_it_on(value: bytes) -> None:
    hops = Hops(producer={})  # whose topics take a mebibyte
    value *= 6
    for _ in range(2):
        write(hops.living, "a", value)
    write(hops.living, "b", b"small")
    hops.turns(10)
    assert set(values(hops.living, "orders.unique")) == {value, b"small"}
    assert values(hops.living, "orders.dlq") == [value]
    assert values(hops.living, "g.dead-letters") == []


def test_one_that_is_too_large_even_so_is_a_dead_letter_with_limit_and_remedy() -> None:
    living = limited()
    for number in range(10):
        write(living, f"{number}", TOO_MUCH if number == 5 else b"small")
    turns(living.running(), 30)
    assert len(values(living, "orders.unique")) == 9
    (letter,) = living.cluster.records("g.dead-letters")
    told = {name: value or b"" for name, value in letter.headers or []}
    assert told[DeadLetter.REASON] == b"too-large"
    cause = told[DeadLetter.CAUSE].decode()
    assert "orders.unique takes 65536" in cause
    assert "raise max.message.bytes" in cause
    assert living.faults.passed["abort_transaction"] <= 5


def test_many_that_are_too_large_cost_a_bounded_number_of_transactions() -> None:
    living = limited()
    loop = living.running()
    for round_ in range(5):
        for number in range(10):
            large = TOO_MUCH if number % 5 == 0 else b"small"
            write(living, f"{round_}-{number}", large)
        turns(loop, 6)
    turns(loop, 20)
    assert len(values(living, "orders.unique")) == 40
    assert len(values(living, "g.dead-letters")) == 10
    assert living.faults.passed["abort_transaction"] <= 3 + 5 * 2


def test_where_the_input_takes_more_a_record_that_does_not_pack_aborts_nothing() -> None:
    living = limited(orders=8 * LIMIT, orders_dlq=8 * LIMIT)
    for number in range(10):
        write(living, f"{number}", (TOO_MUCH, TEXT, b"small")[number % 3])
    turns(living.running(), 10)
    assert living.reasons("orders.dlq") == ["too-large"] * 4
    assert len(values(living, "orders.unique")) == 6
    assert living.faults.passed["abort_transaction"] == 0
    (letter, *_) = living.cluster.records("orders.dlq")
    cause = dict(letter.headers or [])[DeadLetter.CAUSE] or b""
    assert b"too large, compressed as well: 262" in cause
    assert b"orders.unique takes 65536; raise its max.message.bytes" in cause


def test_an_output_that_unpacks_everything_refuses_it_and_the_cause_names_the_setting() -> None:
    living = limited()
    living.cluster.create_topic(
        "orders.unique", record_bytes_max=LIMIT, settings={"compression.type": "uncompressed"}
    )
    write(living, "a", TEXT)
    turns(living.running(), 5)
    assert living.reasons("orders.dlq") == ["too-large"]
    (letter,) = living.cluster.records("orders.dlq")
    cause = dict(letter.headers or [])[DeadLetter.CAUSE] or b""
    assert b"set its compression.type, uncompressed, to producer" in cause


def test_a_group_that_waits_with_such_a_record_is_kept_and_goes_out() -> None:
    living = limited()
    loop = living.running()
    for position in (1, 2):
        living.write(TEXT, *in_group("group", position, 2), key=b"k")
        turns(loop, 10)
    assert values(living, "orders.unique") == [TEXT, TEXT]
    assert values(living, "orders.dlq") == values(living, "g.dead-letters") == []


def test_the_producer_compresses_no_more_after_ten_seconds_without_such_records() -> None:
    living = limited()
    loop = living.running()
    write(living, "a", TEXT)
    turns(loop, 5)
    living.clock.sleep(1)
    turns(loop, 1)
    assert (exposed(living), living.board.read().compression) == ({"gzip": 1, "zstd": 0}, "gzip")
    living.clock.sleep(11)
    living.send("b")
    turns(loop, 5)
    assert (exposed(living), living.board.read().compression) == ({"gzip": 0, "zstd": 0}, None)
    assert len(values(living, "orders.unique")) == 2
