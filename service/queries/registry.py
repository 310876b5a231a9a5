"""Query registry: every query with its answer, whether it makes a change, and how answers merge.

Several loops together answer as one loop with all partitions would: everywhere in the same order,
by partition, and within a partition as its owner answers. A partition that moves between two
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
    | ids.IdsImport
    | ids.IdForgetting
    | ids.Clearing
    | publishers.PublisherQuery
    | publishers.PublishersQuery
    | publishers.NumberChange
    | settings.ForgottenQuery
    | redrives.LettersRedrive
    | redrives.MarksQuery
    | redrives.MarksRemoval
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
    | settings.ForgottenAnswer
    | redrives.MarksAnswer
    | redrives.RedriveAnswer
)

OF_ONE: Final = (ids.IdsImport, redrives.LettersRedrive, publishers.NumberChange)
"""Changes that one owner makes; all others refuse them."""
OF_ALL: Final = (ids.IdForgetting, ids.Clearing, redrives.MarksRemoval)
"""Changes that every owner makes on its own partitions; what they changed is summed."""


def merged(query: Query, answers: Sequence[Answer], *, complete: bool) -> Answer:
    """One answer of one or more; `complete` tells whether these own every partition together."""
    found: Answer = _MERGES[type(query)](query, answers)
    return found._replace(complete=complete)


_MERGES: Final[Mapping[type[Query], Callable[[Any, Any], Answer]]] = {
    addresses.AddressQuery: addresses.merged_address,
    addresses.DirectoryQuery: addresses.merged_directory,
    addresses.AddressesQuery: addresses.merged_addresses,
    ids.IdQuery: ids.merged_id,
    ids.IdsLookup: ids.merged_lookup,
    ids.IdsQuery: ids.merged_ids,
    ids.IdsImport: ids.merged_import,
    ids.IdForgetting: ids.merged_change,
    ids.Clearing: ids.merged_change,
    publishers.PublisherQuery: publishers.merged_publisher,
    publishers.PublishersQuery: publishers.merged_publishers,
    publishers.NumberChange: publishers.merged_publisher,
    settings.ForgottenQuery: settings.merged_forgotten,
    redrives.LettersRedrive: redrives.merged_redrive,
    redrives.MarksQuery: redrives.merged_marks,
    redrives.MarksRemoval: ids.merged_change,
}
