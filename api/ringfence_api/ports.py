"""Ports: the interfaces through which the API reaches the service, passed in at creation.

The API has no state of its own: it reads the status board, sends queries to the inbox, and counts
its requests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from ringfence_api.auth.authenticate import Authenticator
from ringfence_api.principal import principal_of
from ringfence_service.config.tokens import PAYLOAD_READ
from ringfence_service.metadata.audit import AuditPage, AuditQuery, AuditRecord
from ringfence_service.metadata.sessions import SessionRecord
from ringfence_service.metadata.settings_change import SettingsEditor
from ringfence_service.peers.protocol import InstanceStatus, PeerQuery
from ringfence_service.peers.signing import PeerKey
from ringfence_service.queries.dead_letters import (
    Absence,
    DeadLetterCounts,
    DeadLetterFilter,
    DeadLetterPage,
    DeadLetterPosition,
    DeadLetterView,
    InputRecord,
    RedriveEstimate,
    RedriveRequest,
    RedriveView,
)
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.status import ServiceInfo, ServiceStatus, WorkerStatus


class DeadLetterPort(Protocol):
    """Reads dead letters and their originals; raises `Busy` when too many reads are running."""

    def page(
        self,
        criteria: DeadLetterFilter,
        cursor: object | None,
        limit: int,
        *,
        newest: bool,
        after: DeadLetterPosition | None = None,
    ) -> DeadLetterPage:
        """Return up to `limit` dead letters that match, starting at a cursor.

        With `after`, only those that follow this one in its partition, in the order of the page.
        """
        ...

    def one(self, position: DeadLetterPosition) -> DeadLetterView | Absence:
        """Return the dead letter at a position, or why there is none."""
        ...

    def record(self, position: DeadLetterPosition) -> InputRecord | Absence:
        """Return the record at a position of an input of the group, or why there is none."""
        ...

    def count(self, criteria: DeadLetterFilter, cursor: object | None) -> DeadLetterCounts:
        """Count the dead letters that match from a cursor on, within the limit of one request."""
        ...


class RedrivePort(Protocol):
    """Starts, lists and cancels redrives."""

    def order(self, order: RedriveRequest, key: str | None = None) -> RedriveView:
        """Start a redrive; for a known idempotency key of its actor, return the earlier redrive."""
        ...

    def preview(self, order: RedriveRequest) -> RedriveEstimate:
        """Estimate what a redrive would affect, without starting it."""
        ...

    def all(self, letter: DeadLetterView | None = None) -> tuple[RedriveView, ...]:
        """Return all known redrives, newest first; with a dead letter, only those that sent it."""
        ...

    def get(self, name: str) -> RedriveView | None:
        """Return the redrive with this id, or None."""
        ...

    def cancel(self, name: str) -> RedriveView | None:
        """Cancel a running redrive; one that has ended does not change. None if it is unknown."""
        ...


def may_read_payload(request: Request) -> bool:
    """Return whether the client may see keys, values and headers (role `payload:read`)."""
    return principal_of(request).may(PAYLOAD_READ)


class StatusPort(Protocol):
    """The latest status of one loop, or of all loops of the instance."""

    def read(self) -> ServiceStatus:
        """Return the latest status."""
        ...

    def has_run(self) -> bool:
        """Return whether every loop has joined the group since it started."""
        ...

    def heartbeat_age_ms(self) -> int:
        """Return the age of the oldest heartbeat among the loops."""
        ...


class MetricsPort(Protocol):
    """Counts requests, and exports all metrics."""

    def http_request(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count a completed request, and observe its duration."""
        ...

    def http_auth_failure(self, reason: str) -> None:
        """Count a request that failed authentication or authorization."""
        ...

    def http_connection_refused(self, reason: str) -> None:
        """Count a connection that the server closed because of a limit."""
        ...

    async def scrape(self, *, addresses: bool = True) -> bytes:
        """Return all metrics in Prometheus' text format.

        Without `addresses`, all addresses are merged under one label value.
        """
        ...


class SessionPort(Protocol):
    """Opens and ends publisher sessions. Both calls block."""

    def open(self, publisher: str, user: str) -> SessionRecord:
        """Open a session for a user. Raise NameInUse or Unavailable."""
        ...

    def end(self, publisher: str, user: str) -> None:
        """End the session of a user. Raise NameInUse or Unavailable."""
        ...


class GroupPort(Protocol):
    """All instances of the group."""

    async def instance_statuses(self, timeout_s: float) -> tuple[InstanceStatus, ...]:
        """Return the status of every instance, waiting at most `timeout_s` for each."""
        ...


class PeerPort(Protocol):
    """Answers queries of other instances."""

    key: PeerKey | None
    """The shared key that signs peer requests; None if they are not signed."""

    async def reply(self, query: PeerQuery, *, may_change: bool) -> bytes:
        """Answer a query; one that changes something is refused unless `may_change`."""
        ...


class AuditPort(Protocol):
    """The audit log: writes and reads records of changes."""

    def write(self, record: AuditRecord) -> None:
        """Write a record under its id; blocks. Raise Unavailable unless it is durable."""
        ...

    def page(self, query: AuditQuery, size: int, before: str | None) -> AuditPage:
        """Return up to `size` records with ids below `before`, newest first."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceView:
    """Everything that the API knows of the service."""

    info: Callable[[], ServiceInfo]
    board: StatusPort
    inbox: QueryService
    metrics: MetricsPort
    allowed_hosts: frozenset[str] | None
    """Host names accepted in addition to IP addresses; None accepts any. Built by
    `ringfence_api.hosts`."""
    heartbeat_max_ms: int
    """`/livez` fails when a heartbeat is older than this."""
    ask_timeout_s: float
    """How long a request waits for the answer of the loops."""
    registry: SessionPort | None = None
    """None if the program has no publisher sessions."""
    access: Authenticator | None = None
    """Authenticates requests; None permits everything to everyone."""
    audit: AuditPort | None = None
    """The audit log; None if nothing can be changed."""
    body_bytes_max: int = 16 * 1024 * 1024
    settings: SettingsEditor | None = None
    """None if settings cannot be changed over REST."""
    workers: Callable[[], tuple[WorkerStatus, ...]] = tuple
    """Returns the worker processes of the instance."""
    letters: DeadLetterPort | None = None
    """None if the program writes no dead letters."""
    redrives: RedrivePort | None = None
    fleet: GroupPort | None = None
    """None if there is only one instance."""
    peer_server: PeerPort | None = None
    """None if no other instance sends queries."""
    roll_timeout_s: float = 2.0
    """How long an instance may take to report its status."""
