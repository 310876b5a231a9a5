"""The service as a whole: `/v1/info`, `/v1/status`, `/v1/partitions`."""

from fastapi import APIRouter

from api.documents import errors
from api.schemas import Info, Partition, Partitions, Status
from api.view import ServiceView


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
    async def partitions() -> Partitions:
        """Return the input partitions that this instance owns, with offsets and lag."""
        now = view.board.read()
        return Partitions(
            instance=now.instance,
            partitions=tuple(Partition.model_validate(each) for each in now.partitions),
            complete=now.complete,
        )

    return routes
