"""Ports: everything that the API sees of the service, given to it when it is created.

The API has no state of its own: it reads the board, asks the inbox, and counts its requests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from api.auth.authenticate import Access
from api.principal import principal_of
from service.config.tokens import PAYLOAD_READ
from service.dedup.dead_letter import (
    DeadLetterView,
    LetterCounts,
    LetterFilter,
    LetterPage,
    LetterPlace,
    Order,
    RedrivePreview,
    RedriveView,
)
from service.metadata.audit import AuditPage, AuditQuery, AuditRecord
from service.metadata.sessions import Session
from service.metadata.settings_change import SettingsDesk
from service.peers.protocol import Attendance, Question
from service.peers.signing import PeerKey
from service.queries.inbox import Desk
from service.queries.status import Info, Status, WorkerStatus


class Letters(Protocol):
    """Reads the dead-letter topics of the group; `Busy` where too many read already."""

    def page(
        self, wanted: LetterFilter, place: object | None, limit: int, *, newest: bool
    ) -> LetterPage:
        """Dead letters from a place on."""
        ...

    def one(self, place: LetterPlace) -> DeadLetterView | None:
        """The dead letter at a place, if there is one."""
        ...

    def count(self, wanted: LetterFilter, place: object | None) -> LetterCounts:
        """Count from a place on, as far as one request goes."""
        ...


class Redrives(Protocol):
    """Orders redrives, and tells of them."""

    def order(self, order: Order, key: str | None = None) -> RedriveView:
        """Begin one; under a key of its actor that is known, it is the one that was begun then."""
        ...

    def preview(self, order: Order) -> RedrivePreview:
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


class Board(Protocol):
    """Where the latest status stands, of one loop or of all that the instance has."""

    def read(self) -> Status:
        """Return it."""
        ...

    def has_run(self) -> bool:
        """Tell whether the group was ever joined, by every loop."""
        ...

    def heartbeat_age_ms(self) -> int:
        """Return the time since the last sign of life, of the loop that is silent longest."""
        ...


class Metrics(Protocol):
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


class Registry(Protocol):
    """Opens and ends sessions of publishers; both block."""

    def open(self, publisher: str, user: str) -> Session:
        """Give a name to a user; NameInUse, or Unavailable."""
        ...

    def end(self, publisher: str, user: str) -> None:
        """Give a name back; NameInUse, or Unavailable."""
        ...


class Fleet(Protocol):
    """All instances of the group."""

    async def roll_call(self, timeout_s: float) -> tuple[Attendance, ...]:
        """Tell how each of them does."""
        ...


class Hearing(Protocol):
    """Answers other instances."""

    key: PeerKey | None
    """What peers sign by; None where they do not."""

    async def reply(self, question: Question, *, may_change: bool) -> bytes:
        """Answer a question; what changes something is refused to who may not."""
        ...


class AuditLog(Protocol):
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

    info: Callable[[], Info]
    board: Board
    inbox: Desk
    metrics: Metrics
    allowed_hosts: frozenset[str] | None
    """Host names a request may name beside addresses; None allows all. See `api.hosts`."""
    heartbeat_max_ms: int
    """A loop that is silent for longer is not alive."""
    ask_timeout_s: float
    """How long a request waits for the loop's answer."""
    registry: Registry | None = None
    """None where no publishers are known."""
    access: Access | None = None
    """Who is let in; None lets anybody do anything."""
    audit: AuditLog | None = None
    """Where changes are recorded; None where nothing can be changed."""
    body_bytes_max: int = 16 * 1024 * 1024
    settings: SettingsDesk | None = None
    """None where nothing is set over REST."""
    workers: Callable[[], tuple[WorkerStatus, ...]] = tuple
    """The processes of the instance."""
    letters: Letters | None = None
    """None where nothing is rejected."""
    redrives: Redrives | None = None
    fleet: Fleet | None = None
    """None where there is one instance only."""
    hearing: Hearing | None = None
    """None where no other instance asks."""
    roll_timeout_s: float = 2.0
    """How long an instance may take to tell how it does."""
