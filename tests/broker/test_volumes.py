"""What becomes of a state folder that is moved, brought back from a backup, full, or not ours."""

import resource
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.service import Service
from tests.broker.victim import Step
from tests.broker.world import World
from tests.support.waiting import LIMIT_S
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

EXIT_CONTRADICTION: Final = 5
IN_A_NAMESPACE: Final = ("unshare", "--user", "--map-root-user", "--mount")


@pytest.fixture
def world(broker: Broker, new_world: NewWorld) -> World:
    return new_world(broker.client_properties, count=7000)


@pytest.mark.row(12)
def test_a_volume_that_was_moved_to_another_node_is_restored_from_its_tail_alone(
    world: World,
) -> None:
    world.send(1000)
    here = world.started()
    world.wait_decided()
    here.stop()
    shutil.move(world.store_folder(), world.store_folder(volume="moved"))
    there = world.started(volume="moved")
    there.wait_ready()
    assert there.restored == [0, 0, 0, 0]
    world.conclude(there, volume="moved")


@pytest.mark.row(12)
def test_a_volume_that_comes_back_from_a_backup_is_behind_and_catches_up(world: World) -> None:
    service, backup = world.service(), world.folder / "backup"
    for sent in (600, 700):
        world.send(sent)
        service.start()
        world.wait_decided()
        service.stop()
        if not backup.exists():
            shutil.copytree(world.store_folder(), backup)
    shutil.rmtree(world.store_folder())
    shutil.copytree(backup, world.store_folder())
    service.start()
    service.wait_ready()
    assert min(service.restored) > 0
    world.conclude(service)


@pytest.mark.long
@pytest.mark.row(9)
def test_a_kill_in_the_middle_of_a_wipe_wipes_again(world: World) -> None:
    world.send(1000)
    service = world.started()
    world.wait_decided()
    service.stop()
    for current in world.store_folder().glob(f"{world.input}-*/CURRENT"):
        current.write_bytes(b"rotten")
    service.die(Step.MID_WIPE, 2)
    service.start()
    world.conclude(service)


@pytest.mark.row(17)
def test_a_file_that_may_not_grow_ends_the_process_and_what_was_committed_is_restored(
    world: World,
) -> None:
    world.send(5000)
    service = world.started()
    world.wait_decided()
    largest = max(file.stat().st_size for file in world.store_folder().glob("*/*.log"))
    for worker in service.workers():
        resource.prlimit(worker, resource.RLIMIT_FSIZE, (largest, largest))
    world.send(1000)
    ends_for_want_of_a_disk(service, "ulimit -f")
    service.start()
    world.conclude(service)


def ends_for_want_of_a_disk(service: Service, fix: str = "make the volume larger") -> None:
    assert service.wait(LIMIT_S) == EXIT_CONTRADICTION, service.tail()
    assert fix in service.tail()


@pytest.fixture
def namespace() -> None:
    """Where a process may mount for itself alone."""
    done = subprocess.run([*IN_A_NAMESPACE, "true"], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("mounting is not permitted: no user namespaces here")


def mounted(kind: str, folder: Path) -> Sequence[str]:
    """The program sees a mount that nobody else does; it goes with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    return (*IN_A_NAMESPACE, "sh", "-c", f'mount {kind} "$0" && exec "$@"', str(folder))


@pytest.mark.long
@pytest.mark.row(17)
@pytest.mark.usefixtures("namespace")
def test_a_disk_without_room_for_a_store_ends_the_process(world: World) -> None:
    world.send(500)
    service = world.service()
    service.start(through=mounted("-t tmpfs -o size=16k none", world.folder / "state"))
    ends_for_want_of_a_disk(service)
    service.start()
    world.conclude(service)


@pytest.mark.row(17)
@pytest.mark.usefixtures("namespace")
def test_a_disk_that_fills_up_while_it_runs_ends_the_process(world: World) -> None:
    world.send(500)
    service, state = world.service(), world.folder / "state"
    service.start(through=mounted("-t tmpfs -o size=4m none", state))
    world.wait_decided()
    fill(Path(f"/proc/{service.process.pid}/root{state}") / "ballast")
    world.send(1000)
    ends_for_want_of_a_disk(service)
    service.start()
    world.conclude(service)


def fill(file: Path) -> None:
    """Until there is no room left, as the process sees its disk."""
    with suppress(OSError), file.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1):
            with suppress(OSError):
                while stream.write(bytes(size)):
                    pass


@pytest.mark.row(18)
@pytest.mark.usefixtures("namespace")
def test_an_unwritable_state_folder_is_reported_at_the_start(world: World) -> None:
    world.send(500)
    service = world.started()
    world.wait_decided()
    service.stop()
    folder = world.folder / "state"
    service.start(through=mounted(f"--bind -o ro {folder}", folder))
    assert service.wait(LIMIT_S) == EXIT_CONTRADICTION, service.tail()
    assert "service.state_dir" in service.tail()
    service.start()
    world.conclude(service)
