"""Ports: everything that the API sees of the service, given to it when it is created.

The API has no state of its own: it reads the board, asks the inbox, and counts its requests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from api.auth.authenticate import Authenticator
from api.principal import principal_of
from service.config.tokens import PAYLOAD_READ
from service.dedup.dead_letter import (
    DeadLetterCounts,
    DeadLetterFilter,
    DeadLetterPage,
    DeadLetterPosition,
    DeadLetterView,
    RedriveEstimate,
    RedriveRequest,
    RedriveView,
)
from service.metadata.audit import AuditPage, AuditQuery, AuditRecord
from service.metadata.sessions import SessionRecord
from service.metadata.settings_change import SettingsEditor
from service.peers.protocol import InstanceStatus, PeerQuery
from service.peers.signing import PeerKey
from service.queries.inbox import QueryService
from service.queries.status import ServiceInfo, ServiceStatus, WorkerStatus


class DeadLetterPort(Protocol):
    """Reads the dead-letter topics of the group; `Busy` where too many read already."""

    def page(
        self, wanted: DeadLetterFilter, place: object | None, limit: int, *, newest: bool
    ) -> DeadLetterPage:
        """Dead letters from a place on."""
        ...

    def one(self, place: DeadLetterPosition) -> DeadLetterView | None:
        """The dead letter at a place, if there is one."""
        ...

    def count(self, wanted: DeadLetterFilter, place: object | None) -> DeadLetterCounts:
        """Count from a place on, as far as one request goes."""
        ...


class RedrivePort(Protocol):
    """Orders redrives, and tells of them."""

    def order(self, order: RedriveRequest, key: str | None = None) -> RedriveView:
        """Begin one; under a key of its actor that is known, it is the one that was begun then."""
        ...

    def preview(self, order: RedriveRequest) -> RedriveEstimate:
        """What it would be about; nothing is begun."""
        ...

    def all(self) -> tuple[RedriveView, ...]:
        """The newest first."""
        ...

    def get(self, name: str) -> RedriveView | None:
        """The one of that id."""
        ...

    def cancel(self, name: str) -> RedriveView | None:
        """End one; of one that has ended nothing changes."""
        ...


def may_read_payload(request: Request) -> bool:
    """Whether who asks may see keys, values and headers."""
    return principal_of(request).may(PAYLOAD_READ)


class StatusPort(Protocol):
    """Where the latest status stands, of one loop or of all that the instance has."""

    def read(self) -> ServiceStatus:
        """Return it."""
        ...

    def has_run(self) -> bool:
        """Tell whether the group was ever joined, by every loop."""
        ...

    def heartbeat_age_ms(self) -> int:
        """Return the time since the last sign of life, of the loop that is silent longest."""
        ...


class MetricsPort(Protocol):
    """Counts the requests, and tells of everything."""

    def http_request(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count and time a request that was answered."""
        ...

    def http_auth_failure(self, reason: str) -> None:
        """Count a request that was refused for who makes it."""
        ...

    def http_connection_refused(self, reason: str) -> None:
        """Count a connection that was closed on its client."""
        ...

    async def scrape(self, *, addresses: bool = True) -> bytes:
        """Return all metrics in Prometheus' text format; without `addresses` all of them as one."""
        ...


class SessionPort(Protocol):
    """Opens and ends sessions of publishers; both block."""

    def open(self, publisher: str, user: str) -> SessionRecord:
        """Give a name to a user; NameInUse, or Unavailable."""
        ...

    def end(self, publisher: str, user: str) -> None:
        """Give a name back; NameInUse, or Unavailable."""
        ...


class GroupPort(Protocol):
    """All instances of the group."""

    async def instance_statuses(self, timeout_s: float) -> tuple[InstanceStatus, ...]:
        """Tell how each of them does."""
        ...


class PeerPort(Protocol):
    """Answers other instances."""

    key: PeerKey | None
    """What peers sign by; None where they do not."""

    async def reply(self, question: PeerQuery, *, may_change: bool) -> bytes:
        """Answer a question; what changes something is refused to who may not."""
        ...


class AuditPort(Protocol):
    """Where records of changes are written and read."""

    def write(self, record: AuditRecord) -> None:
        """Write one, under its id; blocks. Unavailable where it is not certain to stay."""
        ...

    def page(self, query: AuditQuery, size: int, before: str | None) -> AuditPage:
        """Records below an id, the newest first."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceView:
    """The service as the API sees it."""

    info: Callable[[], ServiceInfo]
    board: StatusPort
    inbox: QueryService
    metrics: MetricsPort
    allowed_hosts: frozenset[str] | None
    """Host names a request may name beside addresses; None allows all. See `api.hosts`."""
    heartbeat_max_ms: int
    """A loop that is silent for longer is not alive."""
    ask_timeout_s: float
    """How long a request waits for the loop's answer."""
    registry: SessionPort | None = None
    """None where no publishers are known."""
    access: Authenticator | None = None
    """Who is let in; None lets anybody do anything."""
    audit: AuditPort | None = None
    """Where changes are recorded; None where nothing can be changed."""
    body_bytes_max: int = 16 * 1024 * 1024
    settings: SettingsEditor | None = None
    """None where nothing is set over REST."""
    workers: Callable[[], tuple[WorkerStatus, ...]] = tuple
    """The processes of the instance."""
    letters: DeadLetterPort | None = None
    """None where nothing is rejected."""
    redrives: RedrivePort | None = None
    fleet: GroupPort | None = None
    """None where there is one instance only."""
    peer_server: PeerPort | None = None
    """None where no other instance asks."""
    roll_timeout_s: float = 2.0
    """How long an instance may take to tell how it does."""
