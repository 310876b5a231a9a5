"""Broker for tests, demo and benchmarks, of the kind that the environment selects.

With `KAFKA_BOOTSTRAP_SERVERS`, an external broker. With `RINGFENCE_BROKER=container`, one in a
container. Otherwise an embedded Apache Kafka, the only kind that can be killed, restarted and
suspended.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tools.broker.embedded import EmbeddedBroker
from tools.broker.errors import BrokerError
from tools.broker.external import ExternalBroker, properties_from_environment
from tools.broker.node import Machine


class Broker(Protocol):
    """A Kafka broker. Operations that a kind does not support raise BrokerError."""

    @property
    def bootstrap_servers(self) -> str:
        """Return the bootstrap servers for clients."""

    @property
    def client_properties(self) -> Mapping[str, str]:
        """Return the librdkafka properties of a client that connects with all rights."""

    @property
    def controllable(self) -> bool:
        """Return whether kill, restart, suspend, resume and log_path are supported."""

    @property
    def log_path(self) -> Path:
        """Return the path of the broker's log."""

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""

    def stop(self) -> None:
        """Stop it gracefully, if it runs."""

    def kill(self) -> None:
        """Kill it, as a power cut would."""

    def restart(self) -> None:
        """Start it again with the same data and address."""

    def suspend(self) -> None:
        """Freeze it, with connections open."""

    def resume(self) -> None:
        """Continue it after `suspend`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def open_broker(
    folder: Path,
    *,
    properties: Mapping[str, str] | None = None,
    secured: bool = False,
    heap_mb: int = 1024,
    short_lived: bool = False,
) -> Broker:
    """Return a broker of the kind that the environment selects; `with` starts and stops it.

    Args:
        folder: of properties, data and log of an embedded broker; other kinds do not use it
        properties: server properties that override the defaults; an external broker refuses them
        secured: whether to set up users and ACLs, as in secured.py
        heap_mb: the heap size of an embedded broker
        short_lived: whether an embedded broker starts with half the work and serves less quickly

    """
    if os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        _refuse_settings("An external broker", properties=bool(properties), secured=secured)
        return ExternalBroker(properties_from_environment())
    kind = os.environ.get("RINGFENCE_BROKER", "")
    if kind == "container":
        from tools.broker.container import ContainerBroker  # noqa: PLC0415 - needs testcontainers

        _refuse_settings("A broker in a container", properties=False, secured=secured)
        return ContainerBroker(properties)
    if kind not in ("", "embedded"):
        message = f"RINGFENCE_BROKER is {kind!r}: set it to container or embedded, or unset it."
        raise BrokerError(message)
    machine = Machine(heap_mb=heap_mb, short_lived=short_lived)
    return EmbeddedBroker(folder, properties=properties, secured=secured, machine=machine)


def _refuse_settings(kind: str, *, properties: bool, secured: bool) -> None:
    if properties or secured:
        what = "users and rights" if secured else "server properties"
        message = (
            f"{kind} has its own settings; {what} cannot be given to it: unset"
            " KAFKA_BOOTSTRAP_SERVERS and RINGFENCE_BROKER to get an embedded one."
        )
        raise BrokerError(message)
