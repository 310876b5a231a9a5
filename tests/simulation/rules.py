"""Rules: what strategies other than the ring have to answer, as slowly as one can say it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ringfence_client.headers import Reason
from ringfence_state.model import Claim

WINDOW_MS = 15
WINDOW_SIZE = 4
DEPTH = 4
PRODUCERS = 2
GROUP_SIZE_MAX = 3
GROUPS_MAX = 2
SETTINGS = {
    "group_records_max": GROUP_SIZE_MAX,
    "groups_open_max": GROUPS_MAX,
    "group_timeout_ms": 10**12,
    "window_ms": WINDOW_MS,
    "window_size": WINDOW_SIZE,
    "audit_depth": DEPTH,
    "audit_producers": PRODUCERS,
}


class Answer(NamedTuple):
    """No reason: it is new."""

    reason: Reason | None = None
    original: str | None = None


class Rule(Protocol):
    """One address on one partition, given every record in order."""

    forgets: bool
    """Not while the records of a group are tried, so that none hides behind another."""

    def judge(self, claim: Claim, time_ms: int, place: str) -> Answer:
        """Answer for a record at a place; for a duplicate this is the only call."""
        ...

    def accept(self, claim: Claim, time_ms: int, place: str) -> None:
        """It was let through."""
        ...


def _elsewhere(one: str, other: str) -> bool:
    """Whether two places are in different partitions."""
    return one.rpartition("@")[0] != other.rpartition("@")[0]


class Sequence:
    """The highest number of each publisher."""

    forgets = True

    def __init__(self) -> None:
        self.last: dict[str, tuple[int, str]] = {}

    def judge(self, claim: Claim, _time_ms: int, place: str) -> Answer:
        last, at = self.last.get(claim.publisher or "", (0, place))
        if _elsewhere(at, place):
            return Answer(Reason.INVALID_CLAIM)
        if (claim.number or 0) > last:
            return Answer()
        return Answer(Reason.DUPLICATE, at if claim.number == last else None)

    def accept(self, claim: Claim, _time_ms: int, place: str) -> None:
        self.last[claim.publisher or ""] = (claim.number or 0, place)


class Ordered:
    """The last number of each publisher's stream."""

    forgets = True

    def __init__(self) -> None:
        self.last: dict[str, tuple[int, int, str]] = {}

    def judge(self, claim: Claim, _time_ms: int, place: str) -> Answer:
        stream, last, at = self.last.get(claim.publisher or "", (-1, 0, place))
        if _elsewhere(at, place):
            return Answer(Reason.INVALID_CLAIM)
        number, previous = claim.number or 0, claim.previous or 0
        if claim.stream == stream and number <= last:
            return Answer(Reason.DUPLICATE, at if number == last else None)
        goes_on = claim.stream == stream and previous <= last
        begins = (claim.stream or 0) > stream and previous == 0
        return Answer() if goes_on or begins else Answer(Reason.OUT_OF_ORDER)

    def accept(self, claim: Claim, _time_ms: int, place: str) -> None:
        self.last[claim.publisher or ""] = (claim.stream or 0, claim.number or 0, place)


class Audit:
    """The numbers of the producers that were heard of last, the latest of them at the end."""

    forgets = True

    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = {}

    def judge(self, claim: Claim, _time_ms: int, _place: str) -> Answer:
        seen, number = self.seen.get(claim.publisher or "", []), claim.number or 0
        if not seen or (number not in seen and number > max(seen) - DEPTH):
            return Answer()
        self.seen[claim.publisher or ""] = self.seen.pop(claim.publisher or "")
        return Answer(Reason.DUPLICATE)

    def accept(self, claim: Claim, _time_ms: int, _place: str) -> None:
        seen = self.seen.pop(claim.publisher or "", [])
        self.seen[claim.publisher or ""] = [*seen, claim.number or 0]
        while self.forgets and len(self.seen) > PRODUCERS:
            del self.seen[next(iter(self.seen))]


class Window:
    """The ids that were seen last, the latest of them at the end."""

    forgets = True

    def __init__(self, size: int = WINDOW_SIZE) -> None:
        self.size = size
        self.seen: dict[tuple[str | None, bytes | None], tuple[int, str]] = {}

    def judge(self, claim: Claim, time_ms: int, _place: str) -> Answer:
        name = claim.publisher, claim.identifier
        seen_ms, place = self.seen.get(name, (-WINDOW_MS, ""))
        if time_ms - seen_ms > WINDOW_MS:
            return Answer()
        del self.seen[name]
        self.seen[name] = (time_ms, place)
        return Answer(Reason.DUPLICATE, place)

    def accept(self, claim: Claim, time_ms: int, place: str) -> None:
        self.seen.pop((claim.publisher, claim.identifier), None)
        self.seen[claim.publisher, claim.identifier] = (time_ms, place)
        while self.forgets and len(self.seen) > self.size:
            del self.seen[next(iter(self.seen))]


RULES: Mapping[str, Callable[[], Rule]] = {
    "window": Window,
    "audit": Audit,
    "sequence": Sequence,
    "ordered": Ordered,
}
