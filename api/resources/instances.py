"""`/v1/instances`: the instances of the group. Any instance answers for all."""

from datetime import datetime
from typing import Self

from fastapi import APIRouter
from pydantic import Field

from api.openapi import errors
from api.ports import ServiceView
from api.schemas import Document, time_of
from service.peers.protocol import InstanceStatus
from service.queries import status


class Instance(Document):
    """An instance, and how it does; what is null is not known."""

    instance: str = Field(description="The name of the instance.")
    url: str | None = Field(description="Where other instances reach its API.")
    own: bool = Field(description="Whether it is the one that answers.")
    reachable: bool = Field(description="Whether it answers.")
    trouble: str | None = Field(description="Why it is not reachable.")
    trouble_code: str | None = Field(
        description="The kind of it: `unreachable`, `timeout`, `certificate`, `tls`, `broken`, "
        "`refused`, `not-signed`, `not-understood`, `other-instance`, `status`, `no-url`, "
        "`no-time`, `not-sent` or `unavailable`."
    )
    version: str = Field(description="Of Ringfence.")
    started_at: datetime = Field(description="When it started.")
    phase: status.ServicePhase | None = Field(
        description="What it does now; null where it does not answer."
    )
    waiting_for: str | None = Field(description="For what, where, and what to do.")
    revision: int | None = Field(description="Of the settings, as far as it has read them.")
    partitions_owned: int | None = Field(
        description="How many partitions it owns; null where it does not answer."
    )
    partitions_restoring: int | None = Field(
        description="How many of these are restored; null where it does not answer."
    )
    lag_records: int | None = Field(
        description="Records that are not decided yet; null where it does not answer."
    )

    @classmethod
    def of(cls, instance_status: InstanceStatus) -> Self:
        """Describe an instance."""
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

    instances: tuple[Instance, ...] = Field(description="By name.")
    complete: bool = Field(description="True when all of them answer and every partition is owned.")


def router(view: ServiceView) -> APIRouter:
    """Return the route that lists the instances."""
    routes = APIRouter(tags=["service"])
    fleet = view.fleet
    assert fleet is not None  # who decides is one of a fleet

    @routes.get("/v1/instances", responses=errors())
    async def instances() -> Instances:
        """Return every instance of the group, and how it does."""
        present = await fleet.instance_statuses(view.roll_timeout_s)
        return Instances(instances=tuple(map(Instance.of, present)), complete=is_complete(present))

    return routes


def is_complete(present: tuple[InstanceStatus, ...]) -> bool:
    """Whether these own every partition together, as far as they answer."""
    rolls = [each.status_reply.status for each in present if each.status_reply is not None]
    owned = {(each.topic, each.partition) for now in rolls for each in now.partitions}
    total = max((now.partitions_total for now in rolls), default=0)
    return len(rolls) == len(present) and total > 0 and len(owned) >= total
