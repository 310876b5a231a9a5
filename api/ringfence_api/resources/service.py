"""`/v1/info`, `/v1/status` and `/v1/partitions…`: the service as a whole."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from ringfence_api.audit_context import WithDryRun
from ringfence_api.openapi import errors
from ringfence_api.ports import ServiceView
from ringfence_api.problems import NOT_POSSIBLE, UNAVAILABLE
from ringfence_api.resources.instances import is_complete
from ringfence_api.resources.status_schemas import Status
from ringfence_api.schemas import Document, Given, Info, Partition, Partitions, StandbyDocument
from ringfence_service.peers.protocol import InstanceStatus
from ringfence_service.queries.partitions import SkipBatch
from ringfence_state.model import PartitionId

Scope = Annotated[
    Literal["group", "instance"], Query(description="All instances, or only this one.")
]


class BatchToSkip(Given):
    """The batch that a partition is to go on behind."""

    offset: int = Field(
        ge=0,
        lt=2**63,
        description="The first offset to skip, as in `waiting_for` of the partition.",
    )


class SkippedOffsets(Document):
    """The offsets that a partition goes on without."""

    topic: str = Field(description="The topic.")
    partition: int = Field(description="The number of the partition.")
    first_offset: int = Field(description="The first offset that is skipped.")
    last_offset: int = Field(description="The last one; the partition goes on behind it.")
    log_bytes: int | None = Field(description="Size of the batch in the log; null if unknown.")


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
        return await known_partitions(view, scope)

    @routes.post(
        "/v1/partitions/{topic}/{partition}:skip", responses=errors(NOT_POSSIBLE, UNAVAILABLE)
    )
    async def skip_batch(
        topic: Annotated[str, Path(max_length=249, description="The topic.")],
        partition: Annotated[int, Path(ge=0, lt=2**31, description="The number of the partition.")],
        batch: BatchToSkip,
        requested: WithDryRun,
    ) -> SkippedOffsets:
        """Go on behind a batch that cannot be unpacked, with one dead letter for its offsets.

        Only for a partition that such a batch blocks; its records are neither read nor decided.
        """
        change = SkipBatch(topic, partition, batch.offset, requested.dry_run)
        skipped = SkippedOffsets.model_validate(await view.inbox.ask(change, view.ask_timeout_s))
        requested.changed(
            before={"next_offset": skipped.first_offset},
            after={"next_offset": skipped.last_offset + 1},
        )
        return skipped

    return routes


async def known_partitions(view: ServiceView, scope: Scope = "group") -> Partitions:
    """Return the partitions of all instances, or of this one."""
    now = view.board.read()
    if view.fleet is not None and scope == "group":
        return _of_all(now.instance, await view.fleet.instance_statuses(view.roll_timeout_s))
    return Partitions(
        instance=now.instance,
        partitions=tuple(Partition.of(now.instance, each) for each in now.partitions),
        complete=now.complete,
    )


def _of_all(instance: str, present: tuple[InstanceStatus, ...]) -> Partitions:
    """Merge the partitions of all instances.

    Two instances may report a partition while it moves; the one that runs it takes precedence.
    """
    reported = {
        each.announced.name: each.status_reply.status
        for each in present
        if each.status_reply is not None
    }
    copies: dict[PartitionId, list[StandbyDocument]] = {}
    for name, status in reported.items():
        for copy in status.standbys:
            document = StandbyDocument(instance=name, warm=copy.warm, lag_records=copy.lag_records)
            copies.setdefault(copy.source, []).append(document)
    found: dict[PartitionId, Partition] = {}
    for name, status in reported.items():
        for each in status.partitions:
            if each.source not in found or each.phase == "running":
                standbys = tuple(copies.get(each.source, ()))
                found[each.source] = Partition.of(name, each, standbys)
    return Partitions(
        instance=instance,
        partitions=tuple(found[key] for key in sorted(found)),
        complete=is_complete(present),
    )
