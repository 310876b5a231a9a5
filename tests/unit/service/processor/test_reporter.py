"""The watch: what it hears is on the board, and only what was committed counts."""

from datetime import UTC, datetime

from service.config.load import ServiceSettings
from service.processor.reporter import Reporter
from service.queries.status import ServiceStatus, StatusBoard
from service.telemetry.metrics import Metrics
from tests.support.deciding import World, named
from tests.unit.service.main.test_check import Hands

START = datetime.fromtimestamp(0, UTC)


def watched() -> tuple[Reporter, StatusBoard, Hands]:
    clock = Hands()
    board = StatusBoard(
        ServiceStatus("starting", None, "0", "g", START, (), 0, 0, 0, 0, 0, 0, None),
        clock.monotonic_s,
    )
    metrics = Metrics(board, {"version": "0"}, addresses_max=10)
    return Reporter(ServiceSettings(group_id="g"), clock, board, metrics), board, clock


def test_a_commit_is_counted_and_published() -> None:
    watch, board, _ = watched()
    watch.committed(World().decide(named(0, b"a"), named(1, b"a")), 0.5)
    watch.publish("running", ())
    status = board.read()
    assert (status.phase, status.group_id) == ("running", "g")
    assert (status.records_consumed, status.records_accepted, status.duplicates) == (2, 1, 1)
    assert status.transactions_committed == 1


def test_a_wait_shows_its_sentence_and_keeps_since_when_over_another_sentence() -> None:
    watch, board, clock = watched()
    clock.sleep(5)
    watch.wait("for the broker")
    clock.sleep(5)
    watch.wait("for its replicas")
    assert (board.read().phase, board.read().waiting_for) == ("waiting", "for its replicas")
    assert watch.waiting is not None
    assert watch.waiting.since_s == 5


def test_a_transaction_that_is_not_answered_shows_until_one_commits() -> None:
    watch, board, _ = watched()
    watch.on_wait(1.9)
    assert board.read().waiting_for is None
    watch.on_wait(2.0)
    assert board.read().waiting_for == "the broker, which leaves a transaction unanswered"
    assert not watch.go_on(), "a round without a commit proves nothing"
    watch.committed(World().decide(named(0, b"a")), 2.5)
    assert watch.go_on()


def test_a_reason_that_was_told_already_says_more_than_that_nobody_answers() -> None:
    watch, board, _ = watched()
    watch.wait("for its replicas", until_commit=True)
    watch.on_wait(2.0)
    assert board.read().waiting_for == "for its replicas"


def test_going_on_ends_the_wait() -> None:
    watch, board, _ = watched()
    watch.wait("for the broker")
    watch.go_on()
    watch.publish("running", ())
    assert watch.waiting is None
    assert board.read().waiting_for is None
