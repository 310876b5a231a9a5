"""ID queries and changes: the remembered ids of an address, and how to edit them by hand.

Each query follows its answer, and merges the answers of several loops.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, islice
from typing import NamedTuple

from ringfence_service.dedup.record import KnownId
from ringfence_service.queries.settings import EffectiveSetting


class IdCursor(NamedTuple):
    """Where a listing continues: on this partition, below this number.

    A listing with the oldest first continues at this number, up to the `end` that the ring had at
    its first page.
    """

    topic: str
    partition: int
    number: int
    end: int | None = None


class IdLocation(NamedTuple):
    """The position of an accepted record whose id is remembered, and how near its eviction is.

    The time is that of the id's last occurrence, from which a window counts.
    """

    topic: str
    partition: int
    offset: int
    time_ms: int
    slots_to_eviction: int


class IdAnswer(NamedTuple):
    """Whether an id is remembered, and the records that it was accepted from."""

    known: bool
    sightings: tuple[IdLocation, ...]
    settings: Mapping[str, EffectiveSetting] | None = None
    """The settings of the address; None if they are not known."""
    complete: bool = False
    """True when no deciding partition of the address belongs to another instance."""
    why: str | None = None
    """Why no record can have the id there, as a sentence; None if it is known or may be."""


class LookupAnswer(NamedTuple):
    """The locations of each id, or of one id at each address, in the order of the query.

    Empty where the id is unknown.
    """

    sightings: tuple[tuple[IdLocation, ...], ...]
    complete: bool = False


class RememberedId(NamedTuple):
    """A remembered id."""

    identifier: bytes
    sighting: IdLocation
    at: IdCursor
    """The cursor of a listing that begins with this id."""


class IdsAnswer(NamedTuple):
    """A page of ids; the last page has no cursor."""

    ids: tuple[RememberedId, ...]
    cursor: IdCursor | None
    complete: bool = False


class ChangeAnswer(NamedTuple):
    """How many ids were changed, on the partitions of this instance."""

    ids: int
    complete: bool = False


class ImportAnswer(NamedTuple):
    """How many of the ids belong to partitions of this instance, and how many of them are new."""

    ids: int
    new: int
    complete: bool = False


def sightings_in_order(sightings: Iterable[IdLocation]) -> tuple[IdLocation, ...]:
    """Return distinct locations sorted by partition, and within it the newest first."""
    return tuple(
        sorted(set(sightings), key=lambda s: (s.topic, s.partition, -s.time_ms, -s.offset))
    )


def _distinct(rows: Iterable[RememberedId]) -> Iterator[RememberedId]:
    last: tuple[str, int, int] | None = None
    for row in rows:
        if _oldest_first(row.at) != last:
            yield row
        last = _oldest_first(row.at)


def _oldest_first(at: IdCursor) -> tuple[str, int, int]:
    """Return the sort key by partition, and within it the oldest first."""
    return (at.topic, at.partition, at.number)


def _newest_first(at: IdCursor) -> tuple[str, int, int]:
    """Return the sort key by partition, and within it the newest first."""
    return (at.topic, at.partition, -at.number)


def ids_total(answers: Iterable[ChangeAnswer]) -> ChangeAnswer:
    """Return the number of changed ids of all answers."""
    return ChangeAnswer(sum(answer.ids for answer in answers))


class IdQuery(NamedTuple):
    """Asks whether an id is remembered at an address."""

    address: str
    identifier: bytes

    def merge(self, answers: Sequence[IdAnswer]) -> IdAnswer:
        """Merge the locations; the id is known if any answer knows it."""
        sightings = sightings_in_order(chain.from_iterable(answer.sightings for answer in answers))
        why = None if sightings else answers[0].why
        return answers[0]._replace(known=bool(sightings), sightings=sightings, why=why)


class IdsLookup(NamedTuple):
    """Asks which of many ids are remembered at an address."""

    address: str
    identifiers: tuple[bytes, ...]

    def merge(self, answers: Sequence[LookupAnswer]) -> LookupAnswer:
        """Merge the locations of each id."""
        return _lookups_merged(answers)


class IdSearch(NamedTuple):
    """Asks which of these addresses remember an id."""

    identifier: bytes
    addresses: tuple[str, ...]

    def merge(self, answers: Sequence[LookupAnswer]) -> LookupAnswer:
        """Merge the locations at each address."""
        return _lookups_merged(answers)


def _lookups_merged(answers: Sequence[LookupAnswer]) -> LookupAnswer:
    by_place = zip(*(answer.sightings for answer in answers), strict=True)
    return LookupAnswer(tuple(sightings_in_order(chain.from_iterable(each)) for each in by_place))


class IdsQuery(NamedTuple):
    """Asks for the ids that an address remembers, partition by partition, the newest first."""

    address: str
    cursor: IdCursor | None
    limit: int
    oldest_first: bool = False

    def merge(self, answers: Sequence[IdsAnswer]) -> IdsAnswer:
        """Merge the pages into one page in the same order."""
        order = _oldest_first if self.oldest_first else _newest_first
        in_order = merge(*(answer.ids for answer in answers), key=lambda row: order(row.at))
        rows = list(islice(_distinct(in_order), self.limit + 1))
        ends = [answer.cursor for answer in answers if answer.cursor is not None]
        ends += [row.at for row in rows[self.limit :]]
        return IdsAnswer(tuple(rows[: self.limit]), min(ends, key=order, default=None))


class ImportIds(NamedTuple):
    """Adds ids to an address, in this order, unless they are known already.

    They are treated as if they came from this partition of an input; without topic or partition,
    each id comes from its own.
    """

    address: str
    topic: str | None
    partition: int | None
    ids: tuple[KnownId, ...]
    dry_run: bool = False
    """Return the result without adding anything."""

    def merge(self, answers: Sequence[ImportAnswer]) -> ImportAnswer:
        """Sum the numbers of ids and new ids."""
        return ImportAnswer(
            sum(answer.ids for answer in answers), sum(answer.new for answer in answers)
        )


class ForgetId(NamedTuple):
    """Removes an id from an address, on every partition."""

    address: str
    identifier: bytes
    dry_run: bool = False

    def merge(self, answers: Sequence[ChangeAnswer]) -> ChangeAnswer:
        """Sum the number of changed ids."""
        return ids_total(answers)


class ClearAddress(NamedTuple):
    """Removes all ids from an address, on every partition."""

    address: str
    dry_run: bool = False

    def merge(self, answers: Sequence[ChangeAnswer]) -> ChangeAnswer:
        """Sum the number of changed ids."""
        return ids_total(answers)
