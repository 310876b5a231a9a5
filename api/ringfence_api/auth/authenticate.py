"""Authentication: the credentials of a request, and the principal that they identify.

Two credentials are accepted: a token of the tokens file and a token of the OIDC issuer; a cookie
may replace either. The secret that instances share is not accepted here: see
`ringfence_api.resources.internal`.
"""

import secrets
import time
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers

from ringfence_api.auth.cookies import NAME, SECURE_NAME, SessionCookies, SignIn
from ringfence_api.auth.oidc import INVALID, KeySet, OidcIssuer, TokenRefused, VerifiedIdentity
from ringfence_api.auth.rate_limit import FailedAttempts
from ringfence_api.principal import ANYBODY, Principal
from ringfence_service.config.model import ApiSettings
from ringfence_service.config.tokens import Tokens, parse
from ringfence_service.credentials import secret_of
from ringfence_service.file_watcher import WatchedFile

MISSING = "missing"
_SCHEME = "bearer"
_JWT_DOTS = 2


class AcceptedToken(NamedTuple):
    """An accepted token: its identity, and its digest if it is of the tokens file."""

    identity: VerifiedIdentity
    digest: str


class Authenticator:
    """Authenticates requests. A token of the issuer may wait until its keys are fetched."""

    def __init__(self, settings: ApiSettings, jwks: KeySet | None = None) -> None:
        """Read the files. Raise ValueError or OSError if they changed after the validation."""
        self.settings = settings
        self.attempts = FailedAttempts(time.monotonic)
        self._tokens = (
            WatchedFile(settings.tokens_file, parse, time.monotonic)
            if settings.takes_tokens
            else None
        )
        self._oidc = None
        if settings.takes_oidc:
            keys = KeySet(settings.oidc_issuer, settings.oidc_jwks_url, time.monotonic)
            self._oidc = OidcIssuer(settings, jwks or keys)
        self._cookies = SessionCookies(_cookie_key(settings.session_key_file))

    @property
    def tokens_file(self) -> WatchedFile[Tokens] | None:
        """Return the tokens file; None if no tokens are accepted."""
        return self._tokens

    @property
    def asks_who(self) -> bool:
        """Whether requests must be authenticated."""
        return self.settings.asks_who

    async def principal(self, headers: Headers) -> Principal:
        """Return the principal of a request. Raise TokenRefused or Unavailable."""
        if not self.asks_who:
            return ANYBODY
        token = bearer_of(headers)
        if token is not None:
            return (await self.verify(token)).identity.principal
        cookie = cookie_of(headers)
        if cookie is None:
            raise TokenRefused(MISSING)
        return self._by_cookie(cookie)

    async def verify(self, token: str) -> AcceptedToken:
        """Verify a token. Raise TokenRefused or Unavailable."""
        found = None if self._tokens is None else self._tokens.value().find(token)
        if found is not None:
            identity = VerifiedIdentity(Principal(found.name, found.roles, "token"), _never())
            return AcceptedToken(identity, found.digest)
        if self._oidc is None or token.count(".") != _JWT_DOTS:
            raise TokenRefused(INVALID)
        return AcceptedToken(await self._oidc.verify(token), "")

    async def log_in(self, token: str) -> str:
        """Return a session cookie for a token. Raise TokenRefused or Unavailable."""
        (principal, until_s), digest = await self.verify(token)
        until_s = min(until_s, int(time.time()) + self.settings.session_max_s)
        return self._cookies.write(
            SignIn(principal.name, tuple(sorted(principal.roles)), until_s, digest)
        )

    def log_out(self, headers: Headers) -> None:
        """Revoke the session cookie of a request."""
        self._cookies.end(cookie_of(headers) or "", time.time())

    def _by_cookie(self, value: str) -> Principal:
        login = self._cookies.read(value, time.time())
        if login is None:
            raise TokenRefused("session-over")
        if not login.digest:
            return Principal(login.name, frozenset(login.roles), "oidc", by_cookie=True)
        tokens = Tokens(()) if self._tokens is None else self._tokens.value()
        found = tokens.by_digest(login.digest)
        if found is None:
            raise TokenRefused("session-over")
        return Principal(found.name, found.roles, "token", by_cookie=True)


def bearer_of(headers: Headers) -> str | None:
    """Return the bearer token; empty for another scheme, None without `Authorization`."""
    sent = headers.get("authorization")
    if sent is None:
        return None
    scheme, _, token = sent.partition(" ")
    return token.strip() if scheme.lower() == _SCHEME else ""


def cookie_of(headers: Headers) -> str | None:
    """Return our session cookie, the secure one first; None if there is none."""
    pairs = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
    sent = {name: value for name, _, value in reversed(pairs)}
    return sent.get(SECURE_NAME, sent.get(NAME))


def _cookie_key(path: str) -> bytes:
    if not path:
        return secrets.token_bytes()
    return secret_of(Path(path).read_text(encoding="utf-8")).encode()


def _never() -> int:
    return 1 << 62
