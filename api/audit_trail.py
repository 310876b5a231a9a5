"""The audit's trail: `/v1/audit`."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field
from starlette.concurrency import run_in_threadpool

from api.documents import errors
from api.paging import PageSize, PageToken, name_of, token_of
from api.problems import INVALID, NOT_POSSIBLE
from api.roles import EXTRA
from api.schemas import Document, ms_of, time_of
from api.view import AuditLog
from service.audit import AuditQuery, AuditRecord

_ADMIN = {EXTRA: "admin"}


class AuditEntry(Document):
    """Who changed what, when and why."""

    id: str
    time: datetime
    actor: str = Field(description="`anonymous` where nobody is asked who he is.")
    roles: tuple[str, ...]
    request_id: str
    source: str = Field(description="The address that the request came from.")
    method: str
    path: str
    query: str
    reason: str
    before: object = Field(description="What stood before; of a long one its beginning.")
    after: object = Field(description="What stands after.")
    status: int | None = Field(
        description="Of the reply. Null while it is made, and where the process ended meanwhile."
    )
    duration_ms: int | None

    @classmethod
    def of(cls, record: AuditRecord) -> "AuditEntry":
        """Describe a record."""
        told = record._asdict()
        return cls(time=time_of(told.pop("time_ms")), **told)


class AuditEntries(Document):
    """A page of the trail, the newest first."""

    records: tuple[AuditEntry, ...]
    next_page_token: str | None
    complete: bool = Field(description="False while what was written before is still being read.")


def router(log: AuditLog) -> APIRouter:
    """Return the route that reads the trail."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/audit", responses=errors(INVALID, NOT_POSSIBLE), openapi_extra=_ADMIN)
    async def audit(
        actor: Annotated[str | None, Query(max_length=300)] = None,
        since: Annotated[AwareDatetime | None, Query(description="Inclusive.")] = None,
        until: Annotated[AwareDatetime | None, Query(description="Exclusive.")] = None,
        resource: Annotated[
            str | None, Query(max_length=2_000, description="What the path begins with.")
        ] = None,
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> AuditEntries:
        """Return who changed what, when and why; the newest first."""
        query = AuditQuery(
            actor=actor,
            since_ms=None if since is None else ms_of(since),
            until_ms=None if until is None else ms_of(until),
            resource=resource,
        )
        page = await run_in_threadpool(log.page, query, page_size, name_of(page_token))
        return AuditEntries(
            records=tuple(map(AuditEntry.of, page.records)),
            next_page_token=None if page.before is None else token_of(page.before),
            complete=page.complete,
        )

    return routes
