"""A container whose start fails is removed, and the failure is one sentence."""

import pytest

from tools.broker import container
from tools.broker.container import ContainerBroker
from tools.broker.errors import BrokerError


class StubContainer:
    """A container whose start ends in an error after the engine has made it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.removed = 0

    def with_kraft(self) -> "StubContainer":
        return self

    def with_env(self, name: str, value: str) -> None:
        del name, value

    def start(self, timeout: int) -> "StubContainer":
        del timeout
        raise self.error

    def stop(self) -> None:
        self.removed += 1


def failing(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> StubContainer:
    made = StubContainer(error)
    monkeypatch.setattr(container, "KafkaContainer", lambda _image: made)
    return made


@pytest.mark.parametrize("error", [KeyError("HostConfig"), TimeoutError("no log line")])
def test_a_container_whose_start_fails_is_removed_and_the_cause_is_a_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, broker = failing(error, monkeypatch), ContainerBroker()
    with pytest.raises(BrokerError, match=rf"^No broker in a container \({type(error).__name__}: "):
        broker.start()
    assert made.removed == 1
    broker.stop()
    assert made.removed == 1, "it is gone"


def test_ctrl_c_during_the_start_of_a_container_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = failing(KeyboardInterrupt(), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ContainerBroker().start()
    assert made.removed == 1
