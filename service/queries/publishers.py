"""Publisher queries: the positions of publishers, and a number to be set."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from service.queries.addresses import first_after


class PublisherQuery(NamedTuple):
    """Asks how far a publisher has come, on each address."""

    publisher: str


class PublishersQuery(NamedTuple):
    """Asks for the names of publishers, in their order: so many that come after a name."""

    after: str
    limit: int


class SetSequence(NamedTuple):
    """Has a publisher stand at a number of an address, whatever it did before.

    The partition need not be told where only one can be meant.
    """

    publisher: str
    address: str
    number: int
    stream: int | None = None
    topic: str | None = None
    partition: int | None = None
    missing: tuple[int, ...] = ()
    """Numbers before it that were never accepted, where the strategy is `audit`."""
    dry_run: bool = False


class PublisherProgress(NamedTuple):
    """How far a publisher has come on one address, and the partition that it writes."""

    address: str
    topic: str
    partition: int
    number: int
    stream: int | None


class PublisherAnswer(NamedTuple):
    """A publisher as this instance knows it; one that it does not know has no places."""

    publisher: str
    epoch: int | None
    """Of its session; None without one."""
    user: str | None
    places: tuple[PublisherProgress, ...]
    complete: bool = False
    """True when no deciding partition belongs to another instance."""


class PublishersAnswer(NamedTuple):
    """Names of publishers, in order."""

    publishers: tuple[str, ...]
    complete: bool = False


def places_in_order(places: Iterable[PublisherProgress]) -> tuple[PublisherProgress, ...]:
    """Where a publisher stands, each once."""
    by_place = {(place.topic, place.partition, place.address): place for place in places}
    return tuple(by_place[place] for place in sorted(by_place))


def merged_publisher(_query: object, answers: Sequence[PublisherAnswer]) -> PublisherAnswer:
    """All places, and the latest session that anybody knows."""
    # Who has read less of the config topic knows an earlier session, or none.
    latest = max(answers, key=lambda answer: answer.epoch or 0)
    places = chain.from_iterable(answer.places for answer in answers)
    return latest._replace(places=places_in_order(places))


def merged_publishers(
    query: PublishersQuery, answers: Sequence[PublishersAnswer]
) -> PublishersAnswer:
    """The first names of all."""
    names = chain.from_iterable(answer.publishers for answer in answers)
    return PublishersAnswer(tuple(first_after(names, query.after, query.limit)))
