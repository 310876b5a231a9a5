"""kfake as a broker: a process of franz-go's, controlled as an embedded Apache Kafka is.

It shares no code with Apache Kafka, starts in a second and needs no Java. Its data outlives it,
and requests can be made to fail. It needs Go, with which it is built once.
"""

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.broker.config import HOST
from tools.broker.embedded import EmbeddedBroker
from tools.go import GoProgram

KFAKE: Final = GoProgram(
    "kfake", Path(__file__).parents[1] / "kfake", ".", link="-s -w", is_optimised=True
)
_CONTROL_TIMEOUT_S: Final = 10.0


class Kfake(EmbeddedBroker):
    """One kfake node on the loopback address, in a folder of its own.

    To start the first one builds it; GoMissingError if that is not possible.
    """

    def fail(self, keys: Sequence[int], code: int, count: int = 1, topic: str = "") -> None:
        """Answer the next requests with an error, from now on and until it is started again.

        Args:
            keys: the API keys of the requests, as Kafka's protocol numbers them
            code: Kafka's error code
            count: how many requests fail; -1 for all
            topic: fails only requests, or their parts, for this topic; empty for all

        """
        wanted = {"keys": list(keys), "code": code, "count": count, "topic": topic}
        self._control(json.dumps(wanted).encode())

    def failed(self) -> list[int]:
        """Return how many requests have failed by each call of `fail` since it was started."""
        return list(json.loads(self._control()))

    def _control(self, body: bytes | None = None) -> bytes:
        url = f"http://{HOST}:{self.node.ports.controller}/faults"
        request = urllib.request.Request(url, body)
        with urllib.request.urlopen(request, timeout=_CONTROL_TIMEOUT_S) as answer:  # noqa: S310 - our own
            return bytes(answer.read())

    def _command(self) -> list[str]:
        # kfake has no controller, so the second port is that of the requests that make it fail.
        client, control = self.node.ports
        ports = (f"-port={client}", f"-control={control}")
        return [str(KFAKE.binary()), f"-data={self.node.data_folder}", *ports]
