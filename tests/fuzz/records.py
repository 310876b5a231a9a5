"""Records at and beyond every limit, each with a mark by which it is known again.

The mark is the beginning of the value; where the value is null or empty it is the timestamp, which
no other record has. Names, numbers and places are few, so that records meet each other.
"""

import random
from collections.abc import Callable, Iterator
from typing import Final

from ringfence_client.headers import (
    DUPLICATE_ID,
    EPOCH,
    EXPIRES_AT,
    GROUP,
    GROUP_BYTES_MAX,
    GROUP_POSITION,
    GROUP_SIZE,
    ID_BYTES_MAX,
    MARK,
    NUMBER,
    NUMBER_MAX,
    ORIGIN,
    PREVIOUS,
    PUBLISHER,
    PUBLISHER_BYTES_MAX,
    REPLY_TO,
    STREAM,
    DeadLetter,
)
from ringfence_service.config.addresses import AUDIT, BRIDGE
from ringfence_service.dedup.output import size_bytes
from ringfence_service.dedup.route import ADDRESS_BYTES_MAX
from ringfence_state.pending_group import HEADERS_MAX
from tests.fakes.log import START_MS
from tests.fakes.partition import Headers, Record

ADDRESS: Final = "addr"
TO: Final = "to"
NOT_TEXT: Final = "\udcff"
"""In place of a header name that is not UTF-8."""
UNFORESEEN: Final = "unforeseen"
"""Under this name a record holds what makes its checks fail."""

_YEAR_MS: Final = 31_536_000_000
_TIMES_MS: Final = (-1, 0, 1, START_MS - 30 * _YEAR_MS, START_MS + 30 * _YEAR_MS, 2**62, 2**63 - 1)
_NUMBERS: Final = (
    *(b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"00", b"-1", b"", b"x", b"\xff", b"1.5"),
    *(b"%d" % number for number in (2**31, 2**32, 2**62, NUMBER_MAX - 1, NUMBER_MAX)),
    *(b"%d" % (NUMBER_MAX + 1), b"9" * 19, b"9" * 20, b"0" * 19, "\u0663".encode()),
)
_TIMES: Final = (*_NUMBERS, b"%d" % (START_MS + _YEAR_MS), b"9" * 18)
_IDS: Final = (*(b"%d" % number for number in range(8)), b"", b"\xff\x00", b"c/t/0/5", b"i" * 65)
_LONG_IDS: Final = tuple(b"i" * (ID_BYTES_MAX + more) for more in (-1, 0, 1))
_PUBLISHERS: Final = (b"p", b"q", b"r", b"p\x00", "\N{HOT BEVERAGE}".encode())
_ODD_PUBLISHERS: Final = (
    *(b"", b"\xff", b"P" * (PUBLISHER_BYTES_MAX - 1), b"P" * PUBLISHER_BYTES_MAX),
    b"P" * (PUBLISHER_BYTES_MAX + 1),
)
_GROUPS: Final = (b"t", b"u", b"v")
_ODD_GROUPS: Final = (
    *(b"", b"\xff", b"T" * (GROUP_BYTES_MAX - 1), b"T" * GROUP_BYTES_MAX),
    b"T" * (GROUP_BYTES_MAX + 1),
)
_ADDRESSES: Final = (b"a", b"b", b"c.d", b"c.e")
_ODD_ADDRESSES: Final = (
    *(b"", b"\xff", b"\x00", b"#", b"*", AUDIT.encode(), AUDIT.encode() + b"a", BRIDGE.encode()),
    *(BRIDGE.encode() + b"a", b"A" * (ADDRESS_BYTES_MAX - 1), b"A" * ADDRESS_BYTES_MAX),
    *(b"A" * (ADDRESS_BYTES_MAX + 1), "\N{HOT BEVERAGE}".encode() * 1_365, b"x" * 65_536),
)
TARGETS: Final = ("left", "right")
_ODD_TARGETS: Final = (
    *(b"absent", b"elsewhere", b"../etc", b"", b".", b"\xff", b"o" * 249, b"o" * 250),
    *("\N{HOT BEVERAGE}".encode(), b"o\x00"),
)
REPLIES: Final = ("replies", "narrow-replies")
_ODD_REPLIES: Final = (None, b"absent", b"orders.unique", b"orders", b"", b"\xff", b"r" * 250)
_NAMES: Final = (
    *("x", "", "\x00", "\N{HOT BEVERAGE}", "n" * 300, "traceparent", MARK, ORIGIN, DUPLICATE_ID),
    *(name.value for name in DeadLetter),
)
_VALUES: Final = (
    *(None, b"", b"1", b"\xff\x00", b"orders-0@7", b"-1@-1", b"orders-9999999999@1", b"duplicate"),
    b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01",
)
_KEYS: Final = (b"k", b"l", b"a", b"b", b"1")
_ODD_KEYS: Final = (None, b"", b"\xff", b"k" * 5_000)
_COUNTS: Final = (*(HEADERS_MAX + more for more in range(-5, 2)), 70_000)


_MEMBERS: Final = (b'"1"', b"1", b"2", b"3.0", b"true", b'""', b'"\\u20ac"')
_ODD_MEMBERS: Final = (
    *(b"null", b"{}", b"[]", b"NaN", b'"\\ud800"', b'"\xff"', b"9" * 5_000, b"[" * 50_000),
    *(
        b'"' + b"i" * (ID_BYTES_MAX + 1) + b'"',
        b"",
        b'{"a',
        b'"A' + b"A" * ADDRESS_BYTES_MAX + b'"',
    ),
)


def marked(number: int) -> bytes:
    """How the value of a record begins."""
    return b"#%d;" % number


def document(chance: random.Random, number: int) -> bytes:
    """A value with a mark that is JSON, or nearly."""
    odd = _once_in(chance, 5)
    identifier = chance.choice(_ODD_MEMBERS if odd else _MEMBERS)
    address = chance.choice(_ODD_MEMBERS if _once_in(chance, 20) else _MEMBERS)
    name = b"other" if _once_in(chance, 20) else b"id"
    text = b'{"mark": "%b", "%b": %b, "to": {"addr/": [%b]}}'
    return text % (marked(number), name, identifier, address)


def number_of(value: bytes | None, timestamp_ms: int) -> int:
    """Which record it is."""
    if value:
        return int(value[value.index(b"#") + 1 : value.index(b";")])
    return timestamp_ms - START_MS


def record_of(
    chance: random.Random, number: int, bytes_max: int, *, is_json: bool = False
) -> Record:
    """Any record that a topic takes of which `bytes_max` is the limit."""
    headers = [header for part in _PARTS for header in part(chance)]
    chance.shuffle(headers)
    if _once_in(chance, 400):
        headers = [("h", b"")] * max(0, chance.choice(_COUNTS) - len(headers)) + headers
    key = chance.choice(_ODD_KEYS if _once_in(chance, 10) else _KEYS)
    value: bytes | None = marked(number)
    if is_json and len(text := document(chance, number)) < bytes_max // 2:
        value = text
    timestamp_ms = START_MS + number
    if _once_in(chance, 20):
        value = chance.choice((None, b""))
    elif _once_in(chance, 20):
        timestamp_ms = chance.choice(_TIMES_MS)
    while size_bytes(key, value, headers) > bytes_max:
        headers, key = headers[: len(headers) // 2], None
    if value and _once_in(chance, 20):
        room = bytes_max - size_bytes(key, value, headers)
        value += bytes(max(0, room - chance.choice((0, 1, 2, 500, 1_000, 2_000))))
    return Record(key, value, headers, timestamp_ms)


def _once_in(chance: random.Random, times: int) -> bool:
    return chance.randrange(times) == 0


def _ids(chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    if chance.random() < 0.8:
        yield DUPLICATE_ID, chance.choice(_LONG_IDS if _once_in(chance, 100) else _IDS)
    if _once_in(chance, 30):
        name = chance.choice((DUPLICATE_ID, "_AMQ_DUPL_ID", "_HQ_DUPL_ID"))
        yield name, chance.choice((None, *_IDS))
    if _once_in(chance, 20):
        yield EXPIRES_AT, chance.choice((None, *_TIMES))


def _publishing(chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    if chance.random() < 0.5:
        odd = _once_in(chance, 20)
        yield PUBLISHER, chance.choice(_ODD_PUBLISHERS if odd else _PUBLISHERS)
        for name in (NUMBER, STREAM, PREVIOUS, EPOCH):
            if chance.random() < 0.7:
                odd = _once_in(chance, 10)
                yield name, chance.choice(_NUMBERS) if odd else b"%d" % chance.randrange(6)


def _grouping(chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    if chance.random() < 0.25:
        yield GROUP, chance.choice(_ODD_GROUPS if _once_in(chance, 20) else _GROUPS)
        odd, size = _once_in(chance, 20), chance.choice((1, 2, 2, 3, 4, 5))
        yield GROUP_SIZE, chance.choice(_NUMBERS) if odd else b"%d" % size
        odd = _once_in(chance, 20)
        yield GROUP_POSITION, chance.choice(_NUMBERS) if odd else b"%d" % chance.randint(1, size)


def _way(chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    if chance.random() < 0.9:
        yield ADDRESS, chance.choice(_ODD_ADDRESSES if _once_in(chance, 30) else _ADDRESSES)
    if chance.random() < 0.9:
        targets = [name.encode() for name in TARGETS]
        yield TO, chance.choice(_ODD_TARGETS if _once_in(chance, 20) else targets)


def _asking(chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    if chance.random() < 0.4:
        topics = [name.encode() for name in REPLIES]
        yield REPLY_TO, chance.choice(_ODD_REPLIES if _once_in(chance, 10) else topics)


def _others(chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    while _once_in(chance, 4):
        yield chance.choice(_NAMES), chance.choice(_VALUES)
    if _once_in(chance, 300):
        yield "n" * 70_000, b"v" * 70_000
    if _once_in(chance, 200):
        yield NOT_TEXT, b""
    if _once_in(chance, 200):
        yield UNFORESEEN, chance.choice((b"at once", b"claim", b"size"))


_PARTS: Final[tuple[Callable[[random.Random], Iterator[tuple[str, bytes | None]]], ...]] = (
    _ids,
    _publishing,
    _grouping,
    _way,
    _asking,
    _others,
)


def told(headers: Headers | None) -> dict[str, str]:
    """What our own headers of a dead letter say: of several sets the last."""
    ours = {name.value for name in DeadLetter}
    return {
        name.removeprefix("ringfence."): value.decode(errors="replace")
        for name, value in headers or []
        if name in ours and value is not None
    }
