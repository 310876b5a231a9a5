"""OIDC: the principal and roles that a signed token (JWT) of an issuer identifies.

Nothing in a token is trusted before its signature is verified, except the algorithm, which has to
be one that the configuration allows, and the id of the key. Symmetric algorithms and `none` cannot
be configured, so a public key is never used as a shared secret.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol

import httpx2
import jwt
import structlog
from jwt import PyJWK
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    PyJWTError,
)

from ringfence_api.principal import Principal
from ringfence_service.config.model import ApiSettings
from ringfence_service.config.tokens import ROLES
from ringfence_service.queries.errors import Unavailable

PAUSE_S: Final = 10.0
"""The least time between two fetches: a token with an invented key id must not flood the issuer.

A new key of the issuer is unknown for that long at most. More than `FETCH_MAX_S`, so that an
issuer that does not answer has a pause too.
"""

FRESH_S: Final = 3_600.0
"""How old the keys may be before a request fetches them again.

A key that the issuer has withdrawn is accepted for that long. Less than `STALE_S`.
"""

STALE_S: Final = 86_400.0
"""How long known keys are used while the issuer does not answer: a short outage locks nobody out.

A withdrawn key is accepted for that long too. Afterwards tokens of the issuer get 503.
"""

FETCH_MAX_S: Final = 5.0
"""For the discovery document and the keys together."""

WAITING_MAX: Final = 16
"""Requests that may wait for one fetch, up to `FETCH_MAX_S` each with a connection of its own.

Much less than `api.connections_max` (256): a slow issuer must not take the API from others.
Any more use the key that is known, or get 503 at once.
"""

_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a response of the issuer that are held in memory; its documents have some kilobytes."""

_KEYS_MAX: Final = 100
"""Keys that are parsed, each at a cost of CPU time: an issuer has a few, and more are ignored."""

_DISCOVERY: Final = "/.well-known/openid-configuration"

_log = structlog.stdlib.get_logger(__name__)


class JwksError(Exception):
    """The keys of the issuer could not be fetched."""


class FetchJson(Protocol):
    """Fetches a JSON object over HTTP."""

    async def __call__(self, url: str) -> Mapping[str, Any]:
        """Return the object. Raise JwksError on failure."""
        ...


class KeySet:
    """The cached signing keys of the issuer (JWKS).

    Used on one event loop; only the fetching thread replaces the keys.
    """

    def __init__(
        self,
        issuer: str,
        jwks_url: str,
        monotonic_s: Callable[[], float],
        fetch: FetchJson | None = None,
    ) -> None:
        """Without `jwks_url`, it is read from the discovery document of the issuer."""
        self._issuer = issuer
        self._url = jwks_url
        self._now_s = monotonic_s
        self._fetch: FetchJson = fetch or fetch_json
        self._keys: dict[str | None, PyJWK] = {}
        self._fetched_s = float("-inf")
        self._requested_s = float("-inf")
        self._fetching: Future[None] = Future()
        self._fetching.set_result(None)
        self._waiting = 0

    async def key(self, kid: str | None) -> PyJWK | None:
        """Return the key with this id; a token without `kid` selects the only key.

        Return None if the issuer has no such key. Raise Unavailable if the keys cannot be fetched
        or too many requests are already waiting for them.
        """
        known = self._known(kid)
        if known is not None and self._age_s() < FRESH_S:
            return known
        if self._fetching.done() and self._now_s() - self._requested_s >= PAUSE_S:
            self._start_fetch()
        if not self._fetching.done():
            if self._waiting < WAITING_MAX:
                await self._wait_for_fetch()
            elif known is None:
                raise self._unavailable()
        if self._age_s() > STALE_S:
            raise self._unavailable()
        return self._known(kid)

    def _known(self, kid: str | None) -> PyJWK | None:
        keys = self._keys
        if kid is None and len(keys) == 1:
            return next(iter(keys.values()))
        return keys.get(kid)

    def _age_s(self) -> float:
        return self._now_s() - self._fetched_s

    async def _wait_for_fetch(self) -> None:
        self._waiting += 1
        try:
            await asyncio.shield(asyncio.wrap_future(self._fetching))
        finally:
            self._waiting -= 1

    def _start_fetch(self) -> None:
        self._requested_s = self._now_s()
        done: Future[None] = Future()

        def run() -> None:
            try:
                asyncio.run(self._fetch_keys(done))
            finally:
                if not done.done():
                    done.set_result(None)

        threading.Thread(target=run, name="ringfence-jwks", daemon=True).start()
        self._fetching = done

    async def _fetch_keys(self, done: Future[None]) -> None:
        """Fetch the keys; complete `done` before the event loop ends, which may wait for DNS."""
        try:
            async with asyncio.timeout(FETCH_MAX_S):
                keys = _keys_of(await self._fetch(await self._jwks_url()))
        except (JwksError, TimeoutError) as fault:
            cause = str(fault) or f"no complete response within {FETCH_MAX_S:g} s"
            _log.warning("oidc_keys_unavailable", issuer=self._issuer, cause=cause)
        else:
            self._keys, self._fetched_s = keys, self._now_s()
        done.set_result(None)

    async def _jwks_url(self) -> str:
        if not self._url:
            discovery = await self._fetch(self._issuer.rstrip("/") + _DISCOVERY)
            if discovery.get("issuer") != self._issuer:
                raise JwksError("its discovery document names another issuer")
            self._url = str(discovery.get("jwks_uri", ""))
        return self._url

    def _unavailable(self) -> Unavailable:
        sentence = (
            f"The keys of {self._issuer} cannot be fetched, so its tokens cannot be verified;"
            " try again, or use a token of the tokens file."
        )
        return Unavailable(sentence, retry_after_s=round(PAUSE_S))


def _keys_of(document: Mapping[str, Any]) -> dict[str | None, PyJWK]:
    """Return the signing keys by id; symmetric keys, which are shared secrets, are ignored."""
    keys: dict[str | None, PyJWK] = {}
    listed = document.get("keys")
    for each in (listed if isinstance(listed, list) else [])[:_KEYS_MAX]:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        if each.get("kty") not in {"RSA", "EC", "OKP"}:
            continue
        try:
            keys[each.get("kid")] = PyJWK(each)
        except (PyJWTError, TypeError, ValueError, KeyError):
            continue  # an unknown kind of key: others may be usable
    if not keys:
        raise JwksError("it has no key that verifies signatures")
    return keys


async def fetch_json(url: str) -> Mapping[str, Any]:
    """Fetch a JSON object from a configured URL; redirects are not followed."""
    body = bytearray()
    try:
        async with (
            httpx2.AsyncClient(follow_redirects=False) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != httpx2.codes.OK:
                raise JwksError(f"{url} returned status {response.status_code}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _BYTES_MAX:
                    raise JwksError(f"{url} returned more than {_BYTES_MAX} bytes")
        document = httpx2.Response(200, content=bytes(body)).json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise JwksError(f"{url}: {type(error).__name__}") from error
    if not isinstance(document, dict):
        raise JwksError(f"{url} did not return a JSON object")
    return document


TOKEN_CHARS_MAX: Final = 16_384
"""Bounds what is parsed before a signature is verified; a longer token is refused as too large.

Large enough for a token that lists hundreds of groups. The login form takes some more
characters, so that this limit gives the reason.
"""

_NAME_CHARS_MAX: Final = 256
"""Bounds the name, which is in each line of the log and audit, and in the session cookie."""

_FAULTS: Final[dict[type[PyJWTError], str]] = {
    ExpiredSignatureError: "expired",
    ImmatureSignatureError: "not-yet-valid",
    InvalidAudienceError: "wrong-audience",
    InvalidIssuerError: "wrong-issuer",
}

INVALID: Final = "invalid"


class TokenRefused(Exception):  # noqa: N818 - an outcome, not an error
    """A token is not accepted; the reason is one of a fixed set, for metrics and the log."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class VerifiedIdentity(NamedTuple):
    """A verified principal, and when its token expires (epoch seconds)."""

    principal: Principal
    until_s: int


class OidcIssuer:
    """Verifies tokens of the configured OIDC issuer."""

    def __init__(self, settings: ApiSettings, jwks: KeySet) -> None:
        self._settings = settings
        self._jwks = jwks
        mapped = [pair.rpartition("=") for pair in settings.oidc_roles]
        self._roles = [(value, role) for value, _, role in mapped] or [(r, r) for r in ROLES]

    async def verify(self, token: str) -> VerifiedIdentity:
        """Return the identity of a token.

        Raise TokenRefused, or Unavailable if the keys cannot be fetched.
        """
        claims = await self._claims(token)
        name = claims.get(self._settings.oidc_name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARS_MAX:
            raise TokenRefused("no-name")
        held = _texts(_at(claims, self._settings.oidc_roles_claim))
        roles = frozenset(role for value, role in self._roles if value in held)
        return VerifiedIdentity(
            Principal(f"oidc:{_printable(name)}", roles, "oidc"), int(claims["exp"])
        )

    async def _claims(self, token: str) -> Mapping[str, Any]:
        settings = self._settings
        if len(token) > TOKEN_CHARS_MAX:
            raise TokenRefused("too-large")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in settings.oidc_algorithms or "crit" in header:
                raise TokenRefused("wrong-algorithm")
            key = await self._jwks.key(_kid(header))
            if key is None:
                raise TokenRefused("unknown-key")
            if key.algorithm_name != header["alg"] and not _is_rsa(key, header["alg"]):
                raise TokenRefused("wrong-algorithm")
            return jwt.decode(
                token,
                key.key,
                algorithms=[header["alg"]],
                issuer=settings.oidc_issuer,
                audience=settings.oidc_audience,
                leeway=settings.oidc_leeway_s,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
        except PyJWTError as error:
            raise TokenRefused(_FAULTS.get(type(error), INVALID)) from None
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            raise TokenRefused(INVALID) from None


def _is_rsa(key: jwt.PyJWK, algorithm: str) -> bool:
    """Return whether key and algorithm are RSA: such a key may name no algorithm of its own."""
    return key.key_type == "RSA" and algorithm[:2] in {"RS", "PS"}


def _kid(header: Mapping[str, Any]) -> str | None:
    kid = header.get("kid")
    return kid if isinstance(kid, str) else None


def _at(claims: Mapping[str, Any], path: str) -> object:
    """Return the claim with this name, else the nested claim that its dotted path selects."""
    found: object = claims
    if path in claims:
        return claims[path]
    for step in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(step)
    return found


def _texts(value: object) -> frozenset[str]:
    """Return the strings of a list, or the words of one string, such as `scope`."""
    if isinstance(value, str):
        return frozenset(value.split())
    items = value if isinstance(value, list) else []
    return frozenset(each for each in items if isinstance(each, str))


def _printable(name: str) -> str:
    """Return the name, JSON-encoded if it contains characters that could break a log line."""
    return name if name.isprintable() else json.dumps(name)
