"""`/v1/info`, `/v1/status` and `/v1/partitions`: the service as a whole."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from api.openapi import errors
from api.ports import ServiceView
from api.resources.instances import is_complete
from api.schemas import Info, Partition, Partitions, Status
from service.peers.protocol import InstanceStatus

Scope = Annotated[
    Literal["group", "instance"], Query(description="Of all instances, or of this one alone.")
]


def router(view: ServiceView) -> APIRouter:
    """Return the routes that describe the service."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/info", responses=errors())
    async def info() -> Info:
        """Return versions and names."""
        return Info.model_validate(view.info())

    @routes.get("/v1/status", responses=errors())
    async def status() -> Status:
        """Return what the service does now, and its counts since it started."""
        return Status.of(view.board)

    @routes.get("/v1/partitions", responses=errors())
    async def partitions(scope: Scope = "group") -> Partitions:
        """Return the partitions with owners, offsets and lag: of all instances, or the own."""
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
    """Each once: one that moves may be told of by two, and by the one that has it more."""
    found: dict[tuple[str, int], Partition] = {}
    for instance_status in present:
        told = (
            ()
            if instance_status.status_reply is None
            else instance_status.status_reply.status.partitions
        )
        for each in told:
            place = (each.topic, each.partition)
            if place not in found or each.phase == "running":
                found[place] = Partition.of(instance_status.announced.name, each)
    return Partitions(
        instance=instance,
        partitions=tuple(found[place] for place in sorted(found)),
        complete=is_complete(present),
    )
