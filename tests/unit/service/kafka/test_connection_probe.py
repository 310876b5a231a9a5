"""A process that waits for a broker learns from a probe why, and soon."""

import socket
import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from ringfence_service.kafka import connection_probe
from ringfence_service.kafka.connection_probe import Explainer, Properties
from tests.support.waiting import eventually

SHUT = {"bootstrap.servers": "127.0.0.1:1"}
SILENT = "_TRANSPORT: Failed to get metadata: Local: Broker transport failure"


def test_an_error_that_does_not_tell_is_explained_by_a_probe() -> None:
    explainer = Explainer(lambda: SHUT, (), "the source's broker")
    told: list[str | None] = []

    def is_told() -> bool:
        told.append(explainer.explain(SILENT))
        return told[-1] is not None

    eventually(is_told)
    assert told[-1] == (
        "the source's broker at 127.0.0.1:1, which refuses connections; "
        "start it, or correct the host and the port in bootstrap.servers"
    )


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("MSG_SIZE_TOO_LARGE: Broker: Message size too large", None),
        ("GROUP_AUTHORIZATION_FAILED: Broker: Group authorization failed", "does not grant a"),
    ],
)
def test_an_error_that_tells_needs_no_probe(
    monkeypatch: pytest.MonkeyPatch, cause: str, told: str | None
) -> None:
    monkeypatch.setattr(connection_probe, "probe", pytest.fail)
    said = Explainer(lambda: SHUT, ()).explain(cause)
    assert said is None if told is None else told in (said or "")


def test_a_probe_that_takes_long_does_not_hold_up_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_probe, "_WAIT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_one: Properties = {"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}
        began_s = time.monotonic()
        assert Explainer(lambda: silent_one, ()).explain(SILENT) is None
        assert time.monotonic() - began_s < 2


def test_a_cluster_that_is_slow_is_given_the_time_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request is abandoned when its time is over, so only a long one has its answer."""
    waited: list[float] = []
    brokers = {1: SimpleNamespace(host="slow", port=9092)}

    class Slow:
        def __init__(self, *_properties: object, **_more: object) -> None: ...

        def list_topics(self, timeout: float) -> object:
            waited.append(timeout)
            if timeout < 4:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, SILENT))
            return SimpleNamespace(brokers=brokers, controller_id=1)

        def poll(self, _timeout: float) -> None: ...

    monkeypatch.setattr(connection_probe, "AdminClient", Slow)
    assert connection_probe.probe({"bootstrap.servers": "slow:9092"}) is None
    assert max(waited) == 5
