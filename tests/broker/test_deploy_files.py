"""The files in deploy/ on a real broker: Kafka starts and Ringfence decides."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.broker.reading import messages
from tests.broker.service import Stage
from tests.broker.topics import create_topic
from tests.support.kafka_image import DEPLOY, environments, properties_of
from tests.support.waiting import eventually
from tools.broker import config
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("embedded_kind")]

CLIENT: Final = {"compose": "19092", "kind": "9092"}
"""The port of the listener that Ringfence uses."""
CONTROLLER: Final = "9093"


def here(properties: Mapping[str, str], ports: Mapping[str, int]) -> dict[str, str]:
    """The same properties, with every host and port replaced by one of this machine."""

    def address(found: re.Match[str]) -> str:
        return f"{found[1]}{config.HOST}:{ports[found[2]]}"

    return {
        name: re.sub(r"(//|@)[\w.]*:(\d+)", address, value) for name, value in properties.items()
    }


@pytest.fixture(params=CLIENT)
def deployed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmbeddedBroker]:
    """A broker with the settings of one of the files and no others."""
    given = properties_of(environments()[request.param])
    broker = EmbeddedBroker(tmp_path / "broker", machine=Machine(heap_mb=512, short_lived=True))
    ports = {
        "9092": config.free_port(0),  # of compose's listener for programs on the machine
        CLIENT[request.param]: broker.node.ports.client,
        CONTROLLER: broker.node.ports.controller,
    }

    def only_these(_ports: config.Ports, folder: Path) -> dict[str, str]:
        return here(given, ports) | {"log.dirs": str(folder)}

    monkeypatch.setattr(config, "server_properties", only_these)
    with broker:
        yield broker


def send(broker: EmbeddedBroker, duplicate_ids: Sequence[str]) -> None:
    producer = Producer(dict(broker.client_properties))
    for duplicate_id in duplicate_ids:
        producer.produce("orders", b"shoes", headers={"_DUPL_ID": duplicate_id})
    assert producer.flush(60) == 0


def test_a_copy_becomes_a_dead_letter_with_the_settings_of_the_files(
    deployed: EmbeddedBroker, tmp_path: Path
) -> None:
    client = deployed.client_properties
    create_topic(client, "orders", 3)

    def text(port: int) -> str:
        found = (DEPLOY / "ringfence.toml").read_text("utf-8")
        for old, new in {
            "kafka:19092": deployed.bootstrap_servers,
            "/var/lib/ringfence": str(tmp_path / "state"),
            '"0.0.0.0"': f'"{config.HOST}"\nport = {port}',
        }.items():
            assert found.count(old) == 1, old
            found = found.replace(old, new)
        return found

    with Stage(client, tmp_path, "ringfence") as stage:
        service = stage.written("ringfence", text)
        service.start()
        eventually(lambda: service.is_ready, service)
        send(deployed, ["order-1", "order-2", "order-1"])
        eventually(lambda: len(list(messages(client, "orders.dlq"))) == 1, service)
        assert len(list(messages(client, "orders.unique"))) == 2
