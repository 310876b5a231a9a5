"""OIDC: who an issuer says somebody is, in a signed token (JWT), and which roles that gives.

Nothing in a token is believed before its signature holds: only the algorithm, which has to be one
that the configuration names, and the name of the key. Symmetric algorithms and `none` cannot be
named there, so a public key is never taken for a shared secret.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    PyJWTError,
)

from api.jwks import Jwks
from api.roles import Principal
from service.sections import ApiSettings
from service.tokens import ROLES

TOKEN_CHARS_MAX: Final = 16_384
_NAME_CHARS_MAX: Final = 256
_FAULTS: Final[dict[type[PyJWTError], str]] = {
    ExpiredSignatureError: "expired",
    ImmatureSignatureError: "not-yet-valid",
    InvalidAudienceError: "wrong-audience",
    InvalidIssuerError: "wrong-issuer",
}
INVALID: Final = "invalid"


class Refused(Exception):  # noqa: N818 - it is the answer
    """A token lets nobody in; the reason is one of a few, for metrics and the log."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Vouched(NamedTuple):
    """Who somebody is, and until when that holds."""

    principal: Principal
    until_s: int


class Oidc:
    """One issuer."""

    def __init__(self, settings: ApiSettings, jwks: Jwks) -> None:
        self._settings = settings
        self._jwks = jwks
        mapped = [pair.rpartition("=") for pair in settings.oidc_roles]
        self._roles = [(value, role) for value, _, role in mapped] or [(r, r) for r in ROLES]

    async def vouched(self, token: str) -> Vouched:
        """Who presents a token. Refused, or Unavailable where the keys cannot be fetched."""
        claims = await self._claims(token)
        name = claims.get(self._settings.oidc_name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARS_MAX:
            raise Refused("no-name")
        held = _texts(_at(claims, self._settings.oidc_roles_claim))
        roles = frozenset(role for value, role in self._roles if value in held)
        return Vouched(Principal(f"oidc:{_printable(name)}", roles, "oidc"), int(claims["exp"]))

    async def _claims(self, token: str) -> Mapping[str, Any]:
        settings = self._settings
        if len(token) > TOKEN_CHARS_MAX:
            raise Refused("too-large")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in settings.oidc_algorithms or "crit" in header:
                raise Refused("wrong-algorithm")
            key = await self._jwks.key(_kid(header))
            if key is None:
                raise Refused("unknown-key")
            if key.algorithm_name != header["alg"] and not _is_rsa(key, header["alg"]):
                raise Refused("wrong-algorithm")
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
            raise Refused(_FAULTS.get(type(error), INVALID)) from None
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            raise Refused(INVALID) from None


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
