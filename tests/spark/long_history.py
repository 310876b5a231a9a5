"""A history as long as one likes, for every strategy a topic, made twice alike from its seed.

About a quarter of the records repeat something. An `audit` leaves some numbers out, which may still
come; a `sequence` and an `ordered` publisher write one partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from ringfence.headers import DUPLICATE_ID, NUMBER, PREVIOUS, PUBLISHER, STREAM

PARTITIONS: Final = 2
START_MS: Final = 1_700_000_000_000
PUBLISHERS: Final = 40
LEFT_OUT: Final = 37
"""Of an audit's numbers each that is a multiple is left out."""

KEPT: Final = ("ring", "window", "audit", "sequence", "ordered")
"""Those that hold all of their history."""
FORGETTING: Final = ("small", "brief")
"""A ring and a window that do not."""
ADDRESSES: Final[Mapping[str, Mapping[str, object]]] = {
    "ring": {"strategy": "ring", "id_cache_size": 2_000_000},
    "window": {"strategy": "window", "window_size": 2_000_000, "window_ms": 10**12},
    "audit": {"strategy": "audit", "audit_depth": 4096},
    "sequence": {"strategy": "sequence"},
    "ordered": {"strategy": "ordered"},
    "small": {"strategy": "ring", "id_cache_size": 5_000},
    "brief": {"strategy": "window", "window_size": 20_000, "window_ms": 20_000},
}

Headers = list[tuple[str, bytes]]


class Sent(NamedTuple):
    """A record as it is published."""

    partition: int
    timestamp_ms: int
    headers: Headers


def history(kind: str, count: int, seed: int = 1) -> Iterator[Sent]:
    """The records of one topic, in the order in which they are sent."""
    random = Random(f"{kind} {seed}")
    tell = _named if kind in {"ring", "window", "small", "brief"} else _numbered
    for at, (partition, headers) in enumerate(tell(kind, count, random)):
        back_ms = 500 if at % 11 == 0 else 0
        yield Sent(partition, START_MS + 2 * at - back_ms, headers)


def left_out(count: int) -> Sequence[Sent]:
    """Numbers that an audit still takes, as they come late: near the highest of each publisher."""
    below = count // PUBLISHERS * 7 // 10  # a quarter of the records bring no new number
    number = below - below % LEFT_OUT
    return [
        Sent(0, START_MS, [(PUBLISHER, b"p%d" % who), (NUMBER, b"%d" % number)])
        for who in range(0, PUBLISHERS, PARTITIONS)
    ]


def _named(kind: str, count: int, random: Random) -> Iterator[tuple[int, Headers]]:
    for at in range(count):
        back = random.randrange(30_000) if random.random() < 0.25 else 0
        number = max(0, at - back)
        yield number % PARTITIONS, [(DUPLICATE_ID, b"%b-%09d" % (kind.encode(), number))]


def _numbered(kind: str, count: int, random: Random) -> Iterator[tuple[int, Headers]]:
    last = [0] * PUBLISHERS
    for at in range(count):
        who = at % PUBLISHERS
        repeats = last[who] and random.random() < 0.25
        number = max(1, last[who] - random.randrange(40)) if repeats else last[who] + 1
        previous = number - 1
        if kind == "audit" and number % LEFT_OUT == 0:
            number += 1
        if kind == "ordered" and random.random() < 0.01:
            previous = number + 5  # what is missing comes never: it is out of order
        else:
            last[who] = max(last[who], number)
        headers = [(PUBLISHER, b"p%d" % who), (NUMBER, b"%d" % number)]
        if kind == "ordered":
            headers += [(STREAM, b"1"), (PREVIOUS, b"%d" % previous)]
        yield who % PARTITIONS, headers
