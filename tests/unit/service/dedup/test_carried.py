"""What stands in the topic by-address may have been written by anybody."""

import pytest

from ringfence.headers import ORIGIN, Headers
from service.dedup.record import NOWHERE, name_of, source_of, trace, untraced
from state.model import Source


@pytest.mark.parametrize(
    ("inlet", "source"),
    [
        (b"orders-1", Source("orders", 1)),
        (b"or-ders-999999999", Source("or-ders", 999_999_999)),
        (b"or\xffders-1", Source("or\ufffdders", 1)),
        (b"orders-1000000000", None),
        (b"orders-", None),
        (b"orders-1x", None),
        (b"orders", None),
    ],
)
def test_an_inlet_is_a_topic_and_a_partition_or_none(inlet: bytes, source: Source | None) -> None:
    assert source_of(inlet) == source
    assert source is None or name_of(source) == inlet.decode(errors="replace").encode()


@pytest.mark.parametrize(
    ("headers", "inlet", "offset"),
    [
        ([("a", b"b@1"), trace(b"orders-1", 7)], b"orders-1", 7),
        ([(ORIGIN, b"a@b-1@" + b"9" * 18)], b"a@b-1", 10**18 - 1),
        ([(ORIGIN, b"orders-1@" + b"9" * 19)], NOWHERE, 0),
        ([("another", b"orders-1@7")], NOWHERE, 0),
        ([trace(b"orders-1", 7), ("a", b"later")], NOWHERE, 0),
        ([(ORIGIN, b"@7")], NOWHERE, 0),
        ([(ORIGIN, b"orders-1@x")], NOWHERE, 0),
        ([(ORIGIN, None)], NOWHERE, 0),
        ([], NOWHERE, 0),
        (None, NOWHERE, 0),
    ],
)
def test_a_trace_is_the_last_header_and_taken_off_or_there_is_none(
    headers: Headers | None, inlet: bytes, offset: int
) -> None:
    traced = untraced([headers])
    assert (traced.inlets, traced.own_offsets) == ([inlet], [offset])
    assert traced.headers == [headers if inlet == NOWHERE else (headers or [])[:-1]]
