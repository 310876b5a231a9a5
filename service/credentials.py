"""Credentials: a token or a shared secret, as a file or a variable holds it."""

import re
from typing import Final

TOKEN_CHARS_MIN: Final = 32

_VISIBLE: Final = re.compile(r"[!-~]+")


def token_of(text: str) -> str:
    """The token in the first line of a text; ValueError where no header can hold it."""
    token = text.partition("\n")[0].strip()
    if not _VISIBLE.fullmatch(token):
        raise ValueError("its first line has to be the token alone: visible ASCII, without spaces")
    return token


def secret_of(text: str) -> str:
    """A secret that two sides share, as a file holds it; ValueError where it can be guessed."""
    secret = text.strip()
    if not _VISIBLE.fullmatch(secret):
        raise ValueError("holds something else than one line of visible ASCII without spaces")
    if len(secret) < TOKEN_CHARS_MIN:
        raise ValueError(f"holds less than {TOKEN_CHARS_MIN} characters")
    return secret
