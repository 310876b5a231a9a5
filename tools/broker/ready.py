"""Readiness check of a broker: a client can list its cluster's brokers and topics."""

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

START_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.05
_DEFAULT_PORT: Final = 9092
_REQUEST_TIMEOUT_S: Final = 2.0


def wait_until_ready(
    client_properties: Mapping[str, str],
    still_runs: Callable[[], bool] = lambda: True,
    timeout_s: float = START_TIMEOUT_S,
    cluster_id: str | None = None,
) -> bool:
    """Return whether the broker answered in time; False at once if it no longer runs.

    With `cluster_id`, the answer of a broker of another cluster does not count: that one has the
    port, and the one that is waited for is about to end.
    """
    deadline = time.monotonic() + timeout_s
    # A TCP probe first avoids the client's growing backoff and its complaints on the terminal.
    while not _listens(client_properties["bootstrap.servers"]):
        if time.monotonic() > deadline or not still_runs():
            return False
        time.sleep(_POLL_S)
    # Level 0: failures before the broker is ready are expected.
    admin = AdminClient({**client_properties, "log_level": 0, "reconnect.backoff.max.ms": 100})
    while time.monotonic() < deadline and still_runs():
        with suppress(KafkaException):
            found = admin.list_topics(timeout=_REQUEST_TIMEOUT_S)
            if found.brokers and cluster_id in {None, found.cluster_id}:
                return True
        time.sleep(_POLL_S)
    return False


def _listens(bootstrap_servers: str) -> bool:
    for server in bootstrap_servers.split(","):
        parts = urlsplit("//" + server.rpartition("://")[2].strip())
        address = (parts.hostname, parts.port or _DEFAULT_PORT)
        with suppress(OSError), socket.create_connection(address, timeout=_REQUEST_TIMEOUT_S):
            return True
    return False
