"""Trace: the records of a case in its own notation.

    a        the id `a`               X/a      the same on the address X, where the route asks
    -        no id                    P:a      the id `a` of the publisher P
    P#7      number 7 of P            P#5.7<6  number 7 of P's stream 5, after number 6
    t[2/3]a  `a` as the second of     t[a,-,b] all of a group t of three,
             a group t of three                in order
    ~7       an id that a bridge stamped, of offset 7
    @29      second 29 has come       |        the process is killed and restarted
    1..200   the ids 1 to 200         P#9..1   the numbers 9 down to 1

Fates: `in` it went out, `dup` it is a dead letter as a duplicate, `tx` it is a dead letter because
of a duplicate in its group, `mark` it went out marked as a duplicate, `none` it is nowhere; else
the reason of its dead letter. `in*200` is two hundred of them.
"""

import random
import re
from collections.abc import Iterable, Iterator
from typing import Final

from ringfence_client.headers import (
    DUPLICATE_ID,
    GROUP,
    GROUP_POSITION,
    GROUP_SIZE,
    NUMBER,
    PREVIOUS,
    PUBLISHER,
    STREAM,
)

Headers = list[tuple[str, bytes | None]]

ADDRESS: Final = "ADDRESS"
"""The header that names an address."""

_MEMBER: Final = re.compile(r"(?:(.+)/)?(\w+)\[(\d+)/(\d+)\](.+)")
_WHOLE: Final = re.compile(r"(.*)\[(.+)\]")
_RANGE: Final = re.compile(r"(.*?)(\d+)\.\.(\d+)")
_PUBLISHED: Final = re.compile(r"(\w+)#(?:(\d+)\.)?(\d+)(?:<(\d+))?")


def fates(text: str) -> list[str]:
    """What is expected, written out."""
    found = []
    for word in text.split():
        fate, _, count = word.partition("*")
        found += [fate] * int(count or 1)
    return found


def headers_of(word: str) -> Headers:
    """A record's headers from its word."""
    member = _MEMBER.fullmatch(word)
    if member:
        address, *place, rest = member.groups()
        told = zip((GROUP, GROUP_POSITION, GROUP_SIZE), place, strict=True)
        group = [(name, value.encode()) for name, value in told]
        return [*group, *headers_of(rest if address is None else f"{address}/{rest}")]
    address, is_named, rest = word.rpartition("/")
    found: Headers = [(ADDRESS, address.encode())] if is_named else []
    published = _PUBLISHED.fullmatch(rest)
    if published:
        names = (PUBLISHER, STREAM, NUMBER, PREVIOUS)
        said = zip(names, published.groups(), strict=True)
        return found + [(name, value.encode()) for name, value in said if value is not None]
    publisher, is_named, identifier = rest.rpartition(":")
    if is_named:
        found.append((PUBLISHER, publisher.encode()))
    if identifier.startswith("~"):
        identifier = f"cluster/source/0/{identifier[1:]}"
    return found if identifier == "-" else [*found, (DUPLICATE_ID, identifier.encode())]


def words(trace: str) -> Iterator[str]:
    """Each record, kill and time of its own."""
    for word in trace.split():
        whole = _WHOLE.fullmatch(word)
        if whole is None:
            yield from _spelled(word)
            continue
        records = [record for part in whole[2].split(",") for record in _spelled(part)]
        for position, record in enumerate(records, 1):
            yield f"{whole[1]}[{position}/{len(records)}]{record}"


def _spelled(word: str) -> Iterator[str]:
    span = _RANGE.fullmatch(word)
    if span is None:
        yield word
        return
    first, last = int(span[2]), int(span[3])
    step = 1 if first <= last else -1
    for number in range(first, last + step, step):
        yield f"{span[1]}{number}"


def noisy(headers: Headers, chance: random.Random) -> Headers:
    """The same claim, among headers that must not count: foreign ones, null ones, later ones."""
    found: Headers = []
    for header in headers:
        name, _ = header
        found += chance.choices(_FOREIGN, k=chance.randrange(2))
        if chance.random() < 0.2:
            found.append((name, None))
        found.append(header)
        if chance.random() < 0.2:
            found.append((name, b"7"))
    return found + chance.choices(_FOREIGN, k=chance.randrange(3))


_FOREIGN: Final[Headers] = [("trace", b"\xff\x00"), ("trace", None), ("_dupl_id", b"a"), ("", b"")]


def rendered(words: Iterable[object]) -> str:
    """A trace from what a generator made."""
    return " ".join(str(word) for word in words)
