"""Messages: all that crosses the connection between the supervisor and one of its children.

Frozen values, pickled; the configuration goes this way too, so that no secret stands in arguments.
A deadline is of the monotonic clock, which all processes of a machine share.
"""

from pathlib import Path
from typing import NamedTuple

from service.config import Config
from service.control import NameInUse, NotPossible, Unavailable
from service.families import Family
from service.part import Part
from service.queries.table import Answer, Query
from service.status import Status


class Begin(NamedTuple):
    """The first message: who the child is, and all that it needs."""

    config: Config
    """With this child's share of the instance's memory."""
    part: Part
    folder: Path
    """Where the stores are; the supervisor holds it."""
    label: str | None
    """What its log lines name it; None where there is one child only."""
    addresses_max: int
    """How many addresses are labels of its metrics."""
    hang_limit_s: float
    fenced_s: float
    """When the child before was fenced last, by the monotonic clock; minus infinity if never."""
    goes_on: bool
    """Whether a child before had joined the group."""


class Ask(NamedTuple):
    """A question; after its deadline nobody waits for the answer."""

    number: int
    query: Query
    deadline_s: float


class Scrape(NamedTuple):
    """Asks for the metrics."""

    number: int


class Stop(NamedTuple):
    """Finish the batch at hand, leave the group, and end."""


class Report(NamedTuple):
    """How the child does; sent a few times a second."""

    status: Status
    has_run: bool
    silent_ms: int
    """Since the loop's last sign of life."""
    memory_bytes: int | None
    cluster_id: str | None
    fenced_s: float


class Answered(NamedTuple):
    """The answer to a question."""

    number: int
    answer: Answer


class Refused(NamedTuple):
    """Why there is no answer."""

    number: int
    reason: Unavailable | NotPossible | NameInUse


class Failed(NamedTuple):
    """The question met an error of ours; the child's log has it."""

    number: int
    error: str


class Scraped(NamedTuple):
    """The metrics; with number 0 the last ones of a child that ends."""

    number: int
    families: tuple[Family, ...]


class Ended(NamedTuple):
    """The child ends, as was to be foreseen: the code that it ends with, and why."""

    exit_code: int
    sentence: str


ToChild = Begin | Ask | Scrape | Stop
ToSupervisor = Report | Answered | Refused | Failed | Scraped | Ended
