"""The Kafka client says of a property what it thinks, before any broker is asked."""

from collections.abc import Mapping

import pytest

from service.config.addresses import AddressBook
from service.config.load import ApiSettings, Config, KafkaSettings, ServiceSettings
from service.kafka.clients import property_problems


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
