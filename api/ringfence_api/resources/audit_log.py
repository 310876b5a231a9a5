"""`/v1/audit`: the audit log."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field
from starlette.concurrency import run_in_threadpool

from ringfence_api.openapi import errors
from ringfence_api.parameters import PageSize, PageToken, name_of, token_of
from ringfence_api.ports import AuditPort
from ringfence_api.principal import EXTRA
from ringfence_api.problems import NOT_POSSIBLE
from ringfence_api.schemas import Document, ms_of, time_of
from ringfence_service.metadata.audit import AuditQuery, AuditRecord

_ADMIN = {EXTRA: "admin"}


class AuditEntry(Document):
    """A change: who made it, when, why, and what it changed."""

    id: str = Field(description="Id of the entry; ids sort by time.")
    time: datetime = Field(description="When the request was received.")
    actor: str = Field(description="The authenticated client; `anonymous` without authentication.")
    roles: tuple[str, ...] = Field(description="The roles that the actor had.")
    request_id: str = Field(description="The request id, as in `X-Request-Id`.")
    source: str = Field(description="The network address of the client.")
    method: str = Field(description="The HTTP method.")
    path: str = Field(description="The path of the request.")
    query: str = Field(description="The query of the request, without `reason`.")
    reason: str = Field(description="The reason given with the request.")
    before: object = Field(description="The value before the change; a long one is truncated.")
    after: object = Field(description="The value after the change; a long one is truncated.")
    status: int | None = Field(
        description="HTTP status of the response; null while the request runs, or after a crash."
    )
    duration_ms: int | None = Field(
        description="Duration of the request, in ms; null while it runs."
    )

    @classmethod
    def of(cls, record: AuditRecord) -> "AuditEntry":
        """Build the document from an audit record."""
        fields = record._asdict()
        return cls(time=time_of(fields.pop("time_ms")), **fields)


class AuditEntries(Document):
    """A page of the audit log, newest first."""

    records: tuple[AuditEntry, ...] = Field(description="The entries, newest first.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: bool = Field(description="False while older entries are still being read.")


def router(log: AuditPort) -> APIRouter:
    """Build the router for `/v1/audit`."""
    routes = APIRouter(tags=["service"])

    @routes.get("/v1/audit", responses=errors(NOT_POSSIBLE), openapi_extra=_ADMIN)
    async def audit(
        *,
        actor: Annotated[
            str | None, Query(max_length=300, description="Who made the change.")
        ] = None,
        since: Annotated[
            AwareDatetime | None, Query(description="Start of the time range, inclusive.")
        ] = None,
        until: Annotated[
            AwareDatetime | None, Query(description="End of the time range, exclusive.")
        ] = None,
        resource: Annotated[
            str | None, Query(max_length=2_000, description="Prefix of the path.")
        ] = None,
        changes: Annotated[bool, Query(description="Omit dry runs and refused requests.")] = False,
        page_size: PageSize = 100,
        page_token: PageToken = "",
    ) -> AuditEntries:
        """List the changes, newest first: who changed what, when and why."""
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
