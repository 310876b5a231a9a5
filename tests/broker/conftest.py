"""Real brokers for the tests: each kind is started once for a process, and whole for each test.

Three brokers are started for each module that needs them: idle ones use in three minutes the CPU
time of a start.

`broker` is neither killed nor suspended. The others belong to one test at a time, which may do to
them what it likes; names of topics and groups are the test's own.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.broker.carried_world import world_of
from tests.broker.desk import Desk
from tests.broker.proxy import Proxy, proxied, three_proxied
from tests.broker.topics import create_topic as create_topic  # noqa: PLC0414 - others have it from here
from tests.broker.world import PLAIN, World
from tools.broker.cluster import Broker, open_broker
from tools.broker.embedded import EmbeddedBroker
from tools.broker.three import ThreeBrokers

_SHARED = pytest.StashKey[Broker]()
_GROUPS: Final = {"_network": "network", "_three": "three", "secured_broker": "secured"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of the processes that share the tests, one starts each of these clusters."""
    for fixture in _GROUPS.keys() & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.xdist_group(_GROUPS[fixture]))


def shared_broker(config: pytest.Config, folders: pytest.TempPathFactory) -> Broker:
    """Of the kind that the environment chooses; one for all that this process tests."""
    if _SHARED not in config.stash:
        shared = open_broker(folders.mktemp("broker"), heap_mb=512, short_lived=True)
        shared.start()
        config.add_cleanup(shared.stop)
        config.stash[_SHARED] = shared
    return config.stash[_SHARED]


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """Shared, so neither killed nor suspended."""
    return shared_broker(pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def embedded_kind() -> None:
    if os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or os.environ.get("RINGFENCE_BROKER"):
        pytest.skip("the environment chooses another kind of broker")


@pytest.fixture(scope="session")
def secured_broker(
    embedded_kind: None,  # noqa: ARG001 - skips where there is none
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Broker]:
    """It knows users and their rights, those of a test on topics of its own."""
    folder = tmp_path_factory.mktemp("secured")
    with open_broker(folder, secured=True, heap_mb=512, short_lived=True) as secured:
        yield secured


class Network(NamedTuple):
    """One broker and the proxy before it."""

    broker: EmbeddedBroker
    proxy: Proxy


class ThreeNetwork(NamedTuple):
    """Three brokers and one proxy before all of them."""

    brokers: ThreeBrokers
    proxy: Proxy


@pytest.fixture(scope="session")
def _network(
    embedded_kind: None,  # noqa: ARG001 - skips where there is none
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Network]:
    broker, proxy = proxied(tmp_path_factory.mktemp("network"))
    with broker, proxy:
        yield Network(broker, proxy)


@pytest.fixture
def network(_network: Network) -> Iterator[Network]:
    """A broker that a test may kill, restart and suspend, and a network that it may disturb."""
    yield _network
    _network.broker.start()
    _network.broker.resume()
    _network.proxy.heal()


@pytest.fixture
def own_broker(network: Network) -> EmbeddedBroker:
    """The broker of that network for who needs no proxy."""
    return network.broker


@pytest.fixture(scope="module")
def _three(
    embedded_kind: None,  # noqa: ARG001 - skips where there is none
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ThreeNetwork]:
    brokers, proxy = three_proxied(tmp_path_factory.mktemp("three"))
    with brokers, proxy:
        yield ThreeNetwork(brokers, proxy)


@pytest.fixture
def three(_three: ThreeNetwork) -> Iterator[ThreeNetwork]:
    """The same of three brokers, any of which may go."""
    yield _three
    for node in _three.brokers.nodes.values():
        if node.is_alive:
            node.resume()
    _three.brokers.start()
    _three.proxy.heal()


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Return names that no other test and no other run has used."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(broker: Broker, topic_name: Callable[[str], str]) -> Callable[..., str]:
    """Return what makes a topic on the shared broker and returns its name."""

    def make(name: str = "topic", partitions: int = 1, **config: str) -> str:
        topic = topic_name(name)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        create_topic(broker.client_properties, topic, partitions, settings)
        return topic

    return make


NewWorld = Callable[..., World]


@pytest.fixture
def new_world(tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[NewWorld]:
    """Return what makes a world for the clients of a broker; it ends with the test."""
    with ExitStack() as worlds:

        def make(client: Mapping[str, str], *, replicas: int = 1, **settings: Any) -> World:
            kind = world_of(settings.get("manner", PLAIN))
            world = worlds.enter_context(kind(client, tmp_path, topic_name("world"), **settings))
            world.create(replicas=replicas)
            return world

        yield make


@pytest.fixture
def desk(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[Desk]:
    """A group with one input on the shared broker."""
    with Desk(broker.client_properties, tmp_path, topic_name("desk")) as own:
        yield own
