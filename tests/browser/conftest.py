"""A live service with real records, for every test in a browser."""

from collections.abc import Iterator

import pytest

from tools.broker.cluster import Broker
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine
from tools.demo.service import free_port
from tools.pictures.scene import Scene


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that ends with the tests."""
    machine = Machine(heap_mb=512, short_lived=True)
    with EmbeddedBroker(tmp_path_factory.mktemp("broker") / "broker", machine=machine) as running:
        yield running


@pytest.fixture(scope="session")
def scene(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A service under load; shared, so neither killed nor stopped."""
    with Scene(broker, tmp_path_factory.mktemp("scene"), free_port()) as running:
        yield running
