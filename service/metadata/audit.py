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

from service.metadata.record import MetadataRecord, read

_KIND: Final = "audit"
_KEY_START: Final = b'["audit",'
SIDE_CHARS_MAX: Final = 4_096
TEXT_CHARS_MAX: Final = 1_000


class AuditRecord(NamedTuple):
    """One change."""

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
    """Of the reply; None until there is one."""
    duration_ms: int | None = None

    @property
    def is_dry_run(self) -> bool:
        """Whether it asked what would change."""
        return "dry_run=true" in self.query.split("&")

    @property
    def is_refused(self) -> bool:
        """Whether nothing was done: what the API would not do, and not what broke off."""
        return self.status is not None and 400 <= self.status < 500

    @property
    def told(self) -> dict[str, object]:
        """As it is written, what is long cut down."""
        told = self._asdict()
        for name in ("path", "query", "reason", "source"):
            told[name] = cut(told[name])
        for name in ("before", "after"):
            told[name] = bounded(told[name])
        return told

    @property
    def written(self) -> MetadataRecord:
        """As the config topic holds it."""
        told = self.told
        return MetadataRecord.of([_KIND, told.pop("id")], told)


class AuditQuery(NamedTuple):
    """Which records are asked for."""

    actor: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    resource: str | None = None
    """What the path begins with."""
    changes: bool = False
    """Those alone that changed something or may have: no dry run, and nothing that was refused."""

    def fits(self, record: AuditRecord) -> bool:
        """Whether a record is among them."""
        return (
            (self.actor is None or record.actor == self.actor)
            and (self.since_ms is None or record.time_ms >= self.since_ms)
            and (self.until_ms is None or record.time_ms < self.until_ms)
            and (self.resource is None or record.path.startswith(self.resource))
            and not (self.changes and (record.is_dry_run or record.is_refused))
        )


class AuditPage(NamedTuple):
    """Some records, the newest first."""

    records: tuple[AuditRecord, ...]
    before: str | None
    """The id below which the next page begins."""
    complete: bool
    """Whether all that is written was read."""


def new_id(time_ms: int) -> str:
    """An id that no other record has, and that sorts by time."""
    return f"{time_ms:013d}-{uuid.uuid4().hex[:12]}"


def is_audit(key: bytes | None) -> bool:
    """Whether a record of the config topic is of the audit; asked of every record."""
    return key is not None and key.startswith(_KEY_START)


def removal(audit_id: str) -> MetadataRecord:
    """What takes a record away."""
    return MetadataRecord.gone([_KIND, audit_id])


def record_of(key: bytes | None, value: bytes | None) -> AuditRecord | None:
    """What a record of the config topic tells; None for one of another kind, or malformed."""
    audit_id, told = id_of(key), read(value)
    if audit_id is None or not isinstance(told, dict):
        return None
    try:
        known = {name: told[name] for name in AuditRecord._fields if name in told}
        return AuditRecord(id=audit_id, **{**known, "roles": tuple(known["roles"])})
    except (TypeError, KeyError):
        return None


def id_of(key: bytes | None) -> str | None:
    """The id under which a record of the audit is written."""
    match read(key) if is_audit(key) else None:
        case [_, str(audit_id)]:
            return audit_id
        case _:
            return None


def bounded(side: object) -> object:
    """What stood on one side of a change; where that is long, how it begins and its digest."""
    text = _writable(json.dumps(side, separators=(",", ":"), ensure_ascii=False, default=str))
    if len(text) <= SIDE_CHARS_MAX:
        told: object = json.loads(text)
        return told
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"cut": text[:TEXT_CHARS_MAX], "chars": len(text), "sha256": digest}


def cut(text: str) -> str:
    """A text, or how it begins."""
    text = _writable(text)
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


def _writable(text: str) -> str:
    """Half a character, which JSON can name and UTF-8 cannot hold, becomes `?`."""
    return text.encode("utf-8", "replace").decode()


class AuditHistory:
    """The fold of the audit's records."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._ids: list[str] = []
        """In the order of time; kept as JSON, since few are ever looked at."""

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """One record of the topic; other kinds are left alone."""
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
        """The ids of the oldest records."""
        return self._ids[:count]

    def page(self, query: AuditQuery, size: int, before: str | None) -> AuditPage:
        """Records below an id, the newest first."""
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
