"""Printable text: every character is visible, and none affects the terminal or page that shows it.

An address, an id, a key or a header may come from any publisher. Characters that move the cursor,
change the direction of a line, have no width, or end a line for some readers are escaped.
"""

import json
import unicodedata


def visible(text: str, keep: str = "") -> str:
    """Write out what is not printed as a character of its own, but for those in `keep`."""
    if text.isprintable():
        return text
    return "".join(each if _is_seen(each) or each in keep else _written(each) for each in text)


def visible_json(text: str) -> str:
    """The same for JSON, which stays JSON of the same value; lines may end in it."""
    if text.isprintable():
        return text
    return "".join(each if _is_seen(each) or each == "\n" else _escaped(each) for each in text)


def _is_seen(character: str) -> bool:
    """Whether it is printed; spaces of other widths are seen as spaces."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _written(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(character: str) -> str:
    """As a string of JSON names it: beyond 16 bits by two numbers."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(character)[1:-1]
