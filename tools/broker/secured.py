"""The users of a secured broker: SASL/PLAIN on every listener, rights by ACLs, no ACL no right.

`admin` may do everything. `service` may do what ACLs allow it, and nothing at first. A client
takes `{**broker.client_properties, **secured.client_properties(secured.SERVICE)}`.
The passwords are no secrets: the broker listens on the loopback address and holds test data.
"""

from typing import Final

from tools.broker import config

ADMIN: Final = "admin"
SERVICE: Final = "service"
PASSWORDS: Final = {ADMIN: "admin-password", SERVICE: "service-password"}


def server_properties() -> dict[str, str]:
    """Return what the node needs beside its other properties."""
    return config.secured_properties(PASSWORDS, ADMIN)


def client_properties(user: str) -> dict[str, str]:
    """Return with what a librdkafka client shows itself as this user."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }
