"""Kafka properties: passed on, refined, refused with the reason, and never shown when secret."""

from collections.abc import Mapping

import confluent_kafka
import pytest

from service.config import Config, load_lenient
from service.errors import Problem
from service.kafka_properties import KNOWN, Property, read_kafka
from service.reading import Given

SERVERS = {"bootstrap.servers": "a:1"}


def kafka(**tables: Mapping[str, object]) -> tuple[Mapping[str, Mapping[str, Property]], list[str]]:
    """Read tables; return the properties by scope and the problems as text."""
    found: list[Problem] = []
    given = {
        scope: {name: Given(value, f'kafka.{scope}."{name}"') for name, value in table.items()}
        for scope, table in {"common": {}, **tables}.items()
    }
    given["common"] = {"bootstrap.servers": Given("a:1", ""), **given["common"]}
    settings = read_kafka(given, found)
    scopes = ("common", "consumer", "producer", "admin")
    return {scope: getattr(settings, scope) for scope in scopes}, [str(p) for p in found]


def from_environment(**environ: str) -> tuple[Config, list[Problem]]:
    config, found = load_lenient(None, {"KAFKA_BOOTSTRAP_SERVERS": "a:1", **environ})
    assert config is not None
    return config, [problem for problem in found if not problem.what.startswith("[[routes]]")]


def test_a_property_of_one_kind_of_client_is_kept_from_the_others() -> None:
    settings, found = kafka(common={"fetch.min.bytes": 1, "linger.ms": 2, "client.id": "c"})
    assert not found
    assert settings["common"] == {**SERVERS, "client.id": "c"}
    assert settings["consumer"] == {"fetch.min.bytes": 1}
    assert settings["producer"] == {"linger.ms": 2}


def test_servers_by_their_other_name_are_the_same_servers() -> None:
    problems: list[Problem] = []
    settings = read_kafka({"common": {"metadata.broker.list": Given("b:1", "")}}, problems)
    assert not problems
    assert settings.common == {"bootstrap.servers": "b:1"}


def test_a_table_refines_what_stands_for_all() -> None:
    settings, found = kafka(common={"fetch.min.bytes": 1}, consumer={"fetch.min.bytes": 2})
    assert not found
    assert settings["consumer"] == {"fetch.min.bytes": 2}


@pytest.mark.parametrize(
    "name",
    [
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "isolation.level",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "transactional.id",
        "transaction.timeout.ms",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "enable.idempotence",
        "acks",
        "partitioner",
        "allow.auto.create.topics",
    ],
)
def test_what_exactly_once_rests_on_is_refused_with_the_reason(name: str) -> None:
    settings, (problem,) = kafka(common={name: "x"})
    assert f'"{name}" is refused: ' in problem
    assert all(name not in table for table in settings.values())


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("group.id", "service.group_id"),
        ("group.instance.id", "service.instance"),
        ("transaction.timeout.ms", "service.transaction_timeout_ms"),
        ("session.timeout.ms", "service.session_timeout_ms"),
        ("auto.offset.reset", "service.on_missing_offset"),
        ("allow.auto.create.topics", "service.create_topics"),
    ],
)
def test_a_refused_property_names_our_setting_instead(name: str, instead: str) -> None:
    assert instead in kafka(consumer={name: "x"})[1][0]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("max.in.flight", 5, 6), ("retries", 1, 0), ("max.in.flight.requests.per.connection", "1", 0)],
)
def test_some_properties_are_free_within_bounds(name: str, good: object, bad: object) -> None:
    assert not kafka(common={name: good})[1]
    assert "whole number from 1" in kafka(common={name: bad})[1][0]


def test_an_unknown_property_is_told_with_the_nearest_known_one() -> None:
    assert "fetch.min.bytes" in kafka(consumer={"fetch.min.byte": 1})[1][0]
    assert "enable.auto.commit" in kafka(consumer={"enable.auto.comit": True})[1][0]


def test_a_property_in_the_wrong_table_is_told_where_it_belongs() -> None:
    assert "[kafka.consumer]" in kafka(producer={"fetch.min.bytes": 1})[1][0]
    assert "[kafka.producer]" in kafka(admin={"linger.ms": 1})[1][0]


def test_brokers_must_be_named() -> None:
    _, found = load_lenient(None, {})
    assert any("KAFKA_BOOTSTRAP_SERVERS" in problem.mend for problem in found)


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"]
)
def test_a_secret_shows_neither_in_problems_nor_in_a_repr(name: str) -> None:
    _, found = kafka(common={name: ["s3cret"]})
    assert "s3cret" not in found[0]
    variable = f"KAFKA_{name.replace('.', '_').upper()}"
    config, _ = from_environment(**{variable: "s3cret"})
    assert config.kafka.common[name] == "s3cret"
    assert "s3cret" not in repr(config)


def test_a_variable_is_a_property_with_dots_for_single_and_an_underscore_for_double_ones() -> None:
    config, found = from_environment(
        KAFKA_CONSUMER_FETCH_MIN_BYTES="7", KAFKA_LOG__LEVEL="3", KAFKA_ADMIN_CLIENT_ID="admin"
    )
    assert not found
    assert config.kafka.consumer["fetch.min.bytes"] == "7"
    assert config.kafka.common["log_level"] == "3"
    assert config.kafka.admin["client.id"] == "admin"


def test_a_refused_property_is_refused_from_the_environment_too() -> None:
    _, (problem,) = from_environment(KAFKA_GROUP_ID="mine")
    assert problem.what.startswith("KAFKA_GROUP_ID is refused")


def test_variables_of_others_with_the_same_prefix_are_left_alone() -> None:
    _, found = from_environment(
        KAFKA_HOME="/opt/kafka",
        KAFKA_HEAP_OPTS="-Xmx1g",
        KAFKA_PORT="tcp://10.0.0.1:9092",
        KAFKA_PORT_9092_TCP_ADDR="10.0.0.1",
        KAFKA_SERVICE_HOST="10.0.0.1",
        KAFKA_SERVICE_PORT="9092",
    )
    assert not found


def test_a_variable_that_resembles_a_property_is_told() -> None:
    _, (problem,) = from_environment(KAFKA_BOOTSTRAP_SERVER="a:1")
    assert "bootstrap.servers" in problem.mend


def test_every_known_property_can_be_set_in_the_installed_librdkafka() -> None:
    stop = {"a name that stops the client before it is made": ""}
    for name in sorted(KNOWN):
        with pytest.raises((confluent_kafka.KafkaException, TypeError)) as caught:
            confluent_kafka.Producer({name: "", **stop})
        refusal = str(caught.value)
        unknown = "No such configuration property" in refusal and f'"{name}"' in refusal
        assert not unknown, refusal
        assert "not settable" not in refusal


def test_when_the_producer_closes_what_is_idle_is_not_up_to_the_configuration() -> None:
    name = "connections.max.idle.ms"
    assert f'"{name}" is refused: ' in kafka(producer={name: 1_000})[1][0]
    assert kafka(common={name: 1_000})[1] == []
