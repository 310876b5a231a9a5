"""Layout check: compares the topology with the one that was written, and writes what is new.

Before that, the behaviour of a broker that the group does not know is tested
(`service/ringfence_service/metadata/broker_behaviour.py`), and the result is written with the
topology.

All processes of a group start at once, and each writer of the metadata topic fences the one before.
So one task of an instance writes, the others look for what it writes, and a process that was fenced
pauses for a random time that grows with each attempt and with what an attempt takes. A process that
pauses follows the topic, and writes nothing once the layout is there.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.config.tasks import ONLY
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import fault_of
from ringfence_service.metadata.broker_behaviour import BrokerBehaviourTest
from ringfence_service.metadata.file_routes import InstanceFileRoutes
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.layout import Topology, contradiction
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.topic import MetadataReader, MetadataWriter

_ATTEMPTS_MAX: Final = 12
"""With random pauses some attempt succeeds; if none does, the worker begins with new clients."""
_REFUSALS_MAX: Final = 5
"""Attempts while the broker refuses; then the worker waits, and says what for."""
_PAUSE_S: Final = 0.4
"""Half of the longest pause after the first attempt, unless that attempt took longer."""
_PAUSE_MAX_S: Final = 60.0
"""Enough for 16 instances that start at once and whose writes take five seconds each."""
_AWAITED_S: Final = (1.0, 3.0)
"""How long a record is awaited that the instance's first task, or this one, has written.

Random: the first task may have ended, and then the others of the instance write.
"""
_LOOK_S: Final = 0.2
"""How often a pause looks whether the layout is there."""


class LayoutContendedError(Exception):
    """Other processes fenced each attempt to write the layout: the broker works, and so do they."""

    def __str__(self) -> str:
        """Return what the process waits for."""
        return "the layout, which other processes of the group write too; it is tried again"


def check_layout(
    now: Callable[[MetadataImage], Topology],
    own: InstanceFileRoutes,
    follower: MetadataReader,
    clients: Clients,
    topic: str,
    clock: Clock,
    beat: Callable[[], None],
    is_stopping: Callable[[], bool] = lambda: False,
    test: BrokerBehaviourTest | None = None,
) -> None:
    """Write what is new of the topology; ExitError 5 if it contradicts the one that was written.

    With a `test`, a cluster that has not passed it is tested first; ExitError 3 if it fails.

    `now` returns the topology that the settings require. `own` are the routes of this instance's
    file, which are written if they are missing. KafkaException if the broker refuses;
    LayoutContendedError if other processes fence each attempt. A pause also ends, with nothing
    written, once `is_stopping` returns True: the caller must not decide anything then.
    """
    if _is_written(now, own, follower, test):
        return
    chance = random.Random(f"{own.instance}/{clients.part.label}")  # noqa: S311 - no secret
    writer = MetadataWriter(lambda: clients, topic, clock)
    pause_s = 0.0 if clients.part == ONLY else chance.uniform(*_AWAITED_S)
    longest_s = _PAUSE_S
    attempts = 0
    while True:
        looks = math.ceil(pause_s / _LOOK_S)
        for _ in range(looks):
            clock.sleep(pause_s / looks)
            beat()
            follower.poll()
            if is_stopping() or _is_written(now, own, follower, test):
                return
        attempts += 1
        beat()  # each attempt may take most of a minute
        begun_s = clock.monotonic_s()
        try:
            _attempt(writer, now, own, follower, test)
        except KafkaException as error:
            if fault_of(error.args[0]).fenced:
                if attempts == _ATTEMPTS_MAX:
                    raise LayoutContendedError from error
            elif attempts >= _REFUSALS_MAX:
                raise
            longest_s = min(_PAUSE_MAX_S, 2 * max(longest_s, clock.monotonic_s() - begun_s))
            pause_s = chance.uniform(0, longest_s)
        else:
            beat()
            # The client may have stopped to fetch, without an error: new ones read on then.
            follower.catch_up(may_fence=False)
            pause_s = chance.uniform(*_AWAITED_S)
        beat()


def _attempt(
    writer: MetadataWriter,
    now: Callable[[MetadataImage], Topology],
    own: InstanceFileRoutes,
    follower: MetadataReader,
    test: BrokerBehaviourTest | None,
) -> None:
    if test is not None and not _has_passed(test, follower.settings):
        test.run()
    writer.write_once(_change(now, own, test))


def _is_written(
    now: Callable[[MetadataImage], Topology],
    own: InstanceFileRoutes,
    follower: MetadataReader,
    test: BrokerBehaviourTest | None,
) -> bool:
    settings = follower.settings
    expected = now(settings)
    is_whole = _checked(settings, expected) == expected and settings.file_routes.has(own)
    return is_whole and _has_passed(test, settings)


def _has_passed(test: BrokerBehaviourTest | None, settings: MetadataImage) -> bool:
    return test is None or settings.tested_cluster == test.cluster_id


def _change(
    now: Callable[[MetadataImage], Topology],
    own: InstanceFileRoutes,
    test: BrokerBehaviourTest | None,
) -> Callable[[MetadataImage], Sequence[MetadataRecord]]:
    def change(settings: MetadataImage) -> Sequence[MetadataRecord]:
        expected = now(settings)  # the settings may be newer than what we have read
        _checked(settings, expected)
        records = [expected.record]
        if not settings.file_routes.has(own):  # else another process of this instance was first
            records.insert(0, settings.file_routes.record_of(own))
        if test is not None and not _has_passed(test, settings):
            records.append(test.passed)
        return records

    return change


def _checked(settings: MetadataImage, now: Topology) -> Topology | None:
    """Return the written topology; ExitError 5 if the current one contradicts it."""
    issue = None if settings.layout is None else contradiction(settings.layout, now)
    if issue is not None:
        raise ExitError(ExitCode.CONTRADICTION, str(issue))
    return settings.layout
