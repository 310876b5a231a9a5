"""How long a worker waits for a broker that does not answer, and what it says meanwhile."""

from collections.abc import Callable
from itertools import repeat

import pytest
from confluent_kafka import KafkaError

from ringfence_service.errors import ExitCode
from ringfence_service.supervisor.loop_runner import LoopRunner
from tests.fakes.errors import fenced, plain
from tests.support.helpers import ending
from tests.support.living import Living, gone, late, refused
from tests.unit.service.supervisor.test_loop_runner import ended, run, stopping


def test_what_is_known_to_be_wrong_with_the_way_is_what_it_waits_for_and_ends_with() -> None:
    living = Living()
    known = living.cluster.known_cause = "the broker at k:1, which refuses connections; start it"
    living.faults.at["topics"] = iter(gone, None)
    assert ended(living).sentence == f"Cannot work with {known}."
    assert living.board.read().waiting_for == known


def test_what_is_known_to_be_wrong_is_what_a_running_loop_waits_for() -> None:
    living = Living()
    known = living.cluster.known_cause = "the broker at k:1, which refuses connections; start it"
    living.send("a")
    worker = living.worker()
    loop = worker.open_loop()
    assert loop is not None
    for step in ("send_offsets_to_transaction", "names"):
        living.faults.at[step] = repeat(gone(), 3)
        living.clock.sleep(40)  # until the inputs are looked for again
        for _ in range(3):
            worker.turn(loop)
        assert living.board.read().waiting_for == known
        for _ in range(20):
            worker.turn(loop)
        assert living.board.read().waiting_for is None


def test_at_the_first_start_a_broker_that_never_answers_is_waited_for_20_seconds() -> None:
    living = Living()
    living.faults.at["topics"] = iter(gone, None)
    begun_s = living.clock.monotonic_s()
    error = ended(living)
    assert error.exit_code is ExitCode.BROKER
    assert "kafka:9092" in error.sentence
    assert 20 < living.clock.monotonic_s() - begun_s < 25


@pytest.mark.row(36)
@pytest.mark.parametrize("step", ["names", "cluster_id", "init_transactions", "ends"])
def test_at_the_first_start_a_cluster_that_answers_some_of_it_is_waited_for_300_seconds(
    step: str,
) -> None:
    """The rest was led by a broker that has just gone."""
    living = Living()
    living.faults.at[step] = iter(late, None)
    begun_s = living.clock.monotonic_s()
    assert ended(living).exit_code is ExitCode.BROKER
    assert 0 <= living.clock.monotonic_s() - begun_s - 300 < 15


def test_at_the_first_start_a_right_that_is_lacking_is_waited_for_20_seconds() -> None:
    living = Living()
    denied = plain(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "not allowed")
    living.faults.at["init_transactions"] = repeat(denied)
    begun_s = living.clock.monotonic_s()
    error = ended(living)
    assert error.exit_code is ExitCode.BROKER
    assert "the user's ACLs" in error.sentence
    assert 20 < living.clock.monotonic_s() - begun_s < 25


@pytest.mark.parametrize("error", [gone, late, refused])
@pytest.mark.parametrize("step", ["names", "cluster_id", "init_transactions", "create"])
def test_a_broker_that_answers_in_time_is_worked_with(
    step: str, error: Callable[[], Exception]
) -> None:
    living = Living()
    living.send("a")
    living.faults.at[step] = iter([error(), error(), error()])
    run(living)
    assert living.values("orders.unique") == ["a"]


def test_while_it_waits_for_its_start_it_says_so_and_lives() -> None:
    living = Living()
    ages: list[tuple[str, int]] = []

    def look() -> Exception:
        ages.append((living.board.read().phase, living.board.heartbeat_age_ms()))
        return gone()

    living.faults.at["names"] = iter(look, None)
    ended(living)
    assert ages[1:]
    assert all(phase == "waiting" and age_ms < 2000 for phase, age_ms in ages[1:])


def test_a_process_that_already_ran_waits_300_seconds_for_its_next_life() -> None:
    living = Living()
    living.send("a")
    living.faults.at["commit_transaction"] = iter([fenced()])
    times_s: list[float] = []

    def answer() -> Exception | None:
        times_s.append(living.clock.monotonic_s())
        return gone() if len(times_s) > 1 else None

    living.faults.at["names"] = iter(answer, 0)
    error = ended(living)
    assert error.exit_code is ExitCode.BROKER
    assert 0 <= living.clock.monotonic_s() - times_s[0] - 300 < 10


def test_a_process_that_goes_on_for_one_that_had_run_waits_300_seconds_too() -> None:
    living = Living()
    living.faults.at["names"] = repeat(gone())
    clients, begun_s = living.clients, living.clock.monotonic_s()
    worker = LoopRunner(
        *(living.config, clients, living.stores, living.clock, living.watch, living.inbox),
        resumes=True,
    )
    with ending(ExitCode.BROKER):
        worker.run()
    assert 0 <= living.clock.monotonic_s() - begun_s - 300 < 10


def test_it_can_be_stopped_while_it_waits_for_the_broker() -> None:
    living = Living()
    worker = living.worker()
    living.faults.at["names"] = iter(gone, None)
    living.faults.at["sleep"] = stopping(worker, 3)
    worker.run()
    assert living.faults.passed["names"] == 4
    assert living.board.read().phase == "stopping"


def test_a_broker_that_keeps_refusing_ends_the_process_and_the_group_is_left() -> None:
    living = Living()
    living.faults.at["commit_transaction"] = iter(refused, None)
    living.send("a")
    assert ended(living).exit_code is ExitCode.BROKER
    assert living.faults.passed["close"] == 2  # the group's, and that of the metadata topic
