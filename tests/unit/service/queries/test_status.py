"""The board between the loop and its readers."""

from ringfence_service.queries.status import StatusBoard
from tests.api.fake_service import (
    INFO,
    RESTORING_PARTITION,
    RUNNING,
    RUNNING_PARTITION,
    STARTING,
    Clock,
)
from tests.support.statuses import changed, worker_status


def test_the_heartbeat_ages_until_the_next_beat() -> None:
    clock = Clock()
    board = StatusBoard(STARTING, clock)
    clock.now_s += 1.5
    assert board.heartbeat_age_ms() == 1500
    board.beat()
    assert board.heartbeat_age_ms() == 0


def test_publishing_is_no_heartbeat() -> None:
    clock = Clock()
    board = StatusBoard(STARTING, clock)
    clock.now_s += 1
    board.publish(RUNNING)
    assert board.heartbeat_age_ms() == 1000


def test_having_run_is_never_forgotten() -> None:
    board = StatusBoard(STARTING, Clock())
    assert not board.has_run()
    board.publish(RUNNING)
    board.publish(RUNNING._replace(phase="waiting"))
    assert board.has_run()


def test_a_process_tells_how_far_the_restore_of_its_partitions_is() -> None:
    worker = worker_status()
    done, half = RUNNING_PARTITION, RESTORING_PARTITION
    told = worker.restoring((done, half, changed(half, restored_records=1)))
    assert (told.partitions_restoring, told.restored_records) == (2, half.restored_records + 1)
    assert told.restore_remaining_records == 2 * 41
    unknown = changed(half, phase="assigned", restore_remaining_records=None)
    assert worker.restoring((half, unknown)).restore_remaining_records is None
    assert worker.restoring((done,)) == worker


def test_an_instance_is_as_fast_as_the_slowest_of_the_processes_that_have_reported() -> None:
    starting = worker_status(phase="starting")
    compiled = changed(starting, fast_path="native")
    slow = changed(starting, fast_path="python", fast_path_fault="it is not built")
    info = changed(INFO, fast_path=None)
    told = [
        info.with_fast_path(crew)
        for crew in ((starting,), (compiled, starting), (compiled, slow, compiled))
    ]
    assert [(each.fast_path, each.fast_path_fault) for each in told] == [
        (None, None),
        ("native", None),
        ("python", "it is not built"),
    ]
