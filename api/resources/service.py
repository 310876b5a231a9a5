"""`/v1/info`, `/v1/status` and `/v1/partitions`: the service as a whole."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from api.openapi import errors
from api.ports import ServiceView
from api.resources.instances import is_complete
from api.schemas import Info, Partition, Partitions, Status
from service.peers.protocol import InstanceStatus

Scope = Annotated[
    Literal["group", "instance"], Query(description="All instances, or only this one.")
]


def router(view: ServiceView) -> APIRouter:
    """Build the router for the service as a whole."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/info", responses=errors())
    async def info() -> Info:
        """Return versions and names."""
        return Info.model_validate(view.info())

    @routes.get("/v1/status", responses=errors())
    async def status() -> Status:
        """Return the current state of the service, and its counters since it started."""
        return Status.of(view.board)

    @routes.get("/v1/partitions", responses=errors())
    async def partitions(scope: Scope = "group") -> Partitions:
        """List the partitions with their owners, offsets and lag."""
        now = view.board.read()
        if view.fleet is not None and scope == "group":
            return _of_all(now.instance, await view.fleet.instance_statuses(view.roll_timeout_s))
        return Partitions(
            instance=now.instance,
            partitions=tuple(Partition.of(now.instance, each) for each in now.partitions),
            complete=now.complete,
        )

    return routes


def _of_all(instance: str, present: tuple[InstanceStatus, ...]) -> Partitions:
    """Merge the partitions of all instances.

    Two instances may report a partition while it moves; the one that runs it takes precedence.
    """
    found: dict[tuple[str, int], Partition] = {}
    for instance_status in present:
        reported = (
            ()
            if instance_status.status_reply is None
            else instance_status.status_reply.status.partitions
        )
        for each in reported:
            key = (each.topic, each.partition)
            if key not in found or each.phase == "running":
                found[key] = Partition.of(instance_status.announced.name, each)
    return Partitions(
        instance=instance,
        partitions=tuple(found[key] for key in sorted(found)),
        complete=is_complete(present),
    )
