"""Credentials: parsing of a token or a shared secret from a file or an environment variable."""

import re
from typing import Final

TOKEN_CHARS_MIN: Final = 32
"""Shortest token or secret: a random one in hex has 128 bits, which nobody can guess."""

_VISIBLE: Final = re.compile(r"[!-~]+")


def token_of(text: str) -> str:
    """Return the token in the first line; raise ValueError if it cannot be an HTTP header value."""
    token = text.partition("\n")[0].strip()
    if not _VISIBLE.fullmatch(token):
        raise ValueError("its first line must be only the token: visible ASCII, without spaces")
    return token


def secret_of(text: str) -> str:
    """Return the shared secret that a file contains; raise ValueError if it can be guessed."""
    secret = text.strip()
    if not _VISIBLE.fullmatch(secret):
        raise ValueError("does not hold a single line of visible ASCII without spaces")
    if len(secret) < TOKEN_CHARS_MIN:
        raise ValueError(f"holds fewer than {TOKEN_CHARS_MIN} characters")
    return secret
