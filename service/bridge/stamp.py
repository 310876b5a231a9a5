"""Stamp: a record that claims nothing gets its own place as its duplicate id.

The place is the source's, so it is the same on every attempt and in every bridge between the two
clusters. A record with a claim of its own is left alone, even where the claim is a bad one: that
is for the target to judge.
"""

from collections.abc import Sequence

from ringfence.headers import DUPLICATE_ID, DUPLICATE_ID_ALIASES, NUMBER, PUBLISHER
from service.consume import UNREADABLE
from service.route import Headers


def has_claim(headers: Headers) -> bool:
    """Whether a record says what it repeats: an id, or a publisher with a number.

    Of several headers with one name the first counts, and a null is none; so is the number 0.
    """
    publisher = number = None
    for name, value in headers:
        if value is None:
            continue
        if name in DUPLICATE_ID_ALIASES:
            return True
        if name == PUBLISHER:
            publisher = value
        elif name == NUMBER and number is None:
            number = value
    return publisher is not None and number is not None and not _is_zero(number)


def stamped(
    column: Sequence[Headers | None], offsets: Sequence[int], prefix: bytes
) -> list[Headers]:
    """The headers to send for records of one partition: stamped at their end where they need it."""
    return [
        headers
        if headers and (headers is UNREADABLE or has_claim(headers))
        else [*(headers or ()), (DUPLICATE_ID, b"%b%d" % (prefix, offset))]
        for headers, offset in zip(column, offsets, strict=True)
    ]


def _is_zero(number: bytes) -> bool:
    return number != b"" and not number.strip(b"0")
