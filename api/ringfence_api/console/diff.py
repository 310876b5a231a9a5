"""Diff: the differences of two documents, as removed, added and unchanged lines. Pure."""

import difflib
import json
from typing import Literal, NamedTuple

Kind = Literal["gone", "new", "same"]


class DiffLine(NamedTuple):
    """A line of a diff."""

    kind: Kind
    text: str


def between(
    before: object, after: object, *, ignored: tuple[str, ...] = ("etag",)
) -> list[DiffLine]:
    """Return the differing lines of two documents, each with two lines of context."""
    old, new = _lines(before, ignored), _lines(after, ignored)
    found: list[DiffLine] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(2):
        if found:
            found.append(DiffLine("same", "…"))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                found.extend(DiffLine("same", f"  {text}") for text in old[i1:i2])
                continue
            found.extend(DiffLine("gone", f"- {text}") for text in old[i1:i2])
            found.extend(DiffLine("new", f"+ {text}") for text in new[j1:j2])
    return found


def _lines(document: object, ignored: tuple[str, ...]) -> list[str]:
    if document is None:
        return []
    if isinstance(document, dict):
        document = {key: value for key, value in document.items() if key not in ignored}
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).splitlines()
