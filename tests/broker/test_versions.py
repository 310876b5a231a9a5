"""The oldest and the newest Kafka that are supported; `make test-versions` has more, on all."""

from pathlib import Path

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.victim import Step
from tools.broker.artifacts import versions
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

pytestmark = pytest.mark.broker


@pytest.mark.row(37)
@pytest.mark.usefixtures("embedded_kind")
@pytest.mark.parametrize(
    "version", [versions()[0], pytest.param(versions()[-1], marks=pytest.mark.long)]
)
def test_a_kill_inside_a_commit_leaves_every_record_with_one_fate_on_this_version_too(
    version: str, tmp_path: Path, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_KAFKA_VERSION", version)
    machine = Machine(heap_mb=512, short_lived=True)
    with EmbeddedBroker(tmp_path / "broker", machine=machine) as broker:
        world = new_world(broker.client_properties, count=800)
        world.send()
        service = world.service()
        service.die(Step.INSIDE_COMMIT, 3)
        service.start()
        world.wait_decided()
        broker.restart()
        service.wait_ready()
        world.conclude(service)
