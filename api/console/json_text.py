"""JSON text: indents a JSON document without changing any of its names and values. Pure."""

import json
import re
from typing import Final

_PIECE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')
_OPENING: Final = frozenset("[{")
_CLOSING: Final = frozenset("]}")
_INDENT: Final = "  "
CHARS_MAX: Final = 256 * 1024
"""Text that would become longer is left as it is: deep nesting adds its depth to every line."""


def pretty(text: str) -> str:
    """Return an object or a list of JSON with a line for each member; other text unchanged.

    Numbers, escapes and repeated names stay as they are written.
    """
    try:
        if not isinstance(json.loads(text), dict | list):
            return text
    except (ValueError, RecursionError):
        return text
    written, size, depth, before = list[str](), 0, 0, ""
    for piece in _PIECE.findall(text):
        depth -= piece in _CLOSING
        opens = before in _OPENING
        if before == "," or opens != (piece in _CLOSING):
            written.append("\n" + _INDENT * depth)
        written.append(": " if piece == ":" else piece)
        size += sum(map(len, written[-2:]))
        if size > CHARS_MAX:
            return text
        depth += piece in _OPENING
        before = piece
    return "".join(written)
