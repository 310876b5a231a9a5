"""Query registry: every query with its answer, whether it makes a change, and how answers merge.

The merged answer of several loops equals that of one loop with all partitions: it has the same
order, by partition, and within a partition as its owner answers. A partition that moves between two
answers may be in both, and counts once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from service.queries import addresses, ids, publishers, redrives, settings

Query = (
    addresses.AddressQuery
    | addresses.DirectoryQuery
    | addresses.AddressesQuery
    | ids.IdQuery
    | ids.IdsQuery
    | ids.IdsLookup
    | ids.ImportIds
    | ids.ForgetId
    | ids.ClearAddress
    | publishers.PublisherQuery
    | publishers.PublishersQuery
    | publishers.SetSequence
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
    | settings.EvictionAnswer
    | redrives.CheckpointsAnswer
    | redrives.RedriveAnswer
)

OF_ONE: Final = (ids.ImportIds, redrives.DecideDeadLetters, publishers.SetSequence)
"""Changes that only one owner makes; all others refuse them."""
OF_ALL: Final = (ids.ForgetId, ids.ClearAddress, redrives.DeleteCheckpoints)
"""Changes that every owner makes on its own partitions; their counts are summed."""


def merged(query: Query, answers: Sequence[Answer], *, complete: bool) -> Answer:
    """Merge one or more answers; `complete`: they come from the owners of every partition."""
    found: Answer = _MERGES[type(query)](query, answers)
    return found._replace(complete=complete)


_MERGES: Final[Mapping[type[Query], Callable[[Any, Any], Answer]]] = {
    addresses.AddressQuery: addresses.merged_address,
    addresses.DirectoryQuery: addresses.merged_directory,
    addresses.AddressesQuery: addresses.merged_addresses,
    ids.IdQuery: ids.merged_id,
    ids.IdsLookup: ids.merged_lookup,
    ids.IdsQuery: ids.merged_ids,
    ids.ImportIds: ids.merged_import,
    ids.ForgetId: ids.merged_change,
    ids.ClearAddress: ids.merged_change,
    publishers.PublisherQuery: publishers.merged_publisher,
    publishers.PublishersQuery: publishers.merged_publishers,
    publishers.SetSequence: publishers.merged_publisher,
    settings.EvictionQuery: settings.merged_forgotten,
    redrives.DecideDeadLetters: redrives.merged_redrive,
    redrives.CheckpointsQuery: redrives.merged_marks,
    redrives.DeleteCheckpoints: ids.merged_change,
}
