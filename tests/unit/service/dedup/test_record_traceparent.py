"""A trace is what W3C's notation says, and nothing where it says nothing valid."""

import pytest

from ringfence_service.dedup.record import TraceContext, trace_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALID = f"00-{TRACE}-{SPAN}-01".encode()


@pytest.mark.parametrize(("text", "flags"), [(b"00", 0), (b"01", 1), (b"1f", 31), (b"ff", 255)])
def test_a_valid_header_names_trace_span_and_flags(text: bytes, flags: int) -> None:
    header = ("traceparent", VALID[:-2] + text)
    assert trace_of([("other", b""), header]) == TraceContext(TRACE, SPAN, flags)


def test_a_later_version_may_tell_more() -> None:
    assert trace_of([("traceparent", VALID.replace(b"00", b"cc", 1) + b"-more")]) is not None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00",
        VALID.upper(),
        VALID[:-1],
        b"ff" + VALID[2:],
        b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01",
    ],
)
def test_what_is_not_valid_names_none(value: bytes | None) -> None:
    assert trace_of([("traceparent", value)]) is None


def test_a_record_without_the_header_has_none() -> None:
    assert trace_of([]) is None
