"""Printable text: every character is visible, and none affects the terminal or page that shows it.

An address, an id, a key or a header may come from any publisher. Characters that move the cursor,
change the direction of a line, have no width, or end a line for some readers are escaped.
"""

import json
import unicodedata


def visible(text: str, keep: str = "") -> str:
    """Escape every character that is not printable, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(each if _is_printed(each) or each in keep else _escaped(each) for each in text)


def visible_json(text: str) -> str:
    """Escape the same characters in a JSON text so that it parses to the same value.

    Line breaks are kept.
    """
    if text.isprintable():
        return text
    return "".join(
        each if _is_printed(each) or each == "\n" else _json_escaped(each) for each in text
    )


def _is_printed(character: str) -> bool:
    """Whether it is printed; spaces of other widths count as printable."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(character: str) -> str:
    """Return the escape of a JSON string; beyond 16 bits that is a surrogate pair."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(character)[1:-1]
