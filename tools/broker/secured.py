"""Users of a secured broker: SASL/PLAIN on every listener, and rights only by ACLs.

`admin` may do everything. `service` may do what ACLs allow, which is nothing at first. A client
uses `{**broker.client_properties, **secured.client_properties(secured.SERVICE)}`.
The passwords are not secret: the broker listens on the loopback address and holds test data.
"""

from typing import Final

from tools.broker import config

ADMIN: Final = "admin"
SERVICE: Final = "service"
PASSWORDS: Final = {ADMIN: "admin-password", SERVICE: "service-password"}


def server_properties() -> dict[str, str]:
    """Return the server properties that set up the users."""
    return config.secured_properties(PASSWORDS, ADMIN)


def client_properties(user: str) -> dict[str, str]:
    """Return the librdkafka properties that authenticate a client as this user."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }
