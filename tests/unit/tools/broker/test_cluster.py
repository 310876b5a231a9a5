import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.broker.cluster import open_broker
from tools.broker.embedded import EmbeddedBroker
from tools.broker.errors import BrokerError
from tools.broker.external import ExternalBroker, properties_from_environment

REPOSITORY = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("RINGFENCE_BROKER", raising=False)


def test_a_broker_is_embedded_unless_the_environment_says_otherwise(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    assert isinstance(broker, EmbeddedBroker)
    assert broker.controllable


def test_a_broker_of_ones_own_is_used_and_never_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "somewhere:9092")
    broker = open_broker(tmp_path)
    assert isinstance(broker, ExternalBroker)
    assert broker.bootstrap_servers == "somewhere:9092"
    assert not broker.controllable
    for deed in (broker.kill, broker.restart, broker.suspend, broker.resume):
        with pytest.raises(BrokerError, match="An external broker cannot be"):
            deed()
    with pytest.raises(BrokerError, match="cannot show its log"):
        _ = broker.log_path


def test_a_broker_of_ones_own_takes_no_settings_from_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "somewhere:9092")
    with pytest.raises(BrokerError, match="users and rights cannot be given to it"):
        open_broker(tmp_path, secured=True)
    with pytest.raises(BrokerError, match="server properties cannot be given to it"):
        open_broker(tmp_path, properties={"message.max.bytes": "1000"})


def test_the_connection_is_read_from_the_environment_and_nothing_else_is() -> None:
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": "somewhere:9092",
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": "PLAIN",
        "KAFKA_HEAP_OPTS": "-Xmx9g",
        "HOME": "/root",
    }
    assert properties_from_environment(environment) == {
        "bootstrap.servers": "somewhere:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
    }


def test_an_unknown_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_BROKER", "contaner")
    with pytest.raises(BrokerError, match="RINGFENCE_BROKER is 'contaner'"):
        open_broker(tmp_path)


def test_a_container_without_an_engine_is_refused_in_a_sentence(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tools.broker.cluster import open_broker\n"
        "from tools.broker.errors import BrokerError\n"
        "try: open_broker(Path('.')).start()\n"
        "except BrokerError as error: sys.exit(str(error))"
    )
    nowhere = f"unix://{tmp_path}/no-engine.sock"
    ended = subprocess.run(  # its client leaves a socket behind that would be blamed on another
        [sys.executable, "-c", program],
        env={**os.environ, "RINGFENCE_BROKER": "container", "DOCKER_HOST": nowhere},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.stderr.startswith("No broker in a container ("), ended.stderr
    assert "start a container engine, or unset RINGFENCE_BROKER" in ended.stderr


def test_what_starts_a_container_is_installed_for_the_demo() -> None:
    lock = REPOSITORY / "requirements" / "demo.txt"
    assert "\ntestcontainers==" in lock.read_text("utf-8")
