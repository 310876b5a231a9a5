"""Partitions page: owners, progress, and the state of each worker process."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ringfence_api.console.client import ConsoleClient
from ringfence_api.console.render import page, shows_problems


def add(routes: APIRouter) -> None:
    """Add the route of the page."""

    @routes.get("/console/partitions")
    @shows_problems("partitions")
    async def partitions(request: Request) -> Response:
        """Show every partition, instance and worker."""
        api = ConsoleClient(request)
        found = (await api.get("/v1/partitions")).required()
        return await page(
            request,
            "partitions.html",
            section="partitions",
            found=found,
            partitions=[_shown(each) for each in found["partitions"]],
            has_standbys=any(each["standbys"] for each in found["partitions"]),
            instances=(await api.get("/v1/instances")).document.get("instances", ()),
            restores=by_owner(found["partitions"]),
            workers=await api.get("/v1/workers"),
            share_of=share_of,
        )


def _shown(partition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a partition with the figures of its row."""
    warm_copies = sum(each["warm"] for each in partition["standbys"])
    return {**partition, "restored": share_of(partition), "warm_copies": warm_copies}


def share_of(progress: Mapping[str, Any]) -> float | None:
    """Return the replayed share of the changelog of a partition or worker; None if unknown."""
    remaining = progress["restore_remaining_records"]
    if remaining is None:
        return None
    total = progress["restored_records"] + remaining
    return float(progress["restored_records"] / total) if total else 1.0


def by_owner(partitions: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the replayed share by instance, over the partitions that it is restoring."""
    sums: dict[str, list[int | None]] = {}
    for each in partitions:
        if each["phase"] != "running":
            done, left = sums.setdefault(each["instance"], [0, 0])
            remaining = each["restore_remaining_records"]
            sums[each["instance"]] = [
                (done or 0) + each["restored_records"],
                None if left is None or remaining is None else left + remaining,
            ]
    return {
        name: share_of({"restored_records": done, "restore_remaining_records": left})
        for name, (done, left) in sums.items()
    }
