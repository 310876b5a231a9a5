"""What Jepsen checks of a Kafka holds of what we make of one, while services are killed."""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.recorder import Recorder
from tests.broker.world import World
from tests.histories.checks import anomalies
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker


def test_a_history_with_kills_has_no_anomaly(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    chance = random.Random(1)
    with World(broker.client_properties, tmp_path, topic_name("history"), count=4000) as world:
        world.create()
        services = [world.service(free_port(0), str(number)) for number in range(2)]
        with Recorder(world) as recorder:
            for service in services:
                service.start()
            for _ in range(6):
                world.send(500, recorder.note)
                time.sleep(chance.uniform(0.2, 1.5))
                struck = chance.choice(services)
                struck.signal(signal.SIGKILL)
                struck.wait()
                struck.start()
            world.send(None, recorder.note)
            world.wait_decided()
            for service in services:
                service.wait_ready(2)
            for service in services:
                service.stop()
        assert anomalies(recorder.history()) == []
        world.verify()
