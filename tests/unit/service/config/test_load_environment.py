"""Our settings from the environment, and Kafka's properties: conversion, secrets, which client."""

from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
import pytest

from ringfence_service.config.kafka_properties import JAVA, KNOWN, Property, read_kafka
from ringfence_service.config.keys import GivenValue
from ringfence_service.config.load import load_lenient
from ringfence_service.config.model import Config
from ringfence_service.errors import ConfigIssue


def read(**environ: str) -> tuple[Config, list[ConfigIssue]]:
    config, found = load_lenient(None, {"KAFKA_BOOTSTRAP_SERVERS": "a:1", **environ})
    assert config is not None
    return config, [problem for problem in found if not problem.what.startswith("[[routes]]")]


def test_text_becomes_what_the_setting_holds() -> None:
    config, found = read(
        RINGFENCE_SERVICE__BATCH_RECORDS_MAX="500",
        RINGFENCE_SERVICE__CREATE_TOPICS="TRUE",
        RINGFENCE_SERVICE__INSTANCE="7",
        RINGFENCE_SERVICE__STATE_DIR="/var/lib/ringfence",
        RINGFENCE_API__PORT="0",
        RINGFENCE_LOG__LEVEL="DEBUG",
        KAFKA_CLIENT_ID="",
    )
    assert not found
    assert "client.id" not in config.kafka.common, "what is empty counts as absent"
    assert config.service.batch_records_max == 500
    assert config.service.create_topics is True
    assert config.service.instance == "7"
    assert config.service.state_dir == Path("/var/lib/ringfence")
    assert config.api.port == 0
    assert config.log.level == "debug"


def test_an_invalid_value_is_reported_with_what_is_valid() -> None:
    _, found = read(
        KAFKA_SECURITY_PROTOCOL="sasl_tls",
        RINGFENCE_SERVICE__TRANSACTION_TIMEOUT_MS="1000",
        RINGFENCE_SERVICE__BATCH_WAIT_MS="10000",
    )
    protocol, wait = found
    assert "must be plaintext or ssl or sasl_plaintext or sasl_ssl" in protocol.what
    assert "service.batch_wait_ms is 10000" in wait.what
    assert "write less than 1000" in wait.fix


def test_no_property_of_java_is_one_that_the_client_has() -> None:
    assert not JAVA.keys() & KNOWN


def test_a_secret_comes_from_a_file_without_its_last_line_end(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n", encoding="utf-8")
    config, found = read(KAFKA_SASL_PASSWORD_FILE=str(secret))
    assert not found
    assert config.kafka.common["sasl.password"] == "s3cret"


def test_a_ringfence_setting_may_come_from_a_file_too(tmp_path: Path) -> None:
    ordinal = tmp_path / "ordinal"
    ordinal.write_text("12\n", encoding="utf-8")
    config, found = read(RINGFENCE_SERVICE__INSTANCE_FILE=str(ordinal))
    assert not found
    assert config.service.instance == "12"


def test_a_property_whose_own_name_ends_in_file_is_not_read_from_one() -> None:
    config, found = read(KAFKA_SASL_OAUTHBEARER_ASSERTION_FILE="/run/assertion")
    assert not found
    assert config.kafka.common["sasl.oauthbearer.assertion.file"] == "/run/assertion"


# Kafka.

SERVERS = {"bootstrap.servers": "a:1"}


def kafka(**tables: Mapping[str, object]) -> tuple[Mapping[str, Mapping[str, Property]], list[str]]:
    """Read tables; return the properties by scope and the problems as text."""
    found: list[ConfigIssue] = []
    given = {
        scope: {name: GivenValue(value, f'kafka.{scope}."{name}"') for name, value in table.items()}
        for scope, table in {"common": {}, **tables}.items()
    }
    given["common"] = {"bootstrap.servers": GivenValue("a:1", ""), **given["common"]}
    settings = read_kafka(given, found)
    scopes = ("common", "consumer", "producer", "admin")
    return {scope: getattr(settings, scope) for scope in scopes}, [str(p) for p in found]


def test_a_property_of_one_kind_of_client_is_kept_from_the_others() -> None:
    settings, found = kafka(common={"fetch.min.bytes": 1, "linger.ms": 2, "client.id": "c"})
    assert not found
    assert settings["common"] == {**SERVERS, "client.id": "c"}
    assert settings["consumer"] == {"fetch.min.bytes": 1}
    assert settings["producer"] == {"linger.ms": 2}


def test_servers_by_their_other_name_are_the_same_servers() -> None:
    settings = read_kafka({"common": {"metadata.broker.list": GivenValue("b:1", "")}}, [])
    assert settings.common == {"bootstrap.servers": "b:1"}


def test_a_table_refines_what_stands_for_all() -> None:
    settings, found = kafka(common={"fetch.min.bytes": 1}, consumer={"fetch.min.bytes": 2})
    assert not found
    assert settings["consumer"] == {"fetch.min.bytes": 2}


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"]
)
def test_a_secret_shows_in_no_repr(name: str) -> None:
    variable = f"KAFKA_{name.replace('.', '_').upper()}"
    config, _ = read(**{variable: "s3cret"})
    assert config.kafka.common[name] == "s3cret"
    assert "s3cret" not in repr(config)


def test_a_variable_is_a_property_with_dots_for_single_and_an_underscore_for_double_ones() -> None:
    config, found = read(
        KAFKA_CONSUMER_FETCH_MIN_BYTES="7", KAFKA_LOG__LEVEL="3", KAFKA_ADMIN_CLIENT_ID="admin"
    )
    assert not found
    assert config.kafka.consumer["fetch.min.bytes"] == "7"
    assert config.kafka.common["log_level"] == "3"
    assert config.kafka.admin["client.id"] == "admin"


def test_every_known_property_can_be_set_in_the_installed_librdkafka() -> None:
    stop = {"a name that stops the client before it is made": ""}
    for name in sorted(KNOWN):
        with pytest.raises((confluent_kafka.KafkaException, TypeError)) as caught:
            confluent_kafka.Producer({name: "", **stop})
        refusal = str(caught.value)
        unknown = "No such configuration property" in refusal and f'"{name}"' in refusal
        assert not unknown, refusal
        assert "not settable" not in refusal
