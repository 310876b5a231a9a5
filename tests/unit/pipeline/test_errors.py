"""What becomes of the text of a failed query."""

import pytest

from pipeline.errors import BROKER, CONTRADICTION, query_failed


@pytest.mark.parametrize(
    ("text", "exit_code", "told"),
    [
        ("… UnknownTopicOrPartitionException: This server …", BROKER, "does not exist on b:9092"),
        ("… TopicAuthorizationException: Not authorized …", BROKER, "check the rights"),
        ("… TimeoutException: Timed out waiting for a node …", BROKER, "does not answer"),
        ("… [KAFKA_DATA_LOSS.START_OFFSET_DOES_NOT_MATCH_ASSIGNED] …", CONTRADICTION, "new target"),
        ("… No space left on device", 1, "No space left on device"),
    ],
)
def test_a_failed_query_is_told_in_one_sentence(text: str, exit_code: int, told: str) -> None:
    error = query_failed("messages", "b:9092", text)
    assert error.exit_code == exit_code
    assert told in str(error)
    assert "messages" in str(error)
