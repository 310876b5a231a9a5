"""JWKS: the public keys of an issuer, asked for when a token names one that is not known.

Keys rotate: an unknown `kid` has them asked for anew, but once in ten seconds at most, so that
tokens of made-up kids cannot have us hammer the issuer. Known keys serve for an hour, and for a
day where the issuer does not answer.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import httpx2
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from service.control import Unavailable

PAUSE_S: Final = 10.0
FRESH_S: Final = 3_600.0
STALE_S: Final = 86_400.0
_TIMEOUT_S: Final = 5.0
_BYTES_MAX: Final = 1024 * 1024
_KEYS_MAX: Final = 100
_DISCOVERY: Final = "/.well-known/openid-configuration"

_log = structlog.stdlib.get_logger(__name__)


class JwksError(Exception):
    """The issuer did not tell its keys."""


class Fetch(Protocol):
    """Gets a JSON object."""

    def __call__(self, url: str) -> Mapping[str, Any]:
        """Get it; JwksError where there is none."""
        ...


class Jwks:
    """Blocks while it asks; safe on any thread."""

    def __init__(
        self,
        issuer: str,
        jwks_url: str,
        monotonic_s: Callable[[], float],
        fetch: Fetch | None = None,
    ) -> None:
        """Without `jwks_url` the issuer's discovery document tells it."""
        self._issuer = issuer
        self._url = jwks_url
        self._now_s = monotonic_s
        self._fetch: Fetch = fetch or fetched
        self._keys: dict[str | None, PyJWK] = {}
        self._fetched_s = float("-inf")
        self._asked_s = float("-inf")
        self._lock = threading.Lock()

    def key(self, kid: str | None) -> PyJWK | None:
        """The key of that name; a token without one means the only key there is.

        None where the issuer has no such key; Unavailable where it does not tell.
        """
        with self._lock:
            known = self._known(kid)
            age_s = self._now_s() - self._fetched_s
            if known is not None and age_s < FRESH_S:
                return known
            if self._now_s() - self._asked_s >= PAUSE_S:
                self._ask()
                return self._known(kid)
            if age_s > STALE_S:
                raise self._unavailable()
            return known

    def _known(self, kid: str | None) -> PyJWK | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _ask(self) -> None:
        self._asked_s = self._now_s()
        try:
            self._keys = _keys_of(self._fetch(self._jwks_url()))
        except JwksError as fault:
            _log.warning("oidc_keys_unavailable", issuer=self._issuer, cause=str(fault))
            if self._now_s() - self._fetched_s > STALE_S:
                raise self._unavailable() from None
        else:
            self._fetched_s = self._now_s()

    def _jwks_url(self) -> str:
        if not self._url:
            told = self._fetch(self._issuer.rstrip("/") + _DISCOVERY)
            if told.get("issuer") != self._issuer:
                raise JwksError("its discovery document is of another issuer")
            self._url = str(told.get("jwks_uri", ""))
        return self._url

    def _unavailable(self) -> Unavailable:
        sentence = (
            f"The keys of {self._issuer} cannot be fetched, so its tokens cannot be checked;"
            " ask again, or use a token of the tokens file."
        )
        return Unavailable(sentence, retry_after_s=round(PAUSE_S))


def _keys_of(document: Mapping[str, Any]) -> dict[str | None, PyJWK]:
    """The keys that verify signatures. A symmetric one would be a shared secret, and never is."""
    keys: dict[str | None, PyJWK] = {}
    told = document.get("keys")
    for each in (told if isinstance(told, list) else [])[:_KEYS_MAX]:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        if each.get("kty") not in {"RSA", "EC", "OKP"}:
            continue
        try:
            keys[each.get("kid")] = PyJWK(each)
        except (PyJWTError, TypeError, ValueError, KeyError):
            continue  # of a kind that we do not know: others may serve
    if not keys:
        raise JwksError("it told no key that verifies signatures")
    return keys


def fetched(url: str) -> Mapping[str, Any]:
    """Get a JSON object from where the configuration points, and from nowhere else."""
    try:
        with httpx2.stream("GET", url, timeout=_TIMEOUT_S, follow_redirects=False) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise JwksError(f"{url} answered {answer.status_code}")
            body = bytearray()
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > _BYTES_MAX:
                    raise JwksError(f"{url} answered more than {_BYTES_MAX} bytes")
        told = httpx2.Response(200, content=bytes(body)).json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise JwksError(f"{url}: {type(error).__name__}") from error
    if not isinstance(told, dict):
        raise JwksError(f"{url} answered no JSON object")
    return told
