"""How the connector is told what to read."""

import pytest

from pipeline.errors import PipelineError
from pipeline.source import kafka_options, topics_option

pytestmark = pytest.mark.spark


def test_names_are_subscribed_to_as_a_list() -> None:
    assert topics_option(["a.unique", "b.unique"]) == ("subscribe", "a.unique,b.unique")


def test_an_expression_searches_as_kafka_clients_do() -> None:
    assert topics_option(["^flights"]) == ("subscribePattern", "(?:^flights).*")


def test_an_expression_stands_alone() -> None:
    with pytest.raises(PipelineError, match="stands alone"):
        topics_option(["^flights", "orders"])


def test_only_committed_records_are_read_and_headers_are_asked_for() -> None:
    options = kafka_options("b:9092", {"security.protocol": "SSL"})
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["includeHeaders"] == "true"
    assert options["kafka.bootstrap.servers"] == "b:9092"
    assert options["kafka.security.protocol"] == "SSL"


def test_another_isolation_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"isolation\.level = read_uncommitted"):
        kafka_options("b:9092", {"isolation.level": "read_uncommitted"})
