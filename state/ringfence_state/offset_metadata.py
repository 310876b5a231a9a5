"""Offset metadata: the changelog position committed with each input offset, for takeover checks.

The metadata of a committed input offset holds the last changelog offset, the state format, the ids
of both topics, the partition's time, two revisions of the settings and the start of the changelog
(`OffsetMetadata`). It is committed in the same transaction as the offset, so it is either right or
absent.
"""

import json
from typing import Final, NamedTuple

from ringfence_state.segment import FORMAT

_NAMES: Final = ("c", "f", "i", "l", "t", "r", "s", "a")

TOMBSTONES_KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How long a changelog keeps tombstones after compaction, unless its topic sets another time."""


class OffsetMetadata(NamedTuple):
    """The fields of the metadata; as text at most 4096 bytes, the broker's limit.

    `last_offset` is the last changelog offset, -1 before the first.
    """

    last_offset: int
    format: int
    input_topic_id: str
    changelog_topic_id: str
    time_ms: int = 0
    """The deciding partition's time, which never goes back."""
    revision: int = 0
    """Revision of the metadata topic under which the records before this offset were decided."""
    changelog_start: int = 0
    """The changelog's first offset: compaction never moves it, deleting records does."""
    applied: int = 0
    """The revision of the newest settings document whose effects are all committed."""


def encode(metadata: OffsetMetadata) -> str:
    """Return the text that is committed with an input offset."""
    named = dict(zip(_NAMES, metadata, strict=True))
    return json.dumps(named, separators=(",", ":"))


def decode(text: str | None) -> OffsetMetadata | None:
    """Return the metadata that Ringfence committed; None for any other text.

    For a newer format, only `format` is filled: the other fields may mean something else there.
    """
    try:
        fields = json.loads(text or "")
        if type(fields["f"]) is int and fields["f"] > FORMAT:
            return OffsetMetadata(-1, fields["f"], "", "")
        required = fields["c"], fields["f"], fields["i"], fields["l"]
        later = [fields.get(name, 0) for name in _NAMES[4:]]  # earlier versions wrote none
        metadata = OffsetMetadata(*required, *later)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    types = [type(field) for field in metadata]
    return metadata if types == [int, int, str, str, *4 * [int]] else None
