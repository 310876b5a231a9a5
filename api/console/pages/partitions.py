"""Partitions page: owners, progress, and the state of each worker process."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.client import ConsoleClient
from api.console.render import page, shown


def add(routes: APIRouter) -> None:
    """Add the page."""

    @routes.get("/console/partitions")
    @shown("partitions")
    async def partitions(request: Request) -> Response:
        """Every partition and every process."""
        api = ConsoleClient(request)
        found = (await api.get("/v1/partitions")).needed()
        return await page(
            request,
            "partitions.html",
            section="partitions",
            found=found,
            partitions=[{**each, "restored": share_of(each)} for each in found["partitions"]],
            instances=(await api.get("/v1/instances")).document.get("instances", ()),
            restores=by_owner(found["partitions"]),
            workers=await api.get("/v1/workers"),
            share_of=share_of,
        )


def share_of(told: Mapping[str, Any]) -> float | None:
    """The share of its changelog that a partition or a process has replayed, where it is known."""
    remaining = told["restore_remaining_records"]
    if remaining is None:
        return None
    total = told["restored_records"] + remaining
    return float(told["restored_records"] / total) if total else 1.0


def by_owner(partitions: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The same of each instance, over the partitions that it restores."""
    sums: dict[str, list[int | None]] = {}
    for each in partitions:
        if each["phase"] != "running":
            done, left = sums.setdefault(each["instance"], [0, 0])
            more = each["restore_remaining_records"]
            sums[each["instance"]] = [
                (done or 0) + each["restored_records"],
                None if left is None or more is None else left + more,
            ]
    return {
        name: share_of({"restored_records": done, "restore_remaining_records": left})
        for name, (done, left) in sums.items()
    }
