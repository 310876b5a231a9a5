"""Broker in a container, run by testcontainers, for machines with a container engine.

Only this module imports testcontainers, and it is imported on demand: nothing else needs it.
"""

from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from docker.errors import DockerException  # type: ignore[import-untyped]  # it ships no types
from testcontainers.community.kafka import KafkaContainer

from tools.broker.errors import BrokerError
from tools.broker.external import Uncontrolled
from tools.broker.ready import START_TIMEOUT_S, wait_until_ready

# The image that KafkaContainer is written for: its start script relies on the files in it.
IMAGE: Final = "confluentinc/cp-kafka:7.6.0"
_PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class ContainerBroker(Uncontrolled):
    """One Kafka node in a container; only the embedded kind can be killed and frozen."""

    _kind = "A broker in a container"

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._properties: Final = {**_PROPERTIES, **(properties or {})}
        self._container: KafkaContainer | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the address, which the engine chooses at the start."""
        if self._container is None:
            raise BrokerError("The broker's container does not run: start it first.")
        return str(self._container.get_bootstrap_server())

    @property
    def client_properties(self) -> Mapping[str, str]:
        """Return the librdkafka properties of a client."""
        return {"bootstrap.servers": self.bootstrap_servers}

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self._container is not None:
            return
        try:
            # Known before it starts: one whose start fails half-way has to be removed as well.
            self._container = KafkaContainer(IMAGE).with_kraft()
            for name, value in self._properties.items():
                self._container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
            self._container.start(timeout=int(START_TIMEOUT_S))
        except BaseException as error:
            self._remove()
            if not isinstance(error, Exception):  # Ctrl-C while waiting
                raise
            # testcontainers raises whatever an engine's answer makes it stumble over.
            message = (
                f"No broker in a container ({type(error).__name__}: {error}): start a container"
                " engine, or unset RINGFENCE_BROKER to get an embedded one."
            )
            raise BrokerError(message) from error
        if not wait_until_ready(self.client_properties):
            self.stop()
            message = (
                f"The broker's container ({IMAGE}) did not answer within"
                f" {START_TIMEOUT_S:.0f} s: look at the engine's log."
            )
            raise BrokerError(message)

    def stop(self) -> None:
        """Remove the container and its data."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def _remove(self) -> None:
        """Remove what a failed start has left, as far as the engine answers."""
        with suppress(DockerException):
            self.stop()
        self._container = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
