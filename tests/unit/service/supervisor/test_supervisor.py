"""The supervisor: real small processes that end in every way, and what becomes of the rest."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.supervisor import supervisor as module
from ringfence_service.supervisor import supervisor as restart_policy
from ringfence_service.supervisor.supervisor import RestartPolicy
from ringfence_service.supervisor.worker_handle import WorkerHandle
from tests.support.helpers import ending, some
from tests.support.waiting import LIMIT_S, eventually
from tests.unit.service.supervisor.scene import is_alive, lives, play, run, supervisor_of


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces at once; all else is as it is."""
    monkeypatch.setattr(restart_policy, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(restart_policy, "_PAUSE_MAX_S", 0.05)


def test_every_part_has_a_process_and_all_end_in_order(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "well")

    def scene() -> None:
        eventually(lambda: crew.read().phase == "running")
        assert crew.read().complete
        assert [part.partition for part in crew.read().partitions] == [0, 1, 2, 3]
        assert crew.read().counts.records_consumed == 20
        found = [handle.status() for handle in crew.handles]
        assert [each.phase for each in found] == ["running", "running"]
        paths = {(each.fast_path, each.fast_path_fault) for each in found}
        assert paths == {("python", "not built")}

    play(crew, scene)
    assert [len(lives(tmp_path, worker)) for worker in (0, 1)] == [1, 1]
    assert not any(is_alive(pid) for worker in (0, 1) for pid in lives(tmp_path, worker))
    assert crew.read().phase == "stopping"
    assert [handle.last_exit_code for handle in crew.handles] == [0, 0]


def test_parts_that_routes_in_force_need_are_started_once(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "routed", workers=1)

    def scene() -> None:
        eventually(lambda: len(crew.handles) == 2 and crew.read().phase == "running")
        assert [handle.task.label for handle in crew.handles] == ["0", "0-by-address"]
        assert crew.has_run()
        time.sleep(0.3)  # noqa: TID251 - a second start would come within this

    play(crew, scene)
    files = [tmp_path / f"lives-{label}" for label in ("0", "0-by-address")]
    assert [len(file.read_text().splitlines()) for file in files] == [1, 1]


def test_a_process_that_is_killed_is_replaced_and_the_others_go_on(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "well")
    victim = crew.handles[0]

    def scene() -> None:
        eventually(lambda: crew.read().phase == "running")
        pid = some(victim.pid)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: victim.last_exit_code is not None)
        eventually(lambda: crew.read().phase == "running")
        assert crew.read().counts.records_consumed == 30, "what the dead one had counted stays"
        now = victim.status()
        assert (now.restarts, now.last_exit_code) == (1, -signal.SIGKILL)
        assert now.pid not in {None, pid}
        assert crew.handles[1].status().restarts == 0
        told = [(tmp_path / f"goes-on-{worker}").read_text() for worker in (0, 1)]
        assert told == ["True", "False"], "who replaces one that had run is patient"

    play(crew, scene)


def test_while_it_is_replaced_the_instance_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_policy, "_FIRST_PAUSE_S", 30.0)
    monkeypatch.setattr(restart_policy, "_PAUSE_MAX_S", 30.0)
    crew = supervisor_of(tmp_path, "killed")

    def scene() -> None:
        eventually(lambda: crew.handles[0].trouble is not None and crew.handles[1].has_run)
        now = crew.read()
        assert now.phase == "waiting"
        assert now.waiting_for is not None
        assert now.waiting_for.startswith("worker 0, which was killed by SIGKILL and will")
        assert not now.complete
        assert crew.heartbeat_age_ms() < 5000

    play(crew, scene)


@pytest.mark.parametrize("code", [2, 3, 4, 5])
def test_an_end_that_would_befall_the_next_one_too_ends_the_instance(
    tmp_path: Path, code: int
) -> None:
    with pytest.raises(ExitError) as ended:
        run(supervisor_of(tmp_path, str(code)))
    assert ended.value.exit_code == code
    assert ended.value.sentence == f"A sentence that tells of code {code}."
    assert len(lives(tmp_path)) == 1
    assert not any(is_alive(pid) for pid in lives(tmp_path, 1))


def test_who_never_joins_is_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_policy, "FUTILE_MAX", 3)
    monkeypatch.setattr(module, "FUTILE_MAX", 3)
    with ending(ExitCode.NO, "Worker 0 has ended 3 times"):
        run(supervisor_of(tmp_path, "never", workers=1))
    assert len(lives(tmp_path)) == 3


def test_a_first_fall_is_forgiven(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "once")
    play(crew, lambda: eventually(lambda: crew.read().phase == "running"))
    assert len(lives(tmp_path)) == 2


@pytest.mark.parametrize("behaviour", ["mute", "well"])
def test_a_process_that_is_not_heard_of_is_killed_and_replaced(
    tmp_path: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_s, hastened = vars(WorkerHandle)["silent_s"].fget, set[WorkerHandle]()
    hasty = property(lambda of: silent_s(of) * (100 if of in hastened else 1))
    monkeypatch.setattr(WorkerHandle, "silent_s", hasty)
    crew = supervisor_of(tmp_path, behaviour)

    def scene() -> None:
        eventually(lambda: crew.handles[1].has_run)
        if behaviour == "well":
            eventually(lambda: crew.handles[0].has_run)
            os.kill(crew.handles[0].pid or 0, signal.SIGSTOP)
        hastened.add(crew.handles[0])
        eventually(lambda: crew.handles[0].last_exit_code == -signal.SIGKILL)
        assert crew.handles[1].status().restarts == 0

    play(crew, scene)


def test_who_has_only_the_group_left_to_leave_is_not_waited_for_as_long_as_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAVE_S", 100_000.0)
    monkeypatch.setattr(module, "_COMMIT_S", 100_000.0)
    crew = supervisor_of(tmp_path, "leaves for ever")

    def scene() -> None:
        eventually(lambda: crew.read().phase == "running")
        crew.stop()
        eventually(lambda: crew.handles[1].last_exit_code == 0)
        monkeypatch.setattr(module, "_LEAVE_S", 0.1)

    play(crew, scene)
    assert crew.handles[0].last_exit_code == -signal.SIGKILL


def test_who_does_not_end_is_killed_when_its_transaction_has_had_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAVE_S", 0.1)
    monkeypatch.setattr(module, "_COMMIT_S", 0.5)
    crew = supervisor_of(tmp_path, "stubborn")
    told_s: list[float] = []

    def scene() -> None:
        eventually(lambda: crew.read().phase == "running")
        told_s.append(time.monotonic())

    play(crew, scene)
    assert crew.handles[0].last_exit_code == -signal.SIGKILL
    assert time.monotonic() - told_s[0] > 1.5, "the timeout of a transaction, and its commit"


SUPERVISE = """
import sys
from pathlib import Path
from tests.unit.service.supervisor.scene import supervisor_of
crew = supervisor_of(Path(sys.argv[1]), "well")
crew.start()
crew.run()
"""


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_supervisor_that_is_killed_leaves_no_child(tmp_path: Path, *, is_stopped: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISE, str(tmp_path)]) as crew:
        eventually(lambda: len(lives(tmp_path, 0)) == len(lives(tmp_path, 1)) == 1)
        children = lives(tmp_path, 0) + lives(tmp_path, 1)
        if is_stopped:
            os.kill(children[0], signal.SIGSTOP)
        crew.kill()
        crew.wait(LIMIT_S)
        eventually(lambda: not any(map(is_alive, children)))


def test_ctrl_c_in_the_terminal_is_heard_by_the_supervisor_alone(tmp_path: Path) -> None:
    crew = supervisor_of(tmp_path, "well")

    def scene() -> None:
        eventually(lambda: crew.read().phase == "running")
        for handle in crew.handles:
            os.kill(handle.pid or 0, signal.SIGINT)
        time.sleep(0.3)  # noqa: TID251 - who had heard it would have ended within this
        assert [handle.status().restarts for handle in crew.handles] == [0, 0]
        assert crew.read().phase == "running"

    play(crew, scene)


def test_the_pause_doubles_and_is_forgotten_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restart_policy, "_FIRST_PAUSE_S", 0.5)
    monkeypatch.setattr(restart_policy, "_PAUSE_MAX_S", 30.0)
    part = RestartPolicy()
    pauses_s = [part.pause_s(1.0) for _ in range(8)]
    assert pauses_s == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert part.pause_s(60.0) == 0.5
    assert max(part.pause_s(1.0) for _ in range(3000)) == 30.0, "half a day of short lives"


def test_only_lives_that_never_joined_count_as_futile() -> None:
    part = RestartPolicy()
    assert not any(part.is_futile(had_run=False) for _ in range(9))
    assert not part.is_futile(had_run=True)
    assert not any(part.is_futile(had_run=False) for _ in range(9))
    assert part.is_futile(had_run=False)
