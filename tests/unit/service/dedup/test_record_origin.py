"""What stands in the topic by-address may have been written by anybody."""

import pytest

from ringfence_client.headers import ORIGIN, Headers
from ringfence_service.dedup.record import (
    NO_ORIGIN,
    name_of,
    origin_header,
    source_of,
    strip_origins,
)
from ringfence_state.model import PartitionId


@pytest.mark.parametrize(
    ("input_partition", "source"),
    [
        (b"orders-1", PartitionId("orders", 1)),
        (b"or-ders-999999999", PartitionId("or-ders", 999_999_999)),
        (b"or\xffders-1", PartitionId("or\ufffdders", 1)),
        (b"orders-1000000000", None),
        (b"orders-", None),
        (b"orders-1x", None),
        (b"orders", None),
    ],
)
def test_an_inlet_is_a_topic_and_a_partition_or_none(
    input_partition: bytes, source: PartitionId | None
) -> None:
    assert source_of(input_partition) == source
    assert source is None or name_of(source) == input_partition.decode(errors="replace").encode()


@pytest.mark.parametrize(
    ("headers", "input_partition", "offset"),
    [
        ([("a", b"b@1"), origin_header(b"orders-1", 7)], b"orders-1", 7),
        ([(ORIGIN, b"a@b-1@" + b"9" * 18)], b"a@b-1", 10**18 - 1),
        ([(ORIGIN, b"orders-1@" + b"9" * 19)], NO_ORIGIN, 0),
        ([("another", b"orders-1@7")], NO_ORIGIN, 0),
        ([origin_header(b"orders-1", 7), ("a", b"later")], NO_ORIGIN, 0),
        ([(ORIGIN, b"@7")], NO_ORIGIN, 0),
        ([(ORIGIN, b"orders-1@x")], NO_ORIGIN, 0),
        ([(ORIGIN, None)], NO_ORIGIN, 0),
        ([], NO_ORIGIN, 0),
        (None, NO_ORIGIN, 0),
    ],
)
def test_a_trace_is_the_last_header_and_taken_off_or_there_is_none(
    headers: Headers | None, input_partition: bytes, offset: int
) -> None:
    traced = strip_origins([headers])
    assert (traced.input_partitions, traced.own_offsets) == ([input_partition], [offset])
    assert traced.headers == [headers if input_partition == NO_ORIGIN else (headers or [])[:-1]]
