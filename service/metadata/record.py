"""Metadata record: a key and a value of the metadata topic, both JSON."""

import json
from typing import NamedTuple


class MetadataRecord(NamedTuple):
    """A record of the config topic."""

    key: bytes
    value: bytes | None
    """None takes the record of this key away."""

    @classmethod
    def of(cls, key: object, value: object) -> "MetadataRecord":
        """From what can be written as JSON."""
        return cls(_text(key), _text(value))

    @classmethod
    def gone(cls, key: object) -> "MetadataRecord":
        """One that takes a record away."""
        return cls(_text(key), None)


def read(text: bytes | None) -> object:
    """What was written; None for anything that is no JSON."""
    try:
        told: object = json.loads(text or b"")
    except (ValueError, RecursionError):
        return None
    return told


def _text(told: object) -> bytes:
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
