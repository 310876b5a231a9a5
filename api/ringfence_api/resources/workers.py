"""`/v1/workers`: the worker processes of the instance."""

from fastapi import APIRouter

from ringfence_api.openapi import errors
from ringfence_api.ports import ServiceView
from ringfence_api.schemas import Worker, Workers


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/workers`."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/workers", responses=errors())
    async def workers() -> Workers:
        """List the worker processes of this instance and their status."""
        found = tuple(Worker.model_validate(each) for each in view.workers())
        return Workers(instance=view.board.read().instance, workers=found)

    return routes
