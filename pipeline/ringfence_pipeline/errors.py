"""Errors of the pipeline commands: one sentence and an exit code each.

The exit codes are those of every Ringfence command: 2 usage, 3 the broker cannot be reached or
refuses access, 5 the tables, their checkpoints and the topics contradict each other.
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


_PLAN: Final = "=== Streaming Query ==="
_CAUSE_CHARS: Final = 2000

_DATA_LOST: Final = (
    "KAFKA_DATA_LOSS",
    "Some data may have been lost",
    "KafkaIllegalStateException",
)

_WORKER_LATE: Final = ("Python worker failed to connect back",)

# Causes by the names in the text of a failed query, checked in this order. Spark passes on the
# Kafka client's stack trace only as text, so exception names are all that identifies a cause.
_CAUSES: Final = (
    (
        _WORKER_LATE,
        1,
        (
            "table {table!r} could not be written, since a Python worker took too long to start: "
            "check the load of the machine, and run the same command again"
        ),
    ),
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
        _DATA_LOST,
        CONTRADICTION,
        (
            "table {table!r} is to read offsets that its topics on {servers} do not have: records "
            "or topics were deleted, recreated or truncated; read them into a new target"
        ),
    ),
    (
        ("File name too long",),
        USAGE,
        (
            "table {table!r} cannot have a folder for each address, since one is too long: read "
            "the topics into a new target with --partition-by day"
        ),
    ),
    (
        ("TimeoutException", "Failed to create new KafkaAdminClient", "DisconnectException"),
        BROKER,
        "{servers} does not answer for table {table!r}: check that the broker runs there",
    ),
)


def failure_text(error: BaseException) -> str:
    """Return Spark's message about a failed query, and those of its causes, without the plan.

    Often only one in the middle names what has happened: the first wraps what an executor raised,
    the last is the Kafka client's.
    """
    texts = [str(error).partition(_PLAN)[0]]
    while (cause := getattr(error, "_cause", None)) is not None:
        error = cause
        texts.append(str(error)[:_CAUSE_CHARS])
    texts[-1] = texts[-1] if len(texts) == 1 else str(error)[-_CAUSE_CHARS:]
    return " ".join(" ".join(dict.fromkeys(texts)).split())


def is_data_lost(text: str) -> bool:
    """Return whether a query failed because records that it was to read are gone."""
    return any(name in text for name in _DATA_LOST)


def is_worker_late(text: str) -> bool:
    """Return whether a query failed because a Python worker did not start within Spark's limit."""
    return any(name in text for name in _WORKER_LATE)


def query_failed(table: str, servers: str, text: str) -> PipelineError:
    """Return the error for a failed streaming query."""
    for names, exit_code, sentence in _CAUSES:
        if any(name in text for name in names):
            return PipelineError(sentence.format(table=table, servers=servers), exit_code=exit_code)
    return PipelineError(f"table {table!r} could not be written: {text}", exit_code=1)


def request_failed(servers: str, text: str) -> PipelineError:
    """Return the error for a failed request to the broker."""
    refused = any(name in text for name in ("AuthorizationException", "AuthenticationException"))
    if refused:
        sentence = "refuses to answer: check the rights and the properties of the client"
    elif "UnknownTopicOrPartitionException" in text:
        sentence = "deleted a topic meanwhile: start again"
    else:
        sentence = "does not answer: check that the broker runs there"
    return PipelineError(f"{servers} {sentence} ({text[:300]})", exit_code=BROKER)


def reading_failed(servers: str, text: str) -> PipelineError | None:
    """Return the error for a failed read of topics; None if the broker is not the cause."""
    if any(name in text for name in ("KAFKA_DATA_LOSS", "Some data may have been lost")):
        return PipelineError(
            f"{servers} deleted records while they were read: start again",
            exit_code=CONTRADICTION,
        )
    known = ("TimeoutException", "AuthorizationException", "DisconnectException")
    return request_failed(servers, text) if any(name in text for name in known) else None
