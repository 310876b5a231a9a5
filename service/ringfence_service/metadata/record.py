"""Metadata record: a key and a value of the metadata topic, both JSON."""

import json
from typing import NamedTuple


class MetadataRecord(NamedTuple):
    """A record of the metadata topic."""

    key: bytes
    value: bytes | None
    """None is a tombstone: it deletes the record of this key."""

    @classmethod
    def of(cls, key: object, value: object) -> "MetadataRecord":
        """Return a record of two values that JSON can represent."""
        return cls(_encode(key), _encode(value))

    @classmethod
    def gone(cls, key: object) -> "MetadataRecord":
        """Return the tombstone for a key."""
        return cls(_encode(key), None)


def read(text: bytes | None) -> object:
    """Return the decoded JSON; None if the text is not JSON."""
    try:
        decoded: object = json.loads(text or b"")
    except (ValueError, RecursionError):
        return None
    return decoded


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
