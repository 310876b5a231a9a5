"""Session cookies: a browser that has presented its token once stays signed in for a while.

A signed cookie holds the principal, its roles, its expiry and the line of the tokens file. It
holds no token, so a stolen cookie cannot be used to sign in again. It ends with its time, with its
line of the file, and with the process that signed it, unless all replicas sign with one configured
key.
"""

import hashlib
import hmac
import json
from typing import Final, NamedTuple

from ringfence_api import base64url

NAME: Final = "ringfence_session"
SECURE_NAME: Final = f"__Host-{NAME}"
"""Used over TLS: with the `__Host-` prefix, a browser accepts it from this host only."""
ENDED_MAX: Final = 10_000
"""Signed-out cookies that are remembered; only valid ones are, and most have some 200 characters.

Beyond it the oldest one is accepted again until it expires, after a day at the latest.
"""
_CHARS_MAX: Final = 4_096
"""The cookie size that browsers have to support (RFC 6265, 6.1): a longer one is refused.

It bounds what is decoded and hashed for a client that is not authenticated yet.
"""
_CONTEXT: Final = b"ringfence session cookie 1"


class SignIn(NamedTuple):
    """The content of a session cookie."""

    name: str
    roles: tuple[str, ...]
    until_s: int
    digest: str
    """Digest of the token in the tokens file; empty for a token of the OIDC issuer."""


class SessionCookies:
    """Signs and verifies session cookies."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(_CONTEXT + key).digest()
        self._ended: dict[str, None] = {}
        """Bodies of cookies that were signed out, oldest first; bounded by `ENDED_MAX`."""

    def write(self, login: SignIn) -> str:
        """Return the value of a cookie."""
        # A name with characters beyond ASCII would take three times as much, and be too long.
        body = json.dumps(login, separators=(",", ":"), ensure_ascii=False).encode()
        return f"{base64url.encode(body)}.{base64url.encode(self._signature(body))}"

    def read(self, value: str, now_s: float) -> SignIn | None:
        """Return the content of a cookie; None if it is invalid, expired or signed out."""
        if len(value) > _CHARS_MAX:
            return None
        body_text, _, signature_text = value.partition(".")
        try:
            body, signature = base64url.decode(body_text), base64url.decode(signature_text)
        except ValueError:
            return None
        if not hmac.compare_digest(signature, self._signature(body)):
            return None
        if body_text in self._ended:
            return None
        name, roles, until_s, digest = json.loads(body)
        return SignIn(name, tuple(roles), until_s, digest) if now_s < until_s else None

    def end(self, value: str, now_s: float) -> None:
        """Revoke a cookie, in this process."""
        if self.read(value, now_s) is not None:
            self._ended[value.partition(".")[0]] = None
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def _signature(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")
