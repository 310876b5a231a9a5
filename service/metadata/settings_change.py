"""Settings change: the request for a change and its outcome, as values."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from service.config.load import Config
from service.metadata.settings import (
    EffectiveSettings,
    OverlayError,
    SettingsHistory,
    SettingsOverlay,
    fixed_faults,
    in_force,
    lay_over,
)
from service.queries.errors import NotPossible


class SettingsSnapshot(NamedTuple):
    """What is set at one moment."""

    file: Config
    documents: SettingsHistory
    effective: EffectiveSettings
    holding: SettingsOverlay
    """By which that holds: the newest, or where that cannot hold the newest that can."""

    @classmethod
    def of(cls, file: Config, documents: SettingsHistory) -> "SettingsSnapshot":
        """By the newest document that can hold."""
        effective, revision = in_force(file, documents)
        document = documents.at(revision)
        overlay = None if document is None else document.overlay
        return cls(file, documents, effective, overlay or SettingsOverlay())

    @property
    def overlay(self) -> SettingsOverlay:
        """The newest; NotPossible where this version cannot read it."""
        newest = self.documents.newest
        if newest is None:
            return SettingsOverlay()
        if newest.overlay is None:
            sentence = (
                f"This version cannot read the settings of revision {newest.revision}; run the "
                "newer version that wrote them, or roll back to an earlier revision."
            )
            raise NotPossible(sentence)
        return newest.overlay

    @property
    def readable(self) -> SettingsOverlay:
        """The newest, or an empty one where this version cannot read it."""
        newest = self.documents.newest
        return SettingsOverlay() if newest is None or newest.overlay is None else newest.overlay

    @property
    def revision(self) -> int:
        """Of the newest document; 0 where there is none."""
        return self.documents.revision


class SettingsChange(NamedTuple):
    """A change as it was made, or as it would be."""

    before: SettingsSnapshot
    overlay: SettingsOverlay
    effective: EffectiveSettings
    revision: int


class InvalidSettingsError(Exception):
    """What was to be set breaks the rules of the file."""

    def __init__(self, faults: list[OverlayError]) -> None:
        super().__init__(" ".join(str(fault.problem) for fault in faults))
        self.faults = tuple(faults)


Change = Callable[[SettingsSnapshot], SettingsOverlay]
"""Makes the new overlay; what it raises comes through."""


class SettingsEditor(Protocol):
    """What the API does with settings; all but `read` may block."""

    def read(self) -> SettingsSnapshot:
        """What is set; Unavailable while it is not known."""
        ...

    def try_out(self, change: Change) -> SettingsChange:
        """What a change would make; InvalidSettingsError."""
        ...

    def edit(self, change: Change, *, actor: str, reason: str) -> SettingsChange:
        """Make a change; InvalidSettingsError, or Unavailable."""
        ...

    def wait(self, edited: SettingsChange, timeout_s: float) -> bool:
        """Whether every deciding partition has applied a change before the time is over."""
        ...


def checked(standing: SettingsSnapshot, overlay: SettingsOverlay) -> EffectiveSettings:
    """What would hold; InvalidSettingsError where it breaks a rule."""
    effective, faults = lay_over(standing.file, overlay)
    faults += fixed_faults(standing.effective.config, effective.config)
    if faults:
        raise InvalidSettingsError(faults)
    return effective
