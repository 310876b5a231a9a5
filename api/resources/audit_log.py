"""`/v1/audit`: the audit entries."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field
from starlette.concurrency import run_in_threadpool

from api.openapi import errors
from api.parameters import PageSize, PageToken, name_of, token_of
from api.ports import AuditPort
from api.principal import EXTRA
from api.problems import NOT_POSSIBLE
from api.schemas import Document, ms_of, time_of
from service.metadata.audit import AuditQuery, AuditRecord

_ADMIN = {EXTRA: "admin"}


class AuditEntry(Document):
    """Who changed what, when and why."""

    id: str = Field(description="Of the record; ids sort by time.")
    time: datetime = Field(description="When the request came.")
    actor: str = Field(description="`anonymous` where nobody is asked who he is.")
    roles: tuple[str, ...] = Field(description="The roles that the actor had.")
    request_id: str = Field(description="As in `X-Request-Id`.")
    source: str = Field(description="The address that the request came from.")
    method: str = Field(description="The HTTP method.")
    path: str = Field(description="The path of the request.")
    query: str = Field(description="The query of the request, without `reason`.")
    reason: str = Field(description="Why, as it was given.")
    before: object = Field(description="What stood before; of a long one its beginning.")
    after: object = Field(description="What stands after.")
    status: int | None = Field(
        description="Of the reply. Null while it is made, and where the process ended meanwhile."
    )
    duration_ms: int | None = Field(
        description="How long the request took, in ms; null while it is made."
    )

    @classmethod
    def of(cls, record: AuditRecord) -> "AuditEntry":
        """Describe a record."""
        told = record._asdict()
        return cls(time=time_of(told.pop("time_ms")), **told)


class AuditEntries(Document):
    """A page of the trail, the newest first."""

    records: tuple[AuditEntry, ...] = Field(description="The records, the newest first.")
    next_page_token: str | None = Field(
        description="Give it as `page_token` for the next page; null at the end."
    )
    complete: bool = Field(description="False while what was written before is still being read.")


def router(log: AuditPort) -> APIRouter:
    """Return the route that reads the trail."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/audit", responses=errors(NOT_POSSIBLE), openapi_extra=_ADMIN)
    async def audit(
        *,
        actor: Annotated[
            str | None, Query(max_length=300, description="Who made the change.")
        ] = None,
        since: Annotated[AwareDatetime | None, Query(description="Inclusive.")] = None,
        until: Annotated[AwareDatetime | None, Query(description="Exclusive.")] = None,
        resource: Annotated[
            str | None, Query(max_length=2_000, description="What the path begins with.")
        ] = None,
        changes: Annotated[
            bool, Query(description="Leave out dry runs and what was refused.")
        ] = False,
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> AuditEntries:
        """Return who changed what, when and why; the newest first."""
        query = AuditQuery(
            actor=actor,
            since_ms=None if since is None else ms_of(since),
            until_ms=None if until is None else ms_of(until),
            resource=resource,
            changes=changes,
        )
        page = await run_in_threadpool(log.page, query, page_size, name_of(page_token))
        return AuditEntries(
            records=tuple(map(AuditEntry.of, page.records)),
            next_page_token=None if page.before is None else token_of(page.before),
            complete=page.complete,
        )

    return routes
