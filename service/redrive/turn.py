"""Turn: which instance carries out the redrives: the one that owns the first deciding partition."""

from collections.abc import Collection

from service.config import Config
from service.part import Hop, hops_of
from service.route import resolve
from service.status import Status
from service.topics import by_address
from state.edit import Source


def first_deciding(config: Config, names: Collection[str]) -> Source | None:
    """The partition whose owner has the turn, the same for all who ask; None without inputs.

    The first of by-address, where anything is decided by address; else that of the first input.
    """
    group_id = config.service.group_id
    if Hop.ADDRESSES in hops_of(route.scope for route in config.routes):
        return Source(by_address(group_id), 0)
    inputs = resolve(config.routes, names, group_id)
    return Source(min(inputs), 0) if inputs else None


def owns(status: Status, place: Source | None) -> bool:
    """Whether an instance reads a partition."""
    return place is not None and any(
        (each.topic, each.partition) == place and each.phase == "running"
        for each in status.partitions
    )
