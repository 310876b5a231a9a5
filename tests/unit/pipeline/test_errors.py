"""What becomes of the text of a failed query."""

import pytest

from ringfence_pipeline.errors import (
    BROKER,
    CONTRADICTION,
    query_failed,
    reading_failed,
    request_failed,
)


@pytest.mark.parametrize(
    ("text", "exit_code", "told"),
    [
        ("… UnknownTopicOrPartitionException: This server …", BROKER, "does not exist on b:9092"),
        ("… TopicAuthorizationException: Not authorized …", BROKER, "check the rights"),
        ("… TimeoutException: Timed out waiting for a node …", BROKER, "does not answer"),
        ("… [KAFKA_DATA_LOSS.START_OFFSET_DOES_NOT_MATCH_ASSIGNED] …", CONTRADICTION, "new target"),
        (
            "Python worker failed to connect back. SocketTimeoutException: Accept timed out",
            *(1, "check the load of the machine"),
        ),
        ("… No space left on device", 1, "No space left on device"),
    ],
)
def test_a_failed_query_is_reported_in_one_sentence(text: str, exit_code: int, told: str) -> None:
    error = query_failed("messages", "b:9092", text)
    assert error.exit_code == exit_code
    assert told in str(error)
    assert "messages" in str(error)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("… TopicAuthorizationException: Not authorized …", "refuses to answer"),
        ("… TimeoutException: Timed out waiting for a node …", "does not answer"),
        ("… UnknownTopicOrPartitionException: This server …", "deleted a topic"),
    ],
)
def test_a_broker_that_does_not_answer_is_reported_in_one_sentence(text: str, told: str) -> None:
    error = request_failed("b:9092", text)
    assert error.exit_code == BROKER
    assert told in str(error)


def test_records_deleted_meanwhile_are_reported_and_our_own_faults_are_not() -> None:
    lost = reading_failed("b:9092", "… [KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] …")
    late = reading_failed("b:9092", "… TimeoutException: Timeout of 10000ms expired …")
    assert lost is not None
    assert late is not None
    assert (lost.exit_code, late.exit_code) == (CONTRADICTION, BROKER)
    assert reading_failed("b:9092", "… [UNRESOLVED_COLUMN] …") is None
