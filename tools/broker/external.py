"""External broker: named by the environment, used, and never started or stopped."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from tools.broker.errors import BrokerError
from tools.broker.ready import wait_until_ready

_CONNECTION_PREFIXES: Final = ("bootstrap.servers", "security.protocol", "sasl.", "ssl.")
_ANSWER_TIMEOUT_S: Final = 30.0


class Uncontrolled:
    """Base of brokers that others may be using too: refuses to control them."""

    controllable: Final = False
    _kind: str

    @property
    def log_path(self) -> Path:
        """Refuse, since the log is not on this machine."""
        self._refuse("show its log")

    def kill(self) -> None:
        """Refuse."""
        self._refuse("be killed")

    def restart(self) -> None:
        """Refuse."""
        self._refuse("be restarted")

    def suspend(self) -> None:
        """Refuse."""
        self._refuse("be suspended")

    def resume(self) -> None:
        """Refuse."""
        self._refuse("be resumed")

    def _refuse(self, operation: str) -> NoReturn:
        message = (
            f"{self._kind} cannot {operation} from here: unset KAFKA_BOOTSTRAP_SERVERS and"
            " RINGFENCE_BROKER to get an embedded one, which can."
        )
        raise BrokerError(message)


class ExternalBroker(Uncontrolled):
    """The broker that `KAFKA_BOOTSTRAP_SERVERS` names."""

    _kind = "An external broker"

    def __init__(self, client_properties: Mapping[str, str]) -> None:
        self._client_properties: Final = dict(client_properties)

    @property
    def bootstrap_servers(self) -> str:
        """Return the configured address."""
        return self._client_properties["bootstrap.servers"]

    @property
    def client_properties(self) -> Mapping[str, str]:
        """Return the address, and the environment's encryption and authentication properties."""
        return self._client_properties

    def start(self) -> None:
        """Wait until it answers; BrokerError if it does not."""
        if not wait_until_ready(self._client_properties, timeout_s=_ANSWER_TIMEOUT_S):
            message = (
                f"The broker at {self.bootstrap_servers} (KAFKA_BOOTSTRAP_SERVERS) did not answer"
                f" within {_ANSWER_TIMEOUT_S:.0f} s: start it, or unset the variable to get an"
                " embedded one."
            )
            raise BrokerError(message)

    def stop(self) -> None:
        """Do nothing: it is not ours to stop."""

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


def properties_from_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the connection properties, such as `KAFKA_SASL_MECHANISM` as `sasl.mechanism`."""
    named = {
        name.removeprefix("KAFKA_").lower().replace("__", "\0").replace("_", "."): value
        for name, value in environment.items()
        if name.startswith("KAFKA_")
    }
    return {
        name.replace("\0", "_"): value
        for name, value in named.items()
        if name.startswith(_CONNECTION_PREFIXES)
    }
