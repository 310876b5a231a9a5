"""The anomalies of Jepsen's Kafka workload, each a pure function of a history.

Its writes and reads are our inputs; what it asks of a topic holds for outputs and dead letters too.
Where it asks that a write be polled we ask, besides, that an input has its fate.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from tests.histories.history import History, Log


class Anomaly(NamedTuple):
    """What must not be."""

    name: str
    what: str


def lost_writes(history: History) -> Iterator[str]:
    """An acknowledged send, at or below the highest polled offset, that nobody polled."""
    highest: dict[Log, int] = {}
    polled = {(each.log, each.offset) for each in history.polls}
    for log, offset in polled:
        highest[log] = max(offset, highest.get(log, -1))
    for sent in history.sends:
        if sent.offset is None or sent.offset > highest.get(sent.log, -1):
            continue
        if (sent.log, sent.offset) not in polled:
            yield f"{sent.mark!r}, acknowledged at {_place(sent.log, sent.offset)}, is not there"


def lost_fates(history: History) -> Iterator[str]:
    """An acknowledged input below the committed offset that came out nowhere."""
    ended = {each.mark for each in history.polls if history.is_fate(each)}
    for sent in history.sends:
        below = sent.offset is not None and sent.offset < history.committed.get(sent.log, 0)
        if below and sent.mark not in ended:
            yield f"{sent.mark!r} of {_place(sent.log, sent.offset)} was decided and has no fate"


def torn_transactions(history: History) -> Iterator[str]:
    """A fate of an input whose offset was not committed with it."""
    for sent in history.sends:
        if sent.offset is None or sent.offset < history.committed.get(sent.log, 0):
            continue
        for polled in history.polls:
            if polled.mark == sent.mark and history.is_fate(polled):
                place = _place(sent.log, sent.offset)
                yield f"{sent.mark!r} of {place} came out, and its offset is not committed"


def duplicates(history: History) -> Iterator[str]:
    """A mark at two places of one topic, or with two fates."""
    places: dict[tuple[str, bytes], set[tuple[Log, int]]] = defaultdict(set)
    for polled in history.polls:
        kind = "a fate" if history.is_fate(polled) else polled.log.topic
        places[kind, polled.mark].add((polled.log, polled.offset))
    for (kind, mark), found in places.items():
        if len(found) > 1:
            where = ", ".join(_place(log, offset) for log, offset in sorted(found))
            yield f"{mark!r} has {kind} more than once: {where}"


def aborted_reads(history: History) -> Iterator[str]:
    """What a reader was given and is not there for good, or nobody has sent."""
    lasting = {(p.log, p.offset, p.mark) for p in history.polls if p.reader == history.reads_all}
    sent = {each.mark for each in history.sends}
    for polled in history.polls:
        place = _place(polled.log, polled.offset)
        if (polled.log, polled.offset, polled.mark) not in lasting:
            yield f"{polled.reader} was given {polled.mark!r} at {place}, which did not last"
        if polled.mark not in sent:
            yield f"{polled.reader} was given {polled.mark!r} at {place}, which nobody has sent"


def divergent_values(history: History) -> Iterator[str]:
    """Two values at one offset."""
    marks: dict[tuple[Log, int], set[bytes]] = defaultdict(set)
    for polled in history.polls:
        marks[polled.log, polled.offset].add(polled.mark)
    for sent in history.sends:
        if sent.offset is not None:
            marks[sent.log, sent.offset].add(sent.mark)
    for (log, offset), found in marks.items():
        if len(found) > 1:
            yield f"{_place(log, offset)} holds {sorted(found)}"


def reordered_sends(history: History) -> Iterator[str]:
    """Sends of one producer to one log that stand there in another order."""
    for sends in history.sends_by_producer():
        told = [sent for sent in sends if sent.offset is not None]
        for one, other in pairwise(told):
            if (one.offset or 0) >= (other.offset or 0):
                yield f"{one.mark!r} was sent before {other.mark!r}, and stands behind it"


def reordered_polls(history: History) -> Iterator[str]:
    """A reader that goes back within a log."""
    for polls in history.polls_by_reader():
        for one, other in pairwise(polls):
            if one.offset >= other.offset:
                place = _place(other.log, other.offset)
                yield f"{one.reader} was given {place} after {one.offset}"


def skipped_polls(history: History) -> Iterator[str]:
    """A reader that passes over what is there for good."""
    lasting: dict[Log, list[int]] = defaultdict(list)
    for polled in history.polls:
        if polled.reader == history.reads_all:
            lasting[polled.log].append(polled.offset)
    for polls in history.polls_by_reader():
        offsets = [polled.offset for polled in polls]
        low, high = min(offsets), max(offsets)
        missed = {at for at in lasting[polls[0].log] if low < at < high} - set(offsets)
        if missed:
            yield f"{polls[0].reader} passed over {_place(polls[0].log, min(missed))}"


CHECKS: Final[dict[str, Callable[[History], Iterator[str]]]] = {
    check.__name__.replace("_", " "): check
    for check in (
        lost_writes,
        lost_fates,
        torn_transactions,
        duplicates,
        aborted_reads,
        divergent_values,
        reordered_sends,
        reordered_polls,
        skipped_polls,
    )
}


def anomalies(history: History) -> list[Anomaly]:
    """Everything that must not be, in a history."""
    return [Anomaly(name, what) for name, check in CHECKS.items() for what in check(history)]


def _place(log: Log, offset: int | None) -> str:
    return f"{log.topic}-{log.partition}@{offset}"
