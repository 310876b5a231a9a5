"""A backfill of a broker that knows users, by the service's configuration as it holds now.

What it says of certificates, Java's client takes.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Producer
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pyspark.sql import SparkSession

from ringfence_client.headers import DUPLICATE_ID
from ringfence_pipeline.admin import KafkaAdmin
from ringfence_pipeline.backfill.run import BackfillSource, BackfillTarget, BatchLimits, backfill
from ringfence_pipeline.config import as_served, config_topic_of, read_config
from ringfence_pipeline.errors import BROKER, PipelineError
from ringfence_pipeline.java_properties import java_properties
from ringfence_pipeline.storage import StorageFolder
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import Config
from ringfence_service.metadata.settings import SettingsHistory, SettingsOverlay
from tests.broker.conftest import create_topic
from tests.support.waiting import LIMIT_S
from tools.broker import secured
from tools.broker.cluster import Broker, open_broker

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RING = 3
"""What the file says: so short that every copy comes too late for it."""
IDS = 10


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("secured")
    with open_broker(folder, secured=True, heap_mb=512, short_lived=True) as broker:
        yield broker


def configuration(folder: Path, broker: Broker) -> Config:
    login = secured.client_properties(secured.ADMIN)
    kafka = "\n".join(f'"{name}" = "{value}"' for name, value in login.items())
    file = folder / "ringfence.toml"
    file.write_text(f"""
[kafka]
"bootstrap.servers" = "{broker.bootstrap_servers}"
{kafka}
[service]
group_id = "g"
[[routes]]
inputs = ["orders"]
scope = "partition"
[addresses."#"]
id_cache_size = {RING}
""")
    return read_config(file)


def resized(broker: Broker, config: Config, size: int) -> None:
    """What the service writes when a ring is resized over REST."""
    client = {**broker.client_properties, **secured.client_properties(secured.ADMIN)}
    topic = config_topic_of(config)
    create_topic(client, topic, config={"cleanup.policy": "compact"})
    overlay = SettingsOverlay().with_address("#", {"id_cache_size": size}, in_file=True)
    producer = Producer(client)
    for each in SettingsHistory().records(overlay, actor="me", reason="", time_ms=0):
        producer.produce(topic, each.value, each.key)
    assert producer.flush(LIMIT_S) == 0


def sent_twice(broker: Broker, topic: str) -> None:
    client = {**broker.client_properties, **secured.client_properties(secured.ADMIN)}
    create_topic(client, topic)
    producer = Producer(client)
    for number in [*range(IDS), *range(IDS)]:
        producer.produce(topic, b"", headers={DUPLICATE_ID: b"%d" % number})
    assert producer.flush(LIMIT_S) == 0


def test_a_ring_that_was_resized_over_rest_is_as_long_as_the_service_has_it(
    spark: SparkSession, guarded: Broker, tmp_path: Path
) -> None:
    config = configuration(tmp_path, guarded)
    sent_twice(guarded, config.routes[0].inputs[0])
    resized(guarded, config, 2 * IDS)
    properties = java_properties(config.kafka, {})
    source = BackfillSource(guarded.bootstrap_servers, properties, ())
    counts = backfill(spark, config, source, tmp_path / "target", limits=BatchLimits(1_000))
    assert {each.verdict: each.records for each in counts} == {"accepted": IDS, "duplicate": IDS}
    # By which `seed` works.
    settings = (
        BackfillTarget(StorageFolder.of(spark, tmp_path / "target")).inputs().book.settings("x")
    )
    assert settings.id_cache_size == 2 * IDS
    # Of a service that the file alone manages, the file's is the one that counts.
    alone = replace(config, service=replace(config.service, managed_by="file"))
    served = as_served(spark, alone, guarded.bootstrap_servers, properties)
    assert served.addresses == config.addresses

    login = properties["sasl.jaas.config"].replace(secured.PASSWORDS[secured.ADMIN], "guessed")
    guessed = source._replace(properties={**properties, "sasl.jaas.config": login})
    with pytest.raises(PipelineError, match="refuses to answer") as told:
        backfill(spark, config, guessed, tmp_path / "another")
    assert told.value.exit_code == BROKER


def test_certificates_and_keys_of_the_configuration_are_taken_by_the_client(
    spark: SparkSession, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    shown = authority.issue_cert("client.example")
    shown.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate"))
    key = load_pem_private_key(shown.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key").write_bytes(pkcs8)
    files = {f"ssl.{name}.location": str(tmp_path / name) for name in ("ca", "certificate", "key")}
    kafka = KafkaSettings({"security.protocol": "ssl", **files}, {}, {}, {})
    properties = java_properties(kafka, {})
    with KafkaAdmin(spark, "127.0.0.1:1", properties):
        pass
    broken = {**properties, "ssl.keystore.key": properties["ssl.keystore.key"][:100]}
    with pytest.raises(PipelineError):
        KafkaAdmin(spark, "127.0.0.1:1", broken)
