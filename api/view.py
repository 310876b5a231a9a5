"""The view: all that the API sees of the service, handed to it when it is made.

The API holds no state of its own: it reads the board, asks the inbox, and counts its requests.
"""

from collections.abc import Callable
from dataclasses import dataclass

from service.control import Inbox
from service.metrics import Metrics
from service.status import Info, StatusBoard


@dataclass(frozen=True, slots=True)
class ServiceView:
    """The service as the API sees it."""

    info: Callable[[], Info]
    board: StatusBoard
    inbox: Inbox
    metrics: Metrics
    allowed_hosts: frozenset[str] | None
    """Host names a request may name; None allows all. See `api.hosts.allowed_hosts`."""
    heartbeat_max_ms: int
    """A loop that is silent for longer is not alive."""
    ask_timeout_s: float
    """How long a request waits for the loop's answer."""
