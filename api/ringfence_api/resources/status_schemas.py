"""Response schemas of the status: what an instance does, and what became of the records."""

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from pydantic import Field

from ringfence_api.ports import StatusPort
from ringfence_api.schemas import Document
from ringfence_service.queries import status


class UncheckedRecords(Document):
    """Records that were accepted without a check whether they are duplicates."""

    records: int = Field(description="All of them.")
    share: float | None = Field(
        description="Their share of the records consumed; null before the first."
    )
    no_id: int = Field(
        description="Those without an id, or without what else the strategy of their address reads."
    )
    unreadable: int = Field(
        description="Those whose document cannot be decoded: not JSON, or of an unknown schema."
    )
    off: int = Field(description="Those of addresses that detect no duplicates.")

    @classmethod
    def of(cls, routes: Sequence[status.RouteCounts]) -> Self:
        """Build the document from the counts of some routes."""
        records, consumed = sum(each.unchecked for each in routes), sum(r.consumed for r in routes)
        return cls(
            records=records,
            share=records / consumed if consumed else None,
            no_id=sum(each.no_id for each in routes),
            unreadable=sum(each.unreadable for each in routes),
            off=sum(each.off for each in routes),
        )


class ComparedDuplicates(Document):
    """Samples of the duplicates, whose contents were compared with those of their originals."""

    records: int = Field(description="Duplicates that were compared.")
    different: int = Field(description="Of these, those with another content than their original.")
    not_compared: int = Field(
        description="Samples that could not be compared: the original is gone or cannot be read, "
        "or one of the two is too large."
    )

    @classmethod
    def of(cls, routes: Sequence[status.RouteCounts]) -> Self:
        """Build the document from the counts of some routes."""
        return cls(
            records=sum(each.compared for each in routes),
            different=sum(each.different for each in routes),
            not_compared=sum(each.not_compared for each in routes),
        )


class RouteFlow(Document):
    """What became of the records of a route since the instance started."""

    name: str = Field(description="The name of the route.")
    records_consumed: int = Field(description="Its records that were read from inputs.")
    unchecked: UncheckedRecords = Field(
        description="Of these, those accepted without a check whether they are duplicates."
    )
    stamped: int = Field(
        description="Of these, those without an id, which got one made of their position "
        "(`missing_id`)."
    )
    warning: str | None = Field(
        description="What is wrong and what to do if records have no id that can be read; null "
        "unless some have none."
    )
    is_checked: bool = Field(
        description="False if every record passed unchecked, so that nothing was deduplicated."
    )
    duplicates_compared: ComparedDuplicates = Field(
        description="Samples of its duplicates that were compared with their originals."
    )
    duplicates_warning: str | None = Field(
        description="What is wrong and what to do if duplicates differ from their originals; null "
        "unless some do."
    )

    @classmethod
    def of(cls, route: status.RouteCounts) -> Self:
        """Build the document from the counts of a route."""
        return cls(
            name=route.route,
            records_consumed=route.consumed,
            unchecked=UncheckedRecords.of([route]),
            stamped=route.stamped,
            warning=route.warning,
            is_checked=route.unchecked < route.consumed,
            duplicates_compared=ComparedDuplicates.of([route]),
            duplicates_warning=route.duplicates_warning,
        )


class _State(Document):
    """The current state of the service."""

    phase: status.ServicePhase = Field(description="Current phase of the service.")
    waiting_for: str | None = Field(
        description="What the service waits for, and what to do; null unless it waits."
    )
    instance: str = Field(description="The name of the instance.")
    group_id: str = Field(description="The consumer group of the service.")
    started_at: datetime = Field(description="When it started.")
    partitions_assigned: int = Field(description="Number of partitions that this instance owns.")
    partitions_restoring: int = Field(
        description="Number of owned partitions that are being restored."
    )
    partitions_blocked: int = Field(
        description="Number of owned partitions that wait for a topic or a schema; the others go "
        "on. `/v1/partitions` has what each waits for."
    )
    inputs_missing: tuple[str, ...] = Field(
        description="Inputs that routes name and that do not exist; the others are read."
    )


class Status(status.Counts, _State):
    """The current state of the service, and its counters since it started."""

    unchecked: UncheckedRecords = Field(
        description="Of the records accepted, those that passed without a check whether they are "
        "duplicates."
    )
    routes: tuple[RouteFlow, ...] = Field(
        description="The same for each route of which records were consumed, sorted by name."
    )
    duplicates_compared: ComparedDuplicates = Field(
        description="Samples of the duplicates that were compared with their originals."
    )
    heartbeat_age_ms: int = Field(description="Age of the last heartbeat of the loop, in ms.")
    config_revision: int = Field(
        description="Revision of the newest settings that are fully applied."
    )
    config_fault: str | None = Field(
        description="Why this instance cannot apply newer settings; null if it can."
    )

    @classmethod
    def of(cls, board: StatusPort) -> Self:
        """Build the document from the status board."""
        now = board.read()
        return cls(
            phase=now.phase,
            waiting_for=now.waiting_for,
            instance=now.instance,
            group_id=now.group_id,
            started_at=now.started_at,
            partitions_assigned=len(now.partitions),
            partitions_restoring=sum(each.phase != "running" for each in now.partitions),
            partitions_blocked=sum(each.waiting_for is not None for each in now.partitions),
            inputs_missing=now.inputs_missing,
            **vars(now.counts),
            unchecked=UncheckedRecords.of(now.routes),
            routes=tuple(map(RouteFlow.of, now.routes)),
            duplicates_compared=ComparedDuplicates.of(now.routes),
            heartbeat_age_ms=board.heartbeat_age_ms(),
            config_revision=now.config_revision,
            config_fault=now.config_fault,
        )
