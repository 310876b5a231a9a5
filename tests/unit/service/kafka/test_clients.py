"""The Kafka client says of a property what it thinks, before any broker is asked."""

from collections.abc import Mapping
from typing import Any

import pytest

from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.kafka_properties import RECEIVE, KafkaSettings
from ringfence_service.config.model import ApiSettings, Config, ServiceSettings
from ringfence_service.kafka import clients
from ringfence_service.kafka.clients import FETCHING, KafkaClients, Makers, property_problems


def config_of(**tables: Mapping[str, str]) -> Config:
    none: Mapping[str, str] = {}
    kafka = {scope: tables.get(scope, none) for scope in ("consumer", "producer", "admin")}
    common = {"bootstrap.servers": "127.0.0.1:1", **tables.get("common", none)}
    settings = KafkaSettings(common=common, **kafka)
    return Config(settings, ServiceSettings(), ApiSettings(), (), AddressBook.of({}))


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({"common": {"security.protocol": "TLS"}}, "security.protocol"),
        ({"common": {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}}, "sasl.username"),
        ({"producer": {"compression.type": "brotli"}}, "brotli"),
        ({"consumer": {"queued.min.messages": "lots"}}, "queued.min.messages"),
        ({"admin": {"socket.timeout.ms": "-1"}}, "socket.timeout.ms"),
        (
            {"common": {"security.protocol": "ssl", "ssl.ca.location": "/nope.pem"}},
            'kafka."ssl.ca.location" names the file /nope.pem, which does not exist',
        ),
    ],
)
def test_a_value_that_the_client_refuses_is_reported_once(
    tables: Mapping[str, Mapping[str, str]], name: str
) -> None:
    (problem,) = property_problems(config_of(**tables))
    assert name in problem.what


def test_what_the_client_takes_is_no_problem() -> None:
    assert property_problems(config_of(producer={"compression.type": "lz4"})) == []


def test_polls_may_be_asked_for_as_often_as_the_session_allows() -> None:
    assert property_problems(config_of(consumer={"max.poll.interval.ms": "20000"})) == []


def properties_of_consumers(
    monkeypatch: pytest.MonkeyPatch, **tables: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The properties with which each kind of consumer is made."""
    made = list[dict[str, Any]]()

    def consumer(properties: dict[str, Any], **_: object) -> None:
        made.append(properties)

    monkeypatch.setattr(clients, "Consumer", consumer)
    makers = Makers(consumer, consumer)  # type: ignore[arg-type]  # it makes none
    kafka = KafkaClients(config_of(**tables), makers=makers)
    kafka.consumer(lambda: None)
    kafka.restorer()
    kafka.observer()
    return made


def test_every_consumer_reads_within_the_same_limits_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for properties in properties_of_consumers(monkeypatch):
        assert FETCHING.items() <= properties.items()
        assert properties["message.max.bytes"] == properties["fetch.max.bytes"]
        assert properties[RECEIVE] >= properties["fetch.max.bytes"] + 512, "librdkafka demands it"


@pytest.mark.parametrize("table", ["common", "consumer"])
def test_what_a_batch_may_unpack_to_is_set_in_either_table(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    for properties in properties_of_consumers(monkeypatch, **{table: {RECEIVE: "1000000000"}}):
        assert properties[RECEIVE] == "1000000000"


def test_a_fetch_of_a_hundred_mebibytes_fits_the_default() -> None:
    assert property_problems(config_of(consumer={"fetch.max.bytes": "104857600"})) == []
