"""The retry policy: when a wait ends, and when the process does."""

from datetime import UTC, datetime

import pytest

from ringfence_service.config.model import ServiceSettings
from ringfence_service.errors import ExitCode
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.retry import BROKER_PATIENCE_S, RetryPolicy
from ringfence_service.queries.status import ServiceStatus, StatusBoard
from ringfence_service.telemetry.metrics import Metrics
from tests.support.helpers import ending
from tests.unit.main.test_check import Hands


class World:
    """A policy, and what its reporter has published."""

    def __init__(self) -> None:
        self.clock = Hands()
        nothing = ServiceStatus.starting("0", "g", datetime.fromtimestamp(0, UTC))
        self.board = StatusBoard(nothing, self.clock.monotonic_s)
        metrics = Metrics(self.board, {"version": "0"}, addresses_max=10)
        settings = ServiceSettings(group_id="g")
        self.reporter = Reporter(settings, self.clock, self.board, metrics)
        self.policy = RetryPolicy(self.reporter, self.clock, settings.session_timeout_ms)

    def turned(self, standstill: str | None = None, *, has_caught_up: bool = False) -> None:
        self.policy.turned(None, standstill, lambda: has_caught_up)

    @property
    def waits_for(self) -> str | None:
        return self.board.read().waiting_for


@pytest.fixture
def world() -> World:
    return World()


def test_a_wait_lasts_from_its_first_sentence_on(world: World) -> None:
    world.policy.wait("for the broker")
    world.clock.sleep(5)
    world.policy.wait("for its replicas")
    world.policy.begin_life()
    assert world.waits_for == "for its replicas"
    assert world.policy.waited_s() == 5


def test_a_turn_without_a_failure_ends_a_wait(world: World) -> None:
    world.policy.wait("for the broker")
    world.clock.sleep(1)
    world.turned()
    assert world.policy.waited_s() == 0
    world.policy.wait("for the broker")
    assert world.policy.waited_s() == 0


@pytest.mark.parametrize("proof", ["a commit", "nothing left to commit"])
def test_a_transaction_that_is_not_answered_is_a_wait_until_there_is_a_proof(
    world: World, proof: str
) -> None:
    world.policy.on_wait(1.9)
    assert world.policy.waited_s() == 0
    world.policy.on_wait(2.0)
    assert world.waits_for == "the broker, which leaves a transaction unanswered"
    world.clock.sleep(1)
    world.turned()
    assert world.policy.waited_s() == 1
    if proof == "a commit":
        world.policy.committed()
    world.turned(has_caught_up=proof != "a commit")
    assert world.policy.waited_s() == 0


def test_a_reason_that_is_known_says_more_than_that_nobody_answers(world: World) -> None:
    world.policy.wait("for its replicas")
    world.policy.on_wait(2.0)
    assert world.waits_for == "for its replicas"


def test_a_quota_is_the_reason_of_a_wait_while_it_is_in_force(world: World) -> None:
    world.reporter.throttled(2.0)
    world.policy.on_wait(2.5)
    assert world.waits_for is not None
    assert "throttles this client (quota)" in world.waits_for
    world.clock.sleep(30)
    assert world.policy.cause_of("the broker") == "the broker"


def test_the_end_of_a_quota_is_none(world: World) -> None:
    world.reporter.throttled(0.0)
    assert world.policy.cause_of("the broker") == "the broker"


def test_a_broker_that_refuses_everything_ends_the_process(world: World) -> None:
    world.policy.back_off("the broker")
    world.clock.sleep(BROKER_PATIENCE_S)
    with ending(ExitCode.BROKER, "Gave up waiting for the broker"):
        world.policy.back_off("the broker")


def test_pauses_grow_until_a_turn_without_a_failure(world: World) -> None:
    def paused_s() -> float:
        before_s = world.clock.monotonic_s()
        world.policy.back_off("the broker")
        return world.clock.monotonic_s() - before_s

    assert [paused_s() for _ in range(6)] == pytest.approx([0.1, 0.5, 1.0, 2.0, 2.0, 2.0])
    world.turned()
    assert paused_s() == pytest.approx(0.1)


def test_a_standstill_of_all_routes_is_shown_and_ends_with_the_first_that_can_be_read(
    world: World,
) -> None:
    for _ in range(10):
        world.turned("a topic")
        world.clock.sleep(1_000)
        assert world.waits_for == "a topic"
        assert world.board.read().stands_still
    world.turned()
    world.reporter.publish("running", ())
    assert world.waits_for is None


def test_after_a_standstill_the_broker_is_waited_for_as_long_as_ever(world: World) -> None:
    world.turned("a topic")
    world.clock.sleep(10 * BROKER_PATIENCE_S)
    world.policy.back_off("the broker")
    assert world.waits_for == "the broker"
    world.clock.sleep(BROKER_PATIENCE_S)
    with ending(ExitCode.BROKER, "Gave up waiting for the broker"):
        world.policy.back_off("the broker")
