"""Audit entry: who changed what, when and why, as a record of the metadata topic.

Its key is `["audit", id]`. An entry is written before its change, and again when the change is
over: an entry without an outcome means that the process ended in between. Ids are ordered by time.
No decision depends on these records, so they raise no revision. Long values before and after are
truncated; payloads and secrets are never stored.
"""

import hashlib
import json
import uuid
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, NamedTuple

from ringfence_service.metadata.record import MetadataRecord, read

_KIND: Final = "audit"
_KEY_START: Final = b'["audit",'
SIDE_CHARS_MAX: Final = 4_096
"""Most characters of JSON that are kept of a value before or after a change.

Each instance has all entries in memory, up to `audit_records_max`.
"""
TEXT_CHARS_MAX: Final = 1_000
"""Most characters of a text, and of the beginning of a value that is longer than `SIDE_CHARS_MAX`.

It bounds what a caller can write: path, query and reason are theirs.
"""


class AuditRecord(NamedTuple):
    """The audit entry of one change."""

    id: str
    time_ms: int
    actor: str
    roles: tuple[str, ...]
    request_id: str
    source: str
    method: str
    path: str
    query: str
    reason: str
    before: object = None
    after: object = None
    status: int | None = None
    """The HTTP status of the response; None until there is one."""
    duration_ms: int | None = None

    @property
    def is_dry_run(self) -> bool:
        """Whether the request was a dry run."""
        return "dry_run=true" in self.query.split("&")

    @property
    def is_refused(self) -> bool:
        """Whether the API refused the change, so that nothing was done; failures do not count."""
        return self.status is not None and 400 <= self.status < 500

    @property
    def document(self) -> dict[str, object]:
        """The fields by name as they are stored, long values truncated."""
        document = self._asdict()
        for name in ("path", "query", "reason", "source"):
            document[name] = cut(document[name])
        for name in ("before", "after"):
            document[name] = bounded(document[name])
        return document

    @property
    def record(self) -> MetadataRecord:
        """The entry as a record of the metadata topic."""
        document = self.document
        return MetadataRecord.of([_KIND, document.pop("id")], document)


class AuditQuery(NamedTuple):
    """A filter of audit entries."""

    actor: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    resource: str | None = None
    """A prefix of the path."""
    changes: bool = False
    """Only entries that changed something or may have: no dry runs, and no refused requests."""

    def fits(self, record: AuditRecord) -> bool:
        """Return whether an entry passes the filter."""
        return (
            (self.actor is None or record.actor == self.actor)
            and (self.since_ms is None or record.time_ms >= self.since_ms)
            and (self.until_ms is None or record.time_ms < self.until_ms)
            and (self.resource is None or record.path.startswith(self.resource))
            and not (self.changes and (record.is_dry_run or record.is_refused))
        )


class AuditPage(NamedTuple):
    """A page of audit entries, the newest first."""

    records: tuple[AuditRecord, ...]
    before: str | None
    """The id below which the next page begins; None on the last page."""
    complete: bool
    """Whether the topic was read to its end."""


def new_id(time_ms: int) -> str:
    """Return a unique id that sorts by time."""
    return f"{time_ms:013d}-{uuid.uuid4().hex[:12]}"


def is_audit(key: bytes | None) -> bool:
    """Return whether a record is an audit entry. Fast, since it is called for every record."""
    return key is not None and key.startswith(_KEY_START)


def removal(audit_id: str) -> MetadataRecord:
    """Return the record that deletes an entry."""
    return MetadataRecord.gone([_KIND, audit_id])


def record_of(key: bytes | None, value: bytes | None) -> AuditRecord | None:
    """Return the entry in a record of the metadata topic; None for other kinds or if malformed."""
    audit_id, document = id_of(key), read(value)
    if audit_id is None or not isinstance(document, dict):
        return None
    try:
        known = {name: document[name] for name in AuditRecord._fields if name in document}
        return AuditRecord(id=audit_id, **{**known, "roles": tuple(known["roles"])})
    except (TypeError, KeyError):
        return None


def id_of(key: bytes | None) -> str | None:
    """Return the entry's id from the key of its record; None for other kinds."""
    match read(key) if is_audit(key) else None:
        case [_, str(audit_id)]:
            return audit_id
        case _:
            return None


def bounded(side: object) -> object:
    """Return the value before or after a change; if it is long, its beginning and its digest."""
    text = _writable(json.dumps(side, separators=(",", ":"), ensure_ascii=False, default=str))
    if len(text) <= SIDE_CHARS_MAX:
        decoded: object = json.loads(text)
        return decoded
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"cut": text[:TEXT_CHARS_MAX], "chars": len(text), "sha256": digest}


def cut(text: str) -> str:
    """Return a text, truncated to `TEXT_CHARS_MAX` characters."""
    text = _writable(text)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


def _writable(text: str) -> str:
    """Replace lone surrogates by `?`: JSON can express them, but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


class AuditHistory:
    """The fold of all audit entries."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        """The entries by id, kept as JSON, since few are ever read."""
        self._ids: list[str] = []
        """In order of time."""

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the topic; other kinds are ignored."""
        audit_id = id_of(key)
        if audit_id is None:
            return
        if value is None:
            self._drop(audit_id)
            return
        if audit_id not in self._values:
            insort(self._ids, audit_id)
        self._values[audit_id] = value

    def oldest(self, count: int) -> list[str]:
        """Return the ids of the oldest entries."""
        return self._ids[:count]

    def page(self, query: AuditQuery, size: int, before: str | None) -> AuditPage:
        """Return up to `size` matching entries with ids below `before`, the newest first."""
        found: list[AuditRecord] = []
        for record in self._newest(before):
            if query.since_ms is not None and record.time_ms < query.since_ms:
                break
            if not query.fits(record):
                continue
            if len(found) == size:
                return AuditPage(tuple(found), found[-1].id, complete=True)
            found.append(record)
        return AuditPage(tuple(found), None, complete=True)

    def _newest(self, before: str | None) -> Iterator[AuditRecord]:
        end = len(self._ids) if before is None else bisect_left(self._ids, before)
        for audit_id in reversed(self._ids[:end]):
            key = MetadataRecord.of([_KIND, audit_id], None).key
            record = record_of(key, self._values[audit_id])
            if record is not None:
                yield record

    def _drop(self, audit_id: str) -> None:
        if self._values.pop(audit_id, None) is not None:
            del self._ids[bisect_left(self._ids, audit_id)]
