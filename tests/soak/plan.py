"""Plan: which fault strikes when, drawn from a seed and from nothing else.

Instance 0 survives: it may sleep, and all that is around it may break, but its process goes on to
the end, so that what it takes can be compared with what it took at first.
"""

import random
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

GUESTS: Final = 2
"""Instances beside the survivor; they are 1 and 2."""
_FIRST_S: Final = 3.0
_PAUSE_S: Final = (2.0, 6.0)


class Kind(Enum):
    """What goes wrong; the values are what the soak prints."""

    KILL = "kill -9"
    LOSE = "kill -9 and its state folder lost"
    SLEEP = "SIGSTOP"
    LEAVE = "SIGTERM"
    BROKER_RESTART = "the broker restarts"
    BROKER_KILL = "kill -9 of the broker"
    BROKER_PAUSE = "the broker stands still"
    CUT = "all connections cut"
    SLOW = "a slow network"
    SILENT = "a silent network"
    END_CUT = "connections cut before the end of a transaction"
    END_ANSWER_CUT = "connections cut before the answer to the end of a transaction"
    END_LATE = "the end of a transaction is late"
    END_OUTLIVES = "the end of a transaction outlives its connection, and comes after its copy"


OF_GUESTS: Final = frozenset({Kind.KILL, Kind.LOSE, Kind.LEAVE})
OF_INSTANCES: Final = OF_GUESTS | {Kind.SLEEP}
OF_BROKER: Final = frozenset({Kind.BROKER_RESTART, Kind.BROKER_KILL, Kind.BROKER_PAUSE})

_WEIGHTS: Final = {
    **dict.fromkeys(Kind, 2),
    Kind.KILL: 6,
    Kind.LOSE: 3,
    Kind.SLEEP: 4,
    Kind.LEAVE: 4,
    Kind.BROKER_RESTART: 1,
    Kind.BROKER_KILL: 1,
}


class Fault(NamedTuple):
    """One fault: from when on, for how long, and whom it strikes."""

    at_s: float
    kind: Kind
    instance: int
    for_s: float
    broker: int = 1

    def __str__(self) -> str:
        whom = f" of instance {self.instance}" if self.kind in OF_INSTANCES else ""
        which = f" (broker {self.broker})" if self.kind in OF_BROKER else ""
        return f"{self.kind.value}{whom}{which}, for {self.for_s:.1f} s"


def plan(
    seed: int, seconds: float, brokers: int = 1, kinds: Sequence[Kind] = tuple(Kind)
) -> tuple[Fault, ...]:
    """What this seed stands for; a longer plan begins as the shorter one does."""
    chance, weights = random.Random(seed), [_WEIGHTS[kind] for kind in kinds]
    faults = []
    at_s = _FIRST_S
    while at_s < seconds:
        (kind,) = chance.choices(kinds, weights)
        guest = chance.randint(1, GUESTS)
        instance = guest if kind in OF_GUESTS else chance.randint(0, GUESTS)
        for_s, broker = round(chance.uniform(0.5, 8.0), 1), chance.randint(1, brokers)
        faults.append(Fault(round(at_s, 1), kind, instance, for_s, broker))
        at_s += chance.uniform(*_PAUSE_S)
    return tuple(faults)
