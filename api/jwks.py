"""JWKS: the public keys of an issuer, asked for when a token names one that is not known.

Keys rotate: an unknown `kid` has them asked for anew, but once in ten seconds at most, so that
tokens of made-up kids cannot have us hammer the issuer. Known keys serve for an hour, and for a
day where the issuer does not answer. A thread of its own fetches them, under one deadline for all
that takes; a few requests wait for it at most, and block nothing else.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol

import httpx2
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from service.control import Unavailable

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


class Fetch(Protocol):
    """Gets a JSON object."""

    async def __call__(self, url: str) -> Mapping[str, Any]:
        """Get it; JwksError where there is none."""
        ...


class Jwks:
    """Asked on one event loop; only the thread that fetches replaces the keys."""

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
