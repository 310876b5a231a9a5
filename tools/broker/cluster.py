"""The broker that tests, demo and benchmarks talk to, whatever kind the environment chooses.

`KAFKA_BOOTSTRAP_SERVERS` set: that one. `RINGFENCE_BROKER=container`: one in a container. Else an
embedded Apache Kafka, which is the only kind that can be killed, restarted and suspended.
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
    """A Kafka to talk to. What a kind cannot do raises a BrokerError that says so."""

    @property
    def bootstrap_servers(self) -> str:
        """Return what a client starts from."""

    @property
    def client_properties(self) -> Mapping[str, str]:
        """Return all that a client needs to connect with every right, by librdkafka's names."""

    @property
    def controllable(self) -> bool:
        """Tell whether kill, restart, suspend, resume and log_path can be used."""

    @property
    def log_path(self) -> Path:
        """Return the broker's log."""

    def start(self) -> None:
        """Return when it answers; nothing to do when it runs."""

    def stop(self) -> None:
        """End it in an orderly way; nothing to do when it does not run."""

    def kill(self) -> None:
        """End it as a power cut would."""

    def restart(self) -> None:
        """Start it again, same data, same address."""

    def suspend(self) -> None:
        """Freeze it, connections open."""

    def resume(self) -> None:
        """Let it go on."""

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
    """Return the broker of the environment's kind, not yet started; `with` starts and stops it.

    Args:
        folder: where an embedded broker keeps properties, data and log; other kinds leave it alone
        properties: server properties that go before ours; a broker of one's own keeps its own
        secured: users and rights, see secured.py
        heap_mb: how much memory an embedded broker may take
        short_lived: an embedded broker that starts with half the work and serves less quickly

    """
    if os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        _refuse_settings("A broker of one's own", properties=bool(properties), secured=secured)
        return ExternalBroker(properties_from_environment())
    kind = os.environ.get("RINGFENCE_BROKER", "")
    if kind == "container":
        from tools.broker.container import ContainerBroker  # noqa: PLC0415 - only where it is asked

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
            f"{kind} has its own settings, {what} cannot be given to it: unset"
            " KAFKA_BOOTSTRAP_SERVERS and RINGFENCE_BROKER to get an embedded one."
        )
        raise BrokerError(message)
