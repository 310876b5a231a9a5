"""Nothing is lost, doubled or reordered, wherever the service is killed, stopped or robbed."""

import json
import random
import shutil
import signal
from pathlib import Path

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.service import IN_TIME_S, struck
from tests.broker.victim import Step
from tests.broker.world import Manner, World
from tests.support.native import needs_native
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

EXIT_FENCED = 4


@pytest.fixture
def world(broker: Broker, new_world: NewWorld) -> World:
    return new_world(broker.client_properties)


@pytest.mark.parametrize(
    ("step", "count"),
    [
        pytest.param(Step.BEFORE_BEGIN, 3, marks=pytest.mark.row(1)),
        pytest.param(Step.AFTER_BEGIN, 4, marks=pytest.mark.row(2)),
        pytest.param(Step.MID_PRODUCE, 700, marks=pytest.mark.row(3)),
        pytest.param(Step.AFTER_FLUSH, 3, marks=pytest.mark.row(4)),
        pytest.param(Step.AFTER_SEND_OFFSETS, 4, marks=pytest.mark.row(5)),
        pytest.param(Step.INSIDE_COMMIT, 3, marks=pytest.mark.row(6)),
        pytest.param(Step.AFTER_COMMIT, 3, marks=pytest.mark.row(7)),
        pytest.param(Step.AFTER_STORE, 5, marks=pytest.mark.row(8)),
    ],
)
def test_a_kill_at_any_step_leaves_every_record_with_one_fate(
    world: World, step: Step, count: int
) -> None:
    world.send()
    service = world.service()
    service.die(step, count)
    world.glimpse()
    service.start()
    world.conclude(service)


@needs_native
@pytest.mark.parametrize(
    ("path", "step", "count"),
    [
        ("native", Step.MID_PRODUCE, 700),
        ("python", Step.MID_PRODUCE, 700),
        ("python", Step.AFTER_SEND_OFFSETS, 4),
    ],
)
def test_a_kill_on_either_fast_path_leaves_every_record_with_one_fate(
    broker: Broker, new_world: NewWorld, path: str, step: Step, count: int
) -> None:
    manner = Manner(service="" if path == "native" else 'fast_path = "python"')
    world = new_world(broker.client_properties, manner=manner)
    world.send()
    service = world.service()
    service.die(step, count)
    world.glimpse()
    service.start()
    service.wait_ready()
    assert json.loads(service.get("/v1/info")[1])["fast_path"] == path
    world.conclude(service)


@pytest.mark.row(9)
def test_a_kill_during_the_restore_restores_again(world: World) -> None:
    world.send(2000)
    service = world.started()
    world.wait_decided()
    service.stop()
    shutil.rmtree(world.store_folder())
    service.die(Step.MID_RESTORE, 1)
    service.start()
    world.conclude(service)


@pytest.mark.row(12)
def test_a_lost_state_folder_is_restored_from_the_changelog(world: World) -> None:
    world.send(1500)
    service = world.service()
    service.die(Step.AFTER_STORE, 6)
    shutil.rmtree(world.store_folder())
    service.start()
    world.conclude(service)


def truncate(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[random.Random(1).randrange(len(content) // 4, len(content))] ^= 0x10
    file.write_bytes(content)


@pytest.mark.row(18)
def test_damaged_store_files_are_noticed_and_restored(world: World) -> None:
    service = world.service()
    for files, ends, damage in (
        ("*.log", signal.SIGKILL, truncate),
        ("*.sst", signal.SIGTERM, flip),
        ("MANIFEST-*", signal.SIGKILL, flip),
        ("CURRENT", signal.SIGTERM, truncate),
        ("OPTIONS-*", signal.SIGKILL, flip),
        ("*config.json", signal.SIGTERM, truncate),
    ):
        service.start()
        world.send(400)
        world.wait_decided()
        service.signal(ends)
        service.wait()
        for file in world.store_folder().glob(f"{world.input}-*/{files}"):
            if file.stat().st_size:
                damage(file)
    service.start()
    world.conclude(service)


def test_sigterm_under_load_ends_in_time_and_loses_nothing(world: World) -> None:
    service = world.service()
    world.send()
    for share in (200, 1200):
        service.start()
        world.wait_decided(share)
        service.stop(IN_TIME_S)
        world.glimpse()
    service.start()
    world.conclude(service)


def test_two_instances_share_the_work_and_hand_it_over(world: World) -> None:
    world.send(1000)
    first = world.started()
    world.wait_decided(200)
    second = world.started("1")
    world.send(1000)
    world.wait_decided()
    second.wait_ready(2)
    first.wait_ready(2)
    first.stop()
    world.conclude(second, "1")


@pytest.mark.row(10)
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Step.AFTER_BEGIN, marks=pytest.mark.long),
        Step.AFTER_SEND_OFFSETS,
        pytest.param(Step.AFTER_COMMIT, marks=pytest.mark.long),
    ],
)
def test_a_zombie_that_wakes_after_the_takeover_writes_nothing(world: World, step: Step) -> None:
    zombie = world.service()
    world.send(2000)
    zombie.start(struck(step, 4, "STOP"))
    zombie.wait_until_stopped()
    heir = world.started("1")
    world.wait_decided()
    world.glimpse()
    zombie.signal(signal.SIGCONT)
    world.send()
    world.wait_decided()
    zombie.wait_ready(2)
    zombie.stop()
    heir.stop()
    world.verify()


@pytest.mark.long
@pytest.mark.row(11)
def test_of_two_services_with_one_name_one_leaves(world: World) -> None:
    first = world.service()
    world.send(1000)
    first.start(struck(Step.AFTER_SEND_OFFSETS, 3, "STOP"))
    first.wait_until_stopped()
    second = world.started(volume="moved")
    world.wait_decided()
    first.signal(signal.SIGCONT)
    eventually(lambda: first.ended or second.ended, first, second)
    left, stays = (first, second) if first.ended else (second, first)
    assert left.wait() == EXIT_FENCED, left.tail()
    world.conclude(stays, volume="state" if stays is first else "moved")
