"""Upgrades of a release under load: nothing is lost or doubled, and no partition waits for long.

Three rendered pods run as processes; a version is another folder of code. The checks are the
same as in all other tests of the service; how long a partition stood still is reported.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from ringfence_client.headers import DUPLICATE_ID
from ringfence_state.segment import Segment
from tests.broker.recorder import Recorder
from tests.broker.service import REPOSITORY
from tests.broker.topics import delete_topic
from tests.broker.workload import PARTITIONS, Record
from tests.broker.world import World
from tests.helm.chart import Helm
from tests.helm.pod import Pod
from tests.helm.release import CONTRADICTION, Release
from tests.helm.steady import Load, Pauses
from tests.helm.versions import NEWER, another, as_today, with_newer_format
from tests.histories.checks import anomalies
from tests.soak.footprint import footprint
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = [
    *(pytest.mark.helm, pytest.mark.broker, pytest.mark.timeout(1800)),
    pytest.mark.usefixtures("boxes"),
]

REPLICAS: Final = 3
RECORDS_PER_S: Final = 300
RECORDS: Final = 120_000
"""More than any of these tests has the time to send."""

Say = Callable[[str], None]


class EitherWorld(World):
    """One in which runs of today's format and of the newer one stand side by side."""

    def run_of(self, value: bytes) -> Segment:
        return super().run_of(as_today(value))


class Stage(NamedTuple):
    """A release under load, and who watches it."""

    world: World
    release: Release
    pauses: Pauses


@pytest.fixture
def stage(kafka: Broker, helm: Helm, tmp_path: Path) -> Iterator[Stage]:
    """Judged at the end, when all pods have left and all that was sent is decided."""
    group = f"upgrade-{time.time_ns()}"
    with EitherWorld(kafka.client_properties, tmp_path, group, count=RECORDS) as world:
        world.create()
        release = Release(helm, world, REPLICAS)
        with Recorder(world) as recorder, Pauses(world) as pauses:
            release.scale(1)
            with Load(world, recorder, RECORDS_PER_S):
                yield Stage(world, release, pauses)
            world.wait_decided()
            last = release.leave()
        assert anomalies(recorder.history()) == []
        world.verify()
        world.verify_store(volume=last.volume.name)


@contextmanager
def timed(stage: Stage, say: Say, what: str) -> Iterator[None]:
    """Tell how long something took, and how long a partition stood still in it."""
    began_s = time.monotonic()
    yield
    took_s, pause = time.monotonic() - began_s, stage.pauses.longest(began_s)
    say(f"{what}: {took_s:.1f} s; the longest pause of a partition {pause}")


@pytest.mark.row(28)
def test_rolling_updates_to_a_patch_and_to_a_newer_format_whose_rollback_is_refused(
    stage: Stage, tmp_path: Path, say: Say
) -> None:
    later = another(tmp_path / "later", "0.1.1")
    newer = with_newer_format(tmp_path / "newer", "0.2.0")
    stage.release.scale(REPLICAS)
    with timed(stage, say, f"rolling update of {REPLICAS} to 0.1.1"):
        stage.release.roll(later, "0.1.1")
    assert stage.release.fallen == [], "no container ended by itself"
    with timed(stage, say, f"rolling update of {REPLICAS} to state format {NEWER}"):
        stage.release.roll(newer, "0.2.0")
    assert set(stage.release.fallen) <= {CONTRADICTION}, "an older one gives way and no more"
    until_written(stage)
    with timed(stage, say, f"one of {REPLICAS} back to the older format, and forward again"):
        pod = stage.release.pods[-1]
        stage.release.replace(pod, REPOSITORY)
        assert pod.wait(120) == CONTRADICTION, pod.tail()
        assert f"state format {NEWER}, this version reads" in pod.tail()
        stage.release.replace(pod, newer)
        stage.release.scale(REPLICAS)


def until_written(stage: Stage) -> None:
    """Until every partition is committed with the newer format."""
    sent = stage.world.sent
    eventually(lambda: stage.world.decided > sent + RECORDS_PER_S, *stage.release.pods)


def test_scaling_and_losing_nodes_under_load(stage: Stage, tmp_path: Path, say: Say) -> None:
    release = stage.release
    one, two, three = release.pods
    base = footprint(one.process.pid)
    with timed(stage, say, f"scaled from 1 to {REPLICAS}"):
        release.scale(REPLICAS)
    with timed(stage, say, "a node was lost, its volume moved to another"):
        release.lose(two, tmp_path / "moved")
        wait_restored(release)
    with timed(stage, say, "a node was lost with its volume"):
        release.lose(three, None)
        wait_restored(release)
    with timed(stage, say, f"scaled from {REPLICAS} to 1"):
        release.scale(1)
    one.wait_ready(PARTITIONS)
    eventually(lambda: footprint(one.process.pid).returned_to(base), one)


def wait_restored(release: Release) -> None:
    """Until every partition is restored, and each pod has some."""

    def settled() -> bool:
        owned = [each.partitions() for each in release.pods if each.is_wanted]
        parts = [part for own in owned for part in own]
        is_whole = all(owned) and len(parts) == PARTITIONS
        return is_whole and all(part["phase"] == "running" for part in parts)

    eventually(settled, *release.pods)


def test_what_was_remembered_can_be_given_up_for_an_older_format(
    kafka: Broker, helm: Helm, tmp_path: Path
) -> None:
    copies = [
        (0, Record(b"k", b"%d" % n, (("addr", b"a"), (DUPLICATE_ID, b"x")), 1)) for n in range(5)
    ]
    group = f"given-up-{time.time_ns()}"
    with World(kafka.client_properties, tmp_path, group, work=copies) as world:
        world.create()
        (pod,) = Release(helm, world).pods
        pod.code = with_newer_format(tmp_path / "newer", "0.2.0")
        decide(world, pod, 2)
        pod.code = REPOSITORY
        pod.start()
        assert pod.wait(120) == CONTRADICTION, pod.tail()
        give_up(world)
        decide(world, pod, 3)
        accepted = [each.record.value for each in world.read(world.output)[0]]
        rejected = [each.record.value for each in world.read(world.letters)[0]]
    assert accepted == [b"0", b"2"], "known once for each format"
    assert rejected == [b"1", b"3", b"4"]


def decide(world: World, pod: Pod, count: int) -> None:
    """Have so many records more decided by a pod."""
    world.send(count)
    pod.start()
    world.wait_decided()
    pod.delete()


def give_up(world: World) -> None:
    """Steps 2 and 3 of docs/upgrades.md: the offsets alone are kept."""
    admin = AdminClient(dict(world.client))
    places = [TopicPartition(world.input, number) for number in range(PARTITIONS)]
    asked = ConsumerGroupTopicPartitions(world.group, places)
    told = admin.list_consumer_group_offsets([asked])[world.group].result(30)
    known = [place for place in told.topic_partitions if place.offset >= 0]
    bare = [TopicPartition(place.topic, place.partition, place.offset) for place in known]
    again = ConsumerGroupTopicPartitions(world.group, bare)

    def is_reset() -> bool:
        try:
            answer = admin.alter_consumer_group_offsets([again])[world.group].result(30)
        except KafkaException:
            return False  # who ended with a failure is a member until its session is over
        return all(place.error is None for place in answer.topic_partitions)

    eventually(is_reset)
    delete_topic(world.client, world.changelog)
