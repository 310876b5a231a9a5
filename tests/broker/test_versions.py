"""The oldest and the newest Kafka that are supported; `make test-versions` has more, on all."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.victim import Step
from tests.broker.world import World
from tools.broker.artifacts import versions
from tools.broker.config import _free_port as free_port
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

pytestmark = pytest.mark.broker


@pytest.mark.row(37)
@pytest.mark.usefixtures("embedded_kind")
@pytest.mark.parametrize("version", [versions()[0], versions()[-1]])
def test_a_kill_inside_a_commit_leaves_every_record_with_one_fate_on_this_version_too(
    version: str,
    tmp_path: Path,
    topic_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RINGFENCE_KAFKA_VERSION", version)
    machine = Machine(heap_mb=512, short_lived=True)
    with (
        EmbeddedBroker(tmp_path / "broker", machine=machine) as broker,
        World(broker.client_properties, tmp_path, topic_name("version"), count=800) as world,
    ):
        world.create()
        world.send()
        service = world.service(free_port(0))
        service.start(
            {"VICTIM_STEP": Step.INSIDE_COMMIT, "VICTIM_COUNT": "3", "VICTIM_SIGNAL": "KILL"}
        )
        service.wait(60)
        service.start()
        world.wait_decided()
        broker.restart()
        service.wait_ready()
        service.stop()
        world.verify()
        world.verify_store()
