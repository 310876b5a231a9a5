"""A service that asks who asks: its tokens, its issuer, and clients of each."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from ringfence_api.app import ALL, WITHOUT_STATE, create_app
from ringfence_api.auth.authenticate import Authenticator
from ringfence_api.auth.oidc import JwksError, KeySet
from ringfence_api.ports import ServiceView
from ringfence_service.config.model import ApiSettings
from ringfence_service.config.tokens import ROLES, entry_of

HERE: Final = "http://127.0.0.1:8080"
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "ringfence"
KEY: Final = generate_private_key(public_exponent=65537, key_size=2048)
PEER: Final = "p" * 40
TOKENS: Final = {role: f"token-of-{role}-".ljust(40, "x") for role in ROLES}


def jwk_of(key: RSAPrivateKey, kid: str = "k1") -> dict[str, Any]:
    """A public key as an issuer tells it."""
    told: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return told | {"kid": kid, "use": "sig", "alg": "RS256"}


class Issuer:
    """Tells its keys, or does not."""

    def __init__(self) -> None:
        self.keys = [jwk_of(KEY)]
        self.is_away = False
        self.asked: list[str] = []

    async def __call__(self, url: str) -> Mapping[str, Any]:
        """See `Fetch`."""
        self.asked.append(url)
        if self.is_away:
            raise JwksError("it is away")
        if url.endswith("openid-configuration"):
            return {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
        return {"keys": self.keys}


def claims(**changed: object) -> dict[str, Any]:
    """What a good token says, with changes; None leaves a claim out."""
    now_s = int(time.time())
    told = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "roles": ["operator"],
        "iat": now_s,
        "exp": now_s + 600,
        **changed,
    }
    return {name: value for name, value in told.items() if value is not None}


def signed(told: Mapping[str, Any], key: Any = KEY, algorithm: str = "RS256", **header: Any) -> str:
    """A token."""
    return jwt.encode(dict(told), key, algorithm=algorithm, headers={"kid": "k1", **header})


def settings(folder: Path, **changed: Any) -> ApiSettings:
    """With a token for each role, a peer token and an issuer."""
    lines = [entry_of(f"the-{role.replace(':', '-')}", role, TOKENS[role]).line for role in ROLES]
    (folder / "tokens").write_text("# who\n\n" + "\n".join(lines) + "\n")
    (folder / "peer").write_text(f"{PEER}\n")
    told: dict[str, Any] = {
        "auth": "tokens+oidc",
        "tokens_file": str(folder / "tokens"),
        "peer_token_file": str(folder / "peer"),
        "oidc_issuer": ISSUER,
        "oidc_audience": AUDIENCE,
        **changed,
    }
    return ApiSettings(**told)


def guarded(view: ServiceView, api: ApiSettings, issuer: Issuer | None = None) -> ServiceView:
    """The service, asking who asks."""
    keys = KeySet(api.oidc_issuer, api.oidc_jwks_url, time.monotonic, issuer or Issuer())
    return replace(view, access=Authenticator(api, keys), body_bytes_max=api.body_bytes_max)


def operations(view: ServiceView) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every operation that there is: its method, its path, and what the document says of it."""
    for path, methods in _app_of(view, without_state=False).openapi()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def filled(path: str, part: str = "1") -> str:
    """A path of the document with something in every place of it."""
    return re.sub(r"\{\w+\}", part, path)


def counted(client: TestClient, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """What a metric counts, by some of its labels."""
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        if sample.name == name
    }


@lru_cache(maxsize=2)
def _app_of(view: ServiceView, without_state: bool) -> FastAPI:  # noqa: FBT001 - a key of the cache
    """All clients of a service ask one API, which takes longer to make than to ask."""
    return create_app(view, WITHOUT_STATE if without_state else ALL)


def client_of(
    view: ServiceView, token: str | None = None, *, without_state: bool = False
) -> TestClient:
    """Somebody who presents a token, or nothing."""
    app = _app_of(view, without_state)
    client = TestClient(app, base_url=HERE, follow_redirects=False)
    if token is not None:
        client.headers["Authorization"] = f"Bearer {token}"
    return client
