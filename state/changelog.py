"""Changelog: what the offset commit says of it, so that a takeover can check what it reads.

The metadata that travels with a committed input offset names the last changelog offset, the state
format and both topics' ids. Committed in the same transaction, it is true or it is not there.
"""

import json
from typing import NamedTuple


class OffsetMetadata(NamedTuple):
    """At most 4096 bytes as text, by the broker's limit. `last_offset` is -1 before the first."""

    last_offset: int
    format: int
    input_topic_id: str
    changelog_topic_id: str


def encode(metadata: OffsetMetadata) -> str:
    """The text that is committed with an input offset."""
    return json.dumps(dict(zip(("c", "f", "i", "l"), metadata, strict=True)), separators=(",", ":"))


def decode(text: str | None) -> OffsetMetadata | None:
    """What we committed; None when somebody else did, or nobody."""
    try:
        fields = json.loads(text or "")
        told = OffsetMetadata(fields["c"], fields["f"], fields["i"], fields["l"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return told if [type(part) for part in told] == [int, int, str, str] else None
