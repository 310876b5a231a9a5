"""ID queries and changes: what is remembered of an id, and how it is changed by hand."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from typing import NamedTuple

from service.dedup.record import KnownId
from service.queries.settings import EffectiveSetting


class IdCursor(NamedTuple):
    """Where a listing goes on: on this partition, below this number.

    Of one that begins with the oldest, from this number on and up to where the ring ended then.
    """

    topic: str
    partition: int
    number: int
    end: int | None = None


class IdQuery(NamedTuple):
    """Asks whether an id is remembered at an address."""

    address: str
    identifier: bytes


class IdsLookup(NamedTuple):
    """Asks of many ids at once whether they are remembered at an address."""

    address: str
    identifiers: tuple[bytes, ...]


class IdsQuery(NamedTuple):
    """Asks for the ids that an address remembers, partition by partition, the newest first."""

    address: str
    cursor: IdCursor | None
    limit: int
    oldest_first: bool = False


class ImportIds(NamedTuple):
    """Has an address know these ids, in this order, where they are not known yet.

    They are decided as if they came from this partition of an input: each from its own, where
    topic or partition are None.
    """

    address: str
    topic: str | None
    partition: int | None
    ids: tuple[KnownId, ...]
    dry_run: bool = False
    """Only to be told what would come of it."""


class ForgetId(NamedTuple):
    """Has an address forget an id, on every partition."""

    address: str
    identifier: bytes
    dry_run: bool = False


class ClearAddress(NamedTuple):
    """Has an address forget everything, on every partition."""

    address: str
    dry_run: bool = False


class IdLocation(NamedTuple):
    """An accepted message whose id is remembered: where it stood, and how long it stays.

    The time is that of the last sight, which a window counts from.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int
    slots_to_eviction: int


class IdAnswer(NamedTuple):
    """Whether an id is remembered, and since which messages."""

    known: bool
    sightings: tuple[IdLocation, ...]
    settings: Mapping[str, EffectiveSetting] | None = None
    """By which it is judged; None where nobody has told."""
    complete: bool = False
    """True when no deciding partition of the address belongs to another instance."""


class LookupAnswer(NamedTuple):
    """Where each of the ids was seen, in the order of the question; nowhere if not known."""

    sightings: tuple[tuple[IdLocation, ...], ...]
    complete: bool = False


class RememberedId(NamedTuple):
    """An id that is remembered."""

    identifier: bytes
    sighting: IdLocation
    at: IdCursor
    """Where a listing goes on that is to begin with it."""


class IdsAnswer(NamedTuple):
    """A page of ids; without a cursor it is the last."""

    ids: tuple[RememberedId, ...]
    cursor: IdCursor | None
    complete: bool = False


class ChangeAnswer(NamedTuple):
    """How many ids were changed, on the partitions of this instance."""

    ids: int
    complete: bool = False


class ImportAnswer(NamedTuple):
    """How many of the ids are decided on the partitions of this instance, and how many are new."""

    ids: int
    new: int
    complete: bool = False


def sightings_in_order(sightings: Iterable[IdLocation]) -> tuple[IdLocation, ...]:
    """Where an id was seen, each once; on one partition the newest first."""
    return tuple(
        sorted(set(sightings), key=lambda s: (s.topic, s.partition, -s.time_ms, -s.offset))
    )


def merged_id(_query: IdQuery, answers: Sequence[IdAnswer]) -> IdAnswer:
    """Known where anybody knows it."""
    sightings = sightings_in_order(chain.from_iterable(answer.sightings for answer in answers))
    return answers[0]._replace(known=bool(sightings), sightings=sightings)


def merged_lookup(_query: IdsLookup, answers: Sequence[LookupAnswer]) -> LookupAnswer:
    """Each id with all its sightings."""
    of_each = zip(*(answer.sightings for answer in answers), strict=True)
    return LookupAnswer(tuple(sightings_in_order(chain.from_iterable(each)) for each in of_each))


def merged_ids(query: IdsQuery, answers: Sequence[IdsAnswer]) -> IdsAnswer:
    """A page of what all pages hold, in their order."""
    order = _upwards if query.oldest_first else _downwards
    in_order = merge(*(answer.ids for answer in answers), key=lambda row: order(row.at))
    rows = list(islice(_once(in_order), query.limit + 1))
    ends = [answer.cursor for answer in answers if answer.cursor is not None]
    ends += [row.at for row in rows[query.limit :]]
    return IdsAnswer(tuple(rows[: query.limit]), min(ends, key=order, default=None))


def _once(rows: Iterable[RememberedId]) -> Iterator[RememberedId]:
    last: tuple[str, int, int] | None = None
    for row in rows:
        if _upwards(row.at) != last:
            yield row
        last = _upwards(row.at)


def _upwards(at: IdCursor) -> tuple[str, int, int]:
    """By partition, and there the oldest first."""
    return (at.topic, at.partition, at.number)


def _downwards(at: IdCursor) -> tuple[str, int, int]:
    """By partition, and there the newest first."""
    return (at.topic, at.partition, -at.number)


def merged_change(_query: object, answers: Sequence[ChangeAnswer]) -> ChangeAnswer:
    """The sum."""
    return ChangeAnswer(sum(answer.ids for answer in answers))


def merged_import(_query: ImportIds, answers: Sequence[ImportAnswer]) -> ImportAnswer:
    """The sums."""
    return ImportAnswer(
        sum(answer.ids for answer in answers), sum(answer.new for answer in answers)
    )
