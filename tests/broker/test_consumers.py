"""The settings of docs/consuming.md, each with its own client, on an aborted transaction."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.broker.clients import HERE, Client
from tests.broker.clients.consumers import CONSUMERS, UNABLE, program
from tools.broker.cluster import Broker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.usefixtures("embedded_kind"),
    pytest.mark.xdist_group("clients"),
]

PAGE: Final = (Path(__file__).parents[2] / "docs" / "consuming.md").read_text("utf-8")


@pytest.mark.parametrize("client", CONSUMERS, ids=lambda client: client.name)
def test_a_consumer_with_the_documented_setting_sees_no_record_of_an_aborted_transaction(
    client: Client, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    client.skip_if_missing()
    topic = new_topic("aborted")
    send(broker, topic, "kept", "lost", "end")
    setting, default = row(client)
    seen = {
        each: client.run(
            program(client, each),
            tmp_path,
            KAFKA_BOOTSTRAP_SERVERS=broker.client_properties["bootstrap.servers"],
            TOPIC=topic,
        ).split()
        for each in (setting, "")
    }
    assert seen[setting] == ["kept", "end"]
    assert (
        seen[""] == {"committed": ["kept", "end"], "uncommitted": ["kept", "lost", "end"]}[default]
    )


@pytest.mark.parametrize("client", UNABLE, ids=lambda client: client.name)
def test_a_client_that_the_page_warns_of_still_gives_out_records_of_aborted_transactions(
    client: Client, broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    client.skip_if_missing()
    topic = new_topic("unable")
    send(broker, topic, "kept", "lost", "lost", "end")
    seen = client.run(
        UNABLE[client],
        tmp_path,
        KAFKA_BOOTSTRAP_SERVERS=broker.client_properties["bootstrap.servers"],
        TOPIC=topic,
    ).split()
    assert seen[0] == "kept"
    assert seen[-1] == "end"
    assert "lost" in seen, f"{client.name} can read an output now: docs/consuming.md warns of it"


@pytest.mark.parametrize("client", UNABLE, ids=lambda client: client.name)
def test_the_page_warns_of_the_version_that_is_tried(client: Client) -> None:
    pins = (HERE / "go.mod").read_text("utf-8") + (HERE / "package.json").read_text("utf-8")
    version = re.search(rf'{client.name}"?:? "?v?([0-9.]+)', pins)
    assert version is not None
    assert f"`{client.name}` {version[1]} |" in PAGE


def row(client: Client) -> tuple[str, str]:
    """The setting that the page has for a client, and what it says of the default."""
    found = re.search(rf"^\|[^|]*\b{client.name}\b[^|]*\| `(.*)` \| (\w+) \|$", PAGE, re.MULTILINE)
    assert found is not None
    return found[1], found[2]


def send(broker: Broker, topic: str, *values: str) -> None:
    """One transaction for each value; those of `lost` are aborted."""
    producer = Producer({**broker.client_properties, "transactional.id": topic})
    producer.init_transactions(30)
    for value in values:
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        if value == "lost":
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
