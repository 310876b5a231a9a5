"""Letter view: what the API sees of dead letters and redrives. All of it blocks."""

from typing import Protocol

from starlette.requests import Request

from api.roles import principal_of
from service.letter_values import (
    DeadLetterView,
    LetterCounts,
    LetterFilter,
    LetterPage,
    LetterPlace,
    Order,
    RedrivePreview,
    RedriveView,
)
from service.tokens import PAYLOAD_READ


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
