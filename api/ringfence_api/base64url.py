"""Base64url without padding, in which each value has exactly one text.

A text in any other form is refused: what is remembered under a text, such as a session that was
signed out, would otherwise have further names.
"""

import base64


def encode(value: bytes) -> str:
    """Return the text of a value."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def decode(text: str) -> bytes:
    """Return the value of a text. Raise ValueError unless it is the text that `encode` returns."""
    padded = text + "=" * (-len(text) % 4)
    value = base64.b64decode(padded, altchars=b"-_", validate=True)
    if encode(value) != text:
        raise ValueError("the text is not in the form that encode returns")
    return value
