"""Settings change: the request for a change and its outcome, as values."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from service.config.load import Config
from service.metadata.settings import (
    Effective,
    Fault,
    Overlay,
    Revisions,
    fixed_faults,
    in_force,
    lay_over,
)
from service.queries.errors import NotPossible


class Standing(NamedTuple):
    """What is set at one moment."""

    file: Config
    documents: Revisions
    effective: Effective
    holding: Overlay
    """By which that holds: the newest, or where that cannot hold the newest that can."""

    @classmethod
    def of(cls, file: Config, documents: Revisions) -> "Standing":
        """By the newest document that can hold."""
        effective, revision = in_force(file, documents)
        document = documents.at(revision)
        overlay = None if document is None else document.overlay
        return cls(file, documents, effective, overlay or Overlay())

    @property
    def overlay(self) -> Overlay:
        """The newest; NotPossible where this version cannot read it."""
        newest = self.documents.newest
        if newest is None:
            return Overlay()
        if newest.overlay is None:
            sentence = (
                f"This version cannot read the settings of revision {newest.revision}; run the "
                "newer version that wrote them, or roll back to an earlier revision."
            )
            raise NotPossible(sentence)
        return newest.overlay

    @property
    def readable(self) -> Overlay:
        """The newest, or an empty one where this version cannot read it."""
        newest = self.documents.newest
        return Overlay() if newest is None or newest.overlay is None else newest.overlay

    @property
    def revision(self) -> int:
        """Of the newest document; 0 where there is none."""
        return self.documents.revision


class Edited(NamedTuple):
    """A change as it was made, or as it would be."""

    before: Standing
    overlay: Overlay
    effective: Effective
    revision: int


class SettingsRefused(Exception):  # noqa: N818 - it is the answer
    """What was to be set breaks the rules of the file."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(" ".join(str(fault.problem) for fault in faults))
        self.faults = tuple(faults)


Change = Callable[[Standing], Overlay]
"""Makes the new overlay; what it raises comes through."""


class SettingsDesk(Protocol):
    """What the API does with settings; all but `read` may block."""

    def read(self) -> Standing:
        """What is set; Unavailable while it is not known."""
        ...

    def try_out(self, change: Change) -> Edited:
        """What a change would make; SettingsRefused."""
        ...

    def edit(self, change: Change, *, actor: str, reason: str) -> Edited:
        """Make a change; SettingsRefused, or Unavailable."""
        ...

    def wait(self, edited: Edited, timeout_s: float) -> bool:
        """Whether every deciding partition has applied a change before the time is over."""
        ...


def checked(standing: Standing, overlay: Overlay) -> Effective:
    """What would hold; SettingsRefused where it breaks a rule."""
    effective, faults = lay_over(standing.file, overlay)
    faults += fixed_faults(standing.effective.config, effective.config)
    if faults:
        raise SettingsRefused(faults)
    return effective
