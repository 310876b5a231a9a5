"""Offset metadata: what an offset commit says about the changelog, so that a takeover can check it.

The metadata of a committed input offset names the last changelog offset, the state format and the
ids of both topics. It is committed in the same transaction, so it is true or absent.
"""

import json
from typing import Final, NamedTuple

from state.segment import FORMAT

_NAMES: Final = ("c", "f", "i", "l", "t", "r", "s", "a")

TOMBSTONES_KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000
"""For how long a changelog keeps them after compaction, where nobody has set another time."""


class OffsetMetadata(NamedTuple):
    """At most 4096 bytes as text, by the broker's limit. `last_offset` is -1 before the first."""

    last_offset: int
    format: int
    input_topic_id: str
    changelog_topic_id: str
    time_ms: int = 0
    """The deciding partition's own time, which never goes back."""
    revision: int = 0
    """Of the config topic, by which the records before this offset were decided."""
    changelog_start: int = 0
    """The first offset that the changelog had: compaction never moves it, deleting records does."""
    applied: int = 0
    """The revision of the newest settings document of which all that it implies is committed."""


def encode(metadata: OffsetMetadata) -> str:
    """The text that is committed with an input offset."""
    named = dict(zip(_NAMES, metadata, strict=True))
    return json.dumps(named, separators=(",", ":"))


def decode(text: str | None) -> OffsetMetadata | None:
    """What we committed; None when somebody else did, or nobody.

    Of a newer format no more is told than its number, whatever else stands there.
    """
    try:
        fields = json.loads(text or "")
        if type(fields["f"]) is int and fields["f"] > FORMAT:
            return OffsetMetadata(-1, fields["f"], "", "")
        required = fields["c"], fields["f"], fields["i"], fields["l"]
        later = [fields.get(name, 0) for name in _NAMES[4:]]  # versions before wrote none
        told = OffsetMetadata(*required, *later)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return told if [type(part) for part in told] == [int, int, str, str, *4 * [int]] else None
