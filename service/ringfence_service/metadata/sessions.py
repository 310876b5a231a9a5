"""Sessions: the user who may write under the name of a publisher, as the metadata topic stores it.

Opening a session gives its publisher an epoch; from then on a record of a smaller epoch, or of
none, is refused. AMPS disconnects the previous client of a name; a log cannot, so its records are
refused instead. A publisher that never opened a session, or has ended it, is not checked.
"""

from typing import Final, NamedTuple

from ringfence_service.metadata.record import MetadataRecord, read

_KIND: Final = "session"


class SessionRecord(NamedTuple):
    """The last session of a publisher. Its epoch is never used again, ended or not."""

    epoch: int
    user: str
    opened_at_ms: int
    is_open: bool = True


class SessionTable:
    """The last session of each publisher."""

    def __init__(self) -> None:
        self.by_publisher: dict[str, SessionRecord] = {}
        self.epochs: dict[str, int] = {}
        """The epoch of each publisher whose session is open."""

    def take(self, key: bytes | None, value: bytes | None) -> bool:
        """Apply one record; return whether it is a session record."""
        publisher, session = _publisher(key), _session(value)
        if publisher is None or session is None:
            return False
        self.by_publisher[publisher] = session
        if session.is_open:
            self.epochs[publisher] = session.epoch
        else:
            self.epochs.pop(publisher, None)
        return True


def record_of(publisher: str, session: SessionRecord) -> MetadataRecord:
    """Return a session as a record of the metadata topic."""
    return MetadataRecord.of([_KIND, publisher], session._asdict())


def _publisher(key: bytes | None) -> str | None:
    match read(key):
        case [kind, str(publisher)] if kind == _KIND:
            return publisher
        case _:
            return None


def _session(value: bytes | None) -> SessionRecord | None:
    payload = read(value)
    try:
        session = SessionRecord(*(payload[name] for name in SessionRecord._fields))  # type: ignore[index]  # else
    except (TypeError, KeyError):
        return None
    return session if [type(field) for field in session] == [int, str, int, bool] else None
