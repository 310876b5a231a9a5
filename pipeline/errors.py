"""What a pipeline command says when it cannot go on: one sentence and an exit code.

The codes are those of every command of Ringfence: 2 usage, 3 the broker cannot be reached or
refuses, 5 the tables, their checkpoints and the topics contradict each other.
"""

from typing import Final

USAGE: Final = 2
BROKER: Final = 3
CONTRADICTION: Final = 5


class PipelineError(Exception):
    """What is wrong, where, and what to do next; the command ends with `exit_code`."""

    def __init__(self, sentence: str, *, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


# What the text of a failed query tells, in the order of looking. Spark hands over the stack of
# the Kafka client as text, so the names of its exceptions are all there is to go by.
_CAUSES: Final = (
    (
        ("UnknownTopicOrPartitionException",),
        BROKER,
        "a topic of table {table!r} does not exist on {servers}: create it or correct its name",
    ),
    (
        ("AuthorizationException", "AuthenticationException"),
        BROKER,
        "{servers} refuses table {table!r}: check the rights and the properties of the client",
    ),
    (
        ("KAFKA_DATA_LOSS", "Some data may have been lost", "KafkaIllegalStateException"),
        CONTRADICTION,
        (
            "table {table!r} has read further than its topics on {servers} go back or reach: "
            "they were deleted, made anew or cleaned; read them into a new target"
        ),
    ),
    (
        ("File name too long",),
        USAGE,
        (
            "table {table!r} cannot have a folder for each address, one is too long: read the "
            "topics into a new target with --partition-by day"
        ),
    ),
    (
        ("TimeoutException", "Failed to create new KafkaAdminClient", "DisconnectException"),
        BROKER,
        "{servers} does not answer for table {table!r}: check that the broker runs there",
    ),
)


def query_failed(table: str, servers: str, text: str) -> PipelineError:
    """The sentence for a streaming query that ended with an error."""
    for names, exit_code, sentence in _CAUSES:
        if any(name in text for name in names):
            return PipelineError(sentence.format(table=table, servers=servers), exit_code=exit_code)
    return PipelineError(f"table {table!r} could not be written: {text}", exit_code=1)


def asking_failed(servers: str, text: str) -> PipelineError:
    """The sentence for a question that the broker did not answer."""
    refused = any(name in text for name in ("AuthorizationException", "AuthenticationException"))
    if refused:
        sentence = "refuses to answer: check the rights and the properties of the client"
    elif "UnknownTopicOrPartitionException" in text:
        sentence = "lost a topic while it was asked: start again"
    else:
        sentence = "does not answer: check that the broker runs there"
    return PipelineError(f"{servers} {sentence} ({text[:300]})", exit_code=BROKER)


def reading_failed(servers: str, text: str) -> PipelineError | None:
    """The sentence for topics that could not be read to their ends; None for a fault of ours."""
    if any(name in text for name in ("KAFKA_DATA_LOSS", "Some data may have been lost")):
        return PipelineError(
            f"{servers} deleted records while they were read: start again",
            exit_code=CONTRADICTION,
        )
    known = ("TimeoutException", "AuthorizationException", "DisconnectException")
    return asking_failed(servers, text) if any(name in text for name in known) else None
