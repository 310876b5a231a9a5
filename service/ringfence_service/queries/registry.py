"""Query registry: all queries and answers, how answers merge, and which queries change state.

A query is a class with a `merge`, which also says what type its answers have; it is listed here for
the protocols between processes and instances, and `processor.handlers` has a handler for it. The
merged answer of several loops equals that of one loop with all partitions: it has the same
order, by partition, and within a partition as its owner answers. A partition that moves between two
answers may be in both, and counts once.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar, cast

from ringfence_service.queries import addresses, ids, partitions, publishers, redrives, settings

Query = (
    addresses.AddressQuery
    | addresses.DirectoryQuery
    | addresses.AddressesQuery
    | ids.IdQuery
    | ids.IdsQuery
    | ids.IdsLookup
    | ids.IdSearch
    | ids.ImportIds
    | ids.ForgetId
    | ids.ClearAddress
    | publishers.PublisherQuery
    | publishers.PublishersQuery
    | publishers.SetSequence
    | partitions.SkipBatch
    | settings.EvictionQuery
    | redrives.DecideDeadLetters
    | redrives.CheckpointsQuery
    | redrives.DeleteCheckpoints
)

Answer = (
    addresses.AddressAnswer
    | addresses.DirectoryAnswer
    | addresses.AddressesAnswer
    | ids.IdAnswer
    | ids.LookupAnswer
    | ids.IdsAnswer
    | ids.ChangeAnswer
    | ids.ImportAnswer
    | publishers.PublisherAnswer
    | publishers.PublishersAnswer
    | partitions.SkippedBatch
    | settings.EvictionAnswer
    | redrives.CheckpointsAnswer
    | redrives.RedriveAnswer
)

A = TypeVar("A")


class QueryFor(Protocol[A]):
    """A query with answers of this type."""

    def merge(self, answers: Sequence[A]) -> A:
        """Return the answer of several loops; its `complete` is set by the caller."""
        ...


OF_ONE: Final = (
    ids.ImportIds,
    redrives.DecideDeadLetters,
    publishers.SetSequence,
    partitions.SkipBatch,
)
"""Changes that only one owner makes; all others refuse them."""
OF_ALL: Final = (ids.ForgetId, ids.ClearAddress, redrives.DeleteCheckpoints)
"""Changes that every owner makes on its own partitions; their counts are summed."""


def merged(query: Query, answers: Sequence[Answer], *, complete: bool) -> Answer:
    """Merge one or more answers; `complete`: they come from the owners of every partition."""
    answer = cast("QueryFor[Answer]", query).merge(answers)
    return answer._replace(complete=complete)
