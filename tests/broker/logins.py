"""One broker that knows several logins, each on a listener of its own, and an issuer of tokens.

The listener of the broker's own kind has no login: a test looks at the topics through that one.
"""

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self

import jwt
import trustme
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism
from confluent_kafka.admin._scram import UserScramCredentialUpsertion  # where the type is exported
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tools.broker.config import HOST, free_port
from tools.broker.embedded import EmbeddedBroker

SCRAM: Final = "SCRAM-SHA-512"
MUTUAL_TLS: Final = "mutual TLS"
OIDC: Final = "OAUTHBEARER, oidc"
_LISTENERS: Final = {SCRAM: "SCRAM", MUTUAL_TLS: "MTLS", OIDC: "OIDC"}
_USER: Final = "service"
_PASSWORD: Final = "service-password"  # noqa: S105 - of a broker on the loopback address
_AUDIENCE: Final = "kafka"
_TOKEN_S: Final = 10
"""So short that a client needs further tokens within a test."""
_MODULES: Final = "org.apache.kafka.common.security"


class TokenIssuer:
    """A token endpoint for client credentials, and the keys by which a broker verifies tokens."""

    def __init__(self) -> None:
        self._key = generate_private_key(public_exponent=65537, key_size=2048)
        self.issued = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({"keys": [issuer.public_key()]})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer({"access_token": issuer.token(), "expires_in": _TOKEN_S})

            def _answer(self, document: object) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def public_key(self) -> dict[str, Any]:
        document = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {**document, "kid": "1", "alg": "RS256", "use": "sig"}

    def token(self) -> str:
        self.issued += 1
        now_s = int(time.time())
        claims = {"iss": self.url, "aud": _AUDIENCE, "sub": _USER, "iat": now_s}
        claims["exp"] = now_s + _TOKEN_S
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "1"})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Logins:
    """The listeners of a broker, and the properties of a client of each."""

    def __init__(self, broker: EmbeddedBroker, issuer: TokenIssuer, folder: Path) -> None:
        """Write the certificates, and configure the broker, which must not run yet."""
        self._broker, self._issuer, self._folder = broker, issuer, folder
        self._ports = {login: free_port(0) for login in _LISTENERS}
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        for name in ("broker", "client"):
            _write(authority.issue_cert(HOST), folder / f"{name}.pem")
        broker.configure(self._server_properties())

    def __getitem__(self, login: str) -> Mapping[str, str]:
        """Return the librdkafka properties of a client that uses a login."""
        authority = {"ssl.ca.location": str(self._folder / "ca.pem")}
        client = str(self._folder / "client.pem")
        return {
            "bootstrap.servers": f"{HOST}:{self._ports[login]}",
            **{
                SCRAM: {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": SCRAM,
                    "sasl.username": _USER,
                    "sasl.password": _PASSWORD,
                    **authority,
                },
                MUTUAL_TLS: {
                    "security.protocol": "SSL",
                    "ssl.certificate.location": client,
                    "ssl.key.location": client,
                    **authority,
                },
                OIDC: {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "OAUTHBEARER",
                    "sasl.oauthbearer.method": "oidc",
                    "sasl.oauthbearer.client.id": _USER,
                    "sasl.oauthbearer.client.secret": _PASSWORD,
                    "sasl.oauthbearer.token.endpoint.url": f"{self._issuer.url}/token",
                },
            }[login],
        }

    def add_user(self) -> None:
        """Create the user of SCRAM, on the running broker."""
        admin = AdminClient(dict(self._broker.client_properties))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        added = UserScramCredentialUpsertion(_USER, info, _PASSWORD.encode())
        admin.alter_user_scram_credentials([added])[_USER].result(30)

    def _server_properties(self) -> dict[str, str]:
        ports = self._broker.node.ports
        ours = {_LISTENERS[login]: port for login, port in self._ports.items()}
        advertised = [f"{name}://{HOST}:{port}" for name, port in ours.items()]
        advertised.append(f"CLIENT://{HOST}:{ports.client}")
        protocols = {"CLIENT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
        protocols |= {"SCRAM": "SASL_SSL", "MTLS": "SSL", "OIDC": "SASL_PLAINTEXT"}
        scram, mtls, oidc = (f"listener.name.{each.lower()}." for each in _LISTENERS.values())
        return {
            "listeners": ",".join([*advertised, f"CONTROLLER://{HOST}:{ports.controller}"]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            **{
                f"{listener}ssl.{store}": value
                for listener in (scram, mtls)
                for store, value in {
                    "keystore.type": "PEM",
                    "keystore.location": str(self._folder / "broker.pem"),
                    "truststore.type": "PEM",
                    "truststore.location": str(self._folder / "ca.pem"),
                }.items()
            },
            f"{mtls}ssl.client.auth": "required",
            f"{scram}sasl.enabled.mechanisms": SCRAM,
            f"{scram}{SCRAM.lower()}.sasl.jaas.config": (
                f"{_MODULES}.scram.ScramLoginModule required;"
            ),
            f"{oidc}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{oidc}oauthbearer.sasl.jaas.config": (
                f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            ),
            f"{oidc}oauthbearer.sasl.server.callback.handler.class": (
                f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            f"{oidc}oauthbearer.connections.max.reauth.ms": str(_TOKEN_S * 1000),
            "sasl.oauthbearer.jwks.endpoint.url": f"{self._issuer.url}/keys",
            "sasl.oauthbearer.expected.audience": _AUDIENCE,
            "sasl.oauthbearer.expected.issuer": self._issuer.url,
        }


def java_options(issuer: TokenIssuer) -> str:
    """Return the options with which a broker asks this issuer for its keys."""
    return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url}/keys"


def _write(certificate: trustme.LeafCert, path: Path) -> None:
    """Write key and certificates into one file, the key in the only form that Java reads."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(each.bytes() for each in certificate.cert_chain_pems)
    path.write_bytes(text + chain)
