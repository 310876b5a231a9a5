"""The settings of docs/consuming.md, each with its own client, on an aborted transaction."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.broker.clients import Client
from tests.broker.clients.consumers import CONSUMERS, program
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
    send_with_an_abort(broker, topic)
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


def row(client: Client) -> tuple[str, str]:
    """The setting that the page has for a client, and what it says of the default."""
    found = re.search(rf"^\|[^|]*\b{client.name}\b[^|]*\| `(.*)` \| (\w+) \|$", PAGE, re.MULTILINE)
    assert found is not None
    return found[1], found[2]


def send_with_an_abort(broker: Broker, topic: str) -> None:
    """Three transactions of a record each; the second is aborted."""
    producer = Producer({**broker.client_properties, "transactional.id": topic})
    producer.init_transactions(30)
    for value in ("kept", "lost", "end"):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        if value == "lost":
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
