"""`/v1/instances`: the instances of the group. Any instance reports all of them."""

from datetime import datetime
from typing import Self

from fastapi import APIRouter
from pydantic import Field

from ringfence_api.openapi import errors
from ringfence_api.ports import ServiceView
from ringfence_api.schemas import Document, time_of
from ringfence_service.peers.protocol import InstanceStatus
from ringfence_service.queries import status


class Instance(Document):
    """An instance and its status; a null value is unknown."""

    instance: str = Field(description="The name of the instance.")
    url: str | None = Field(description="The URL at which other instances reach its API.")
    own: bool = Field(description="Whether it is the instance that responds.")
    reachable: bool = Field(description="Whether it responds to other instances.")
    trouble: str | None = Field(description="Why it is not reachable; null if it is.")
    trouble_code: str | None = Field(
        description="The cause as a code: `unreachable`, `timeout`, `certificate`, `tls`, "
        "`broken`, `refused`, `not-signed`, `not-understood`, `other-instance`, `status`, "
        "`no-url`, `no-time`, `not-sent` or `unavailable`."
    )
    version: str = Field(description="Version of Ringfence.")
    started_at: datetime = Field(description="When it started.")
    phase: status.ServicePhase | None = Field(
        description="Current phase; null if it does not respond."
    )
    waiting_for: str | None = Field(
        description="What it waits for, and what to do; null unless it waits."
    )
    revision: int | None = Field(description="Revision of the settings that it has read.")
    partitions_owned: int | None = Field(
        description="Number of partitions that it owns; null if it does not respond."
    )
    partitions_restoring: int | None = Field(
        description="Number of these that are being restored; null if it does not respond."
    )
    lag_records: int | None = Field(
        description="Number of records not yet decided; null if it does not respond."
    )

    @classmethod
    def of(cls, instance_status: InstanceStatus) -> Self:
        """Build the document from the status of an instance."""
        announced, status_reply = instance_status.announced, instance_status.status_reply
        now = None if status_reply is None else status_reply.status
        owned = None if now is None else now.partitions
        return cls(
            instance=announced.name,
            url=announced.url or None,
            own=instance_status.is_own,
            reachable=status_reply is not None,
            trouble=None if instance_status.trouble is None else instance_status.trouble.sentence,
            trouble_code=None if instance_status.trouble is None else instance_status.trouble.code,
            version=announced.version,
            started_at=time_of(announced.started_at_ms),
            phase=None if now is None else now.phase,
            waiting_for=None if now is None else now.waiting_for,
            revision=None if status_reply is None else status_reply.revision,
            partitions_owned=None if owned is None else len(owned),
            partitions_restoring=(
                None if owned is None else sum(each.phase != "running" for each in owned)
            ),
            lag_records=None if owned is None else sum(each.lag_records or 0 for each in owned),
        )


class Instances(Document):
    """The instances of the group."""

    instances: tuple[Instance, ...] = Field(description="Sorted by name.")
    complete: bool = Field(
        description="True if all instances respond and every partition is owned."
    )


def router(view: ServiceView) -> APIRouter:
    """Build the router for `/v1/instances`."""
    routes = APIRouter(tags=["service"])
    fleet = view.fleet
    assert fleet is not None  # set in a program that has state

    @routes.get("/v1/instances", responses=errors())
    async def instances() -> Instances:
        """List the instances of the group and their status."""
        present = await fleet.instance_statuses(view.roll_timeout_s)
        return Instances(instances=tuple(map(Instance.of, present)), complete=is_complete(present))

    return routes


def is_complete(present: tuple[InstanceStatus, ...]) -> bool:
    """Return whether all instances respond and together own every partition."""
    statuses = [each.status_reply.status for each in present if each.status_reply is not None]
    owned = {each.source for now in statuses for each in now.partitions}
    total = max((now.partitions_total for now in statuses), default=0)
    return len(statuses) == len(present) and total > 0 and len(owned) >= total
