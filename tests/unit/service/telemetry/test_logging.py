"""The log: JSON lines for machines, plain lines on a terminal."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from ringfence_service.telemetry import logging as log
from tests.fakes.logs import logging_to


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    with logging_to(None):
        yield


@pytest.fixture
def stream() -> io.StringIO:
    """Where it is written."""
    made = io.StringIO()
    log.configure(made, "info")
    return made


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_with_time_level_and_fields(stream: io.StringIO) -> None:
    structlog.stdlib.get_logger("ringfence_service.processor.loop").info(
        "assigned", topic="orders", partition=3
    )
    (line,) = lines(stream)
    assert str(line.pop("ts")).endswith("Z")
    assert line == {
        "event": "assigned",
        "level": "info",
        "logger": "ringfence_service.processor.loop",
        "topic": "orders",
        "partition": 3,
    }


def test_what_libraries_log_takes_the_same_way(stream: io.StringIO) -> None:
    logging.getLogger("another.package").warning("slow %s", "disk")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == (
        "slow disk",
        "warning",
        "another.package",
    )


def test_the_servers_starts_and_requests_are_quiet(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.access").info("GET /livez")
    logging.getLogger("uvicorn.error").error("broken")
    assert [line["event"] for line in lines(stream)] == ["broken"]


def fail(secret: str) -> None:
    raise ZeroDivisionError(len(secret))


def log_a_failure() -> None:
    try:
        fail("hunter2")
    except ZeroDivisionError:
        structlog.stdlib.get_logger("x").exception("failed", topic="orders")


def test_a_stack_stays_on_its_line_without_local_variables(stream: io.StringIO) -> None:
    log_a_failure()
    (line,) = lines(stream)
    assert "ZeroDivisionError" in str(line["exception"])
    assert "secret =" not in stream.getvalue()


def test_a_terminal_gets_lines_to_read_without_local_variables() -> None:
    stream = Terminal()
    log.configure(stream, "info")
    log_a_failure()
    assert "ZeroDivisionError" in stream.getvalue()
    assert "orders" in stream.getvalue()
    assert "secret =" not in stream.getvalue()


def test_configuring_twice_writes_once(stream: io.StringIO) -> None:
    log.configure(stream, "info")
    structlog.stdlib.get_logger("x").info("once")
    assert len(lines(stream)) == 1


def test_the_kafka_client_repeats_itself_once_a_minute(stream: io.StringIO) -> None:
    for second, number in enumerate([1, 2, 3, 40, 61]):
        text = f"FAIL [producer-{number}] refused"
        record = logging.makeLogRecord({"name": "librdkafka", "levelno": 40, "msg": text})
        record.created = 20.0 * second
        logging.getLogger("librdkafka").handle(record)
    assert stream.getvalue().count("FAIL") == 2


def test_json_on_a_terminal_and_text_in_a_file_where_it_is_asked_for() -> None:
    terminal, file = Terminal(), io.StringIO()
    log.configure(terminal, "info", "json")
    structlog.stdlib.get_logger("x").info("once")
    assert lines(terminal)[0]["event"] == "once"
    log.configure(file, "info", "text")
    structlog.stdlib.get_logger("x").info("once", topic="orders")
    assert "topic=orders" in file.getvalue(), "without colours"
