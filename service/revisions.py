"""Revisions: the settings documents that were written, the newest last: history, and a way back.

One record of the config topic each, under a key of its own, so that compaction keeps them. Clients
name a document by its revision: the offset after its record, as for everything in that topic.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from service.config import Config
from service.config_record import ConfigRecord, read
from service.overlay import Effective, Overlay, lay_over, overlay_of

KIND: Final = "settings"
FORMAT: Final = 1
KEPT_MAX: Final = 100


class Document(NamedTuple):
    """One settings document, and who wrote it why."""

    number: int
    """Which one of them it is, counted from 1."""
    revision: int
    overlay: Overlay | None
    """None where this version cannot read it."""
    source: str
    actor: str
    reason: str
    time_ms: int


FILE: Final = Document(0, 0, Overlay(), "file", "", "", 0)
"""Revision 0: nothing is set, and the file holds alone."""


class Revisions:
    """Those that are kept, by number."""

    def __init__(self) -> None:
        self._by_number: dict[int, Document] = {}

    def take(self, key: bytes | None, value: bytes | None, revision: int) -> bool:
        """One record; tells whether it is a settings document."""
        number = _number(key)
        if number is None:
            return False
        if value is None:
            self._by_number.pop(number, None)
            return False
        self._by_number[number] = _document(number, value, revision)
        return True

    @property
    def newest(self) -> Document | None:
        """The one to go by; None before the first."""
        return self._by_number[max(self._by_number)] if self._by_number else None

    @property
    def revision(self) -> int:
        """Of the newest; 0 before the first."""
        return self.newest.revision if self.newest else 0

    def at(self, revision: int) -> Document | None:
        """The one with this revision; None where it is not kept."""
        return next((each for each in self if each.revision == revision), None)

    def before(self, document: Document) -> Document | None:
        """The one that it followed; None where none is kept."""
        return self._by_number.get(document.number - 1)

    def overlay_at(self, revision: int) -> Overlay | None:
        """What was set by then; None where nobody knows any more."""
        if not revision:
            return Overlay() if 1 in self._by_number or not self._by_number else None
        found = self.at(revision)
        return None if found is None else found.overlay

    def copy(self) -> "Revisions":
        """As they are now, for another thread."""
        copied = Revisions()
        copied._by_number = dict(self._by_number)
        return copied

    def __iter__(self) -> Iterator[Document]:
        """The newest first."""
        return iter([self._by_number[number] for number in sorted(self._by_number, reverse=True)])

    def records(
        self, overlay: Overlay, *, actor: str, reason: str, time_ms: int
    ) -> list[ConfigRecord]:
        """What to write for one more: the eldest goes, and the document comes last."""
        number = self.newest.number + 1 if self.newest else 1
        told = {
            "format": FORMAT,
            **overlay._asdict(),
            "source": "rest",
            "actor": actor,
            "reason": reason,
            "time_ms": time_ms,
        }
        old = [each for each in sorted(self._by_number) if each <= number - KEPT_MAX]
        gone = [ConfigRecord.gone([KIND, each]) for each in old]
        return [*gone, ConfigRecord.of([KIND, number], told)]


def tried(file: Config, document: Document) -> tuple[Effective, str | None]:
    """What holds with a document, and why it cannot."""
    if document.overlay is None:
        sentence = "this version cannot read them; run the newer version that wrote them"
        return Effective(file, frozenset()), sentence
    effective, faults = lay_over(file, document.overlay)
    return effective, " ".join(str(fault.problem) for fault in faults) or None


def in_force(file: Config, documents: Iterable[Document]) -> tuple[Effective, int]:
    """What holds by the newest document that can, and its revision; 0 for the file alone.

    A file that manages itself holds whatever else was set.
    """
    if is_alone(file):
        documents = ()
    for document in documents:
        effective, fault = tried(file, document)
        if fault is None:
            return effective, document.revision
    return Effective(file, frozenset()), 0


def is_alone(file: Config) -> bool:
    """Whether nothing is laid over the file."""
    return file.service.managed_by == "file"


def _number(key: bytes | None) -> int | None:
    match read(key):
        case [kind, int(number)] if kind == KIND:
            return number
        case _:
            return None


def _document(number: int, value: bytes, revision: int) -> Document:
    told = read(value)
    held = told if isinstance(told, dict) else {}
    overlay = overlay_of(held) if held.get("format") == FORMAT else None
    source, actor, reason = (str(held.get(name, "")) for name in ("source", "actor", "reason"))
    told_ms = held.get("time_ms")
    time_ms = told_ms if isinstance(told_ms, int) else 0
    return Document(number, revision, overlay, source, actor, reason, time_ms)
