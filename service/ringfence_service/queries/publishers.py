"""Publisher queries: the sequence numbers of publishers, and how to set one."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from ringfence_service.queries.addresses import first_after


class PublisherProgress(NamedTuple):
    """The last sequence number of a publisher on one address, and the partition it writes to."""

    address: str
    topic: str
    partition: int
    number: int
    stream: int | None


class PublisherAnswer(NamedTuple):
    """A publisher as this instance knows it; an unknown publisher has no `positions`."""

    publisher: str
    epoch: int | None
    """The epoch of its session; None without one."""
    user: str | None
    positions: tuple[PublisherProgress, ...]
    complete: bool = False
    """True when no deciding partition belongs to another instance."""


class PublishersAnswer(NamedTuple):
    """Names of publishers, in order."""

    publishers: tuple[str, ...]
    complete: bool = False


def positions_in_order(positions: Iterable[PublisherProgress]) -> tuple[PublisherProgress, ...]:
    """Return one entry for each partition and address, sorted by them."""
    by_key = {(each.topic, each.partition, each.address): each for each in positions}
    return tuple(by_key[key] for key in sorted(by_key))


def joined(answers: Sequence[PublisherAnswer]) -> PublisherAnswer:
    """Return the numbers of all answers, and the latest session."""
    # A worker that has read less of the metadata topic knows an earlier session, or none.
    latest = max(answers, key=lambda answer: answer.epoch or 0)
    positions = chain.from_iterable(answer.positions for answer in answers)
    return latest._replace(positions=positions_in_order(positions))


class PublisherQuery(NamedTuple):
    """Asks for the last sequence number of a publisher on each address."""

    publisher: str

    def merge(self, answers: Sequence[PublisherAnswer]) -> PublisherAnswer:
        """Merge the numbers, and return the latest session."""
        return joined(answers)


class PublishersQuery(NamedTuple):
    """Asks for up to `limit` names of publishers in order, after a name."""

    after: str
    limit: int

    def merge(self, answers: Sequence[PublishersAnswer]) -> PublishersAnswer:
        """Return the first names of all answers."""
        names = chain.from_iterable(answer.publishers for answer in answers)
        return PublishersAnswer(tuple(first_after(names, self.after, self.limit)))


class SetSequence(NamedTuple):
    """Sets the last sequence number of a publisher on an address.

    The partition may be omitted if only one is possible.
    """

    publisher: str
    address: str
    number: int
    stream: int | None = None
    topic: str | None = None
    partition: int | None = None
    missing: tuple[int, ...] = ()
    """Lower numbers that were never accepted; only for the strategy `audit`."""
    dry_run: bool = False

    def merge(self, answers: Sequence[PublisherAnswer]) -> PublisherAnswer:
        """Merge the numbers, and return the latest session."""
        return joined(answers)
