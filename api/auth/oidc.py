"""OIDC: the principal and the roles of a signed token (JWT) of an issuer.

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

from api.principal import Principal
from service.config.model import ApiSettings
from service.config.tokens import ROLES
from service.queries.errors import Unavailable

PAUSE_S: Final = 10.0

FRESH_S: Final = 3_600.0

STALE_S: Final = 86_400.0

FETCH_MAX_S: Final = 5.0
"""For the discovery document and the keys together."""

WAITING_MAX: Final = 16

_BYTES_MAX: Final = 1024 * 1024

_KEYS_MAX: Final = 100

_DISCOVERY: Final = "/.well-known/openid-configuration"

_log = structlog.stdlib.get_logger(__name__)


class JwksError(Exception):
    """The issuer did not tell its keys."""


class FetchJson(Protocol):
    """Gets a JSON object."""

    async def __call__(self, url: str) -> Mapping[str, Any]:
        """Get it; JwksError where there is none."""
        ...


class KeySet:
    """Asked on one event loop; only the thread that fetches replaces the keys."""

    def __init__(
        self,
        issuer: str,
        jwks_url: str,
        monotonic_s: Callable[[], float],
        fetch: FetchJson | None = None,
    ) -> None:
        """Without `jwks_url` the issuer's discovery document tells it."""
        self._issuer = issuer
        self._url = jwks_url
        self._now_s = monotonic_s
        self._fetch: FetchJson = fetch or fetched
        self._keys: dict[str | None, PyJWK] = {}
        self._fetched_s = float("-inf")
        self._asked_s = float("-inf")
        self._answer: Future[None] = Future()
        self._answer.set_result(None)
        self._waiting = 0

    async def key(self, kid: str | None) -> PyJWK | None:
        """The key of that name; a token without one means the only key there is.

        None where the issuer has no such key; Unavailable where it does not tell, or where too
        many wait for it already.
        """
        known = self._known(kid)
        if known is not None and self._age_s() < FRESH_S:
            return known
        if self._answer.done() and self._now_s() - self._asked_s >= PAUSE_S:
            self._ask()
        if not self._answer.done():
            if self._waiting < WAITING_MAX:
                await self._answered()
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

    async def _answered(self) -> None:
        self._waiting += 1
        try:
            await asyncio.shield(asyncio.wrap_future(self._answer))
        finally:
            self._waiting -= 1

    def _ask(self) -> None:
        self._asked_s = self._now_s()
        answer: Future[None] = Future()

        def run() -> None:
            try:
                asyncio.run(self._take_keys(answer))
            finally:
                if not answer.done():
                    answer.set_result(None)

        threading.Thread(target=run, name="ringfence-jwks", daemon=True).start()
        self._answer = answer

    async def _take_keys(self, answer: Future[None]) -> None:
        """The answer is told before the event loop ends, which may wait for a name server."""
        try:
            async with asyncio.timeout(FETCH_MAX_S):
                keys = _keys_of(await self._fetch(await self._jwks_url()))
        except (JwksError, TimeoutError) as fault:
            cause = str(fault) or f"no whole answer within {FETCH_MAX_S:g} s"
            _log.warning("oidc_keys_unavailable", issuer=self._issuer, cause=cause)
        else:
            self._keys, self._fetched_s = keys, self._now_s()
        answer.set_result(None)

    async def _jwks_url(self) -> str:
        if not self._url:
            told = await self._fetch(self._issuer.rstrip("/") + _DISCOVERY)
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


async def fetched(url: str) -> Mapping[str, Any]:
    """Get a JSON object from where the configuration points, and from nowhere else."""
    body = bytearray()
    try:
        async with (
            httpx2.AsyncClient(follow_redirects=False) as client,
            client.stream("GET", url) as answer,
        ):
            if answer.status_code != httpx2.codes.OK:
                raise JwksError(f"{url} answered {answer.status_code}")
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > _BYTES_MAX:
                    raise JwksError(f"{url} answered more than {_BYTES_MAX} bytes")
        told = httpx2.Response(200, content=bytes(body)).json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise JwksError(f"{url}: {type(error).__name__}") from error
    if not isinstance(told, dict):
        raise JwksError(f"{url} answered no JSON object")
    return told


TOKEN_CHARS_MAX: Final = 16_384

_NAME_CHARS_MAX: Final = 256

_FAULTS: Final[dict[type[PyJWTError], str]] = {
    ExpiredSignatureError: "expired",
    ImmatureSignatureError: "not-yet-valid",
    InvalidAudienceError: "wrong-audience",
    InvalidIssuerError: "wrong-issuer",
}

INVALID: Final = "invalid"


class TokenRefused(Exception):  # noqa: N818 - it is the answer
    """A token lets nobody in; the reason is one of a few, for metrics and the log."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class VerifiedIdentity(NamedTuple):
    """Who somebody is, and until when that holds."""

    principal: Principal
    until_s: int


class OidcIssuer:
    """One issuer."""

    def __init__(self, settings: ApiSettings, jwks: KeySet) -> None:
        self._settings = settings
        self._jwks = jwks
        mapped = [pair.rpartition("=") for pair in settings.oidc_roles]
        self._roles = [(value, role) for value, _, role in mapped] or [(r, r) for r in ROLES]

    async def vouched(self, token: str) -> VerifiedIdentity:
        """Who presents a token. TokenRefused, or Unavailable where the keys cannot be fetched."""
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
    """An RSA key that names no algorithm serves for any of RSA."""
    return key.key_type == "RSA" and algorithm[:2] in {"RS", "PS"}


def _kid(header: Mapping[str, Any]) -> str | None:
    kid = header.get("kid")
    return kid if isinstance(kid, str) else None


def _at(claims: Mapping[str, Any], path: str) -> object:
    """The claim of a name; where there is none, what its dots lead to."""
    found: object = claims
    if path in claims:
        return claims[path]
    for step in path.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(step)
    return found


def _texts(value: object) -> frozenset[str]:
    """A list of texts, or one text of words, as `scope` is."""
    if isinstance(value, str):
        return frozenset(value.split())
    told = value if isinstance(value, list) else []
    return frozenset(each for each in told if isinstance(each, str))


def _printable(name: str) -> str:
    """A name that cannot break a line of a log."""
    return name if name.isprintable() else json.dumps(name)
