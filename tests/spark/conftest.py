"""One Spark session, and one broker, for the whole run; the session has the connector's jars."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pipeline.jars import connector_jars
from pipeline.session import open_session
from tools.broker.cluster import Broker, open_broker


def pytest_itemcollected(item: pytest.Item) -> None:
    # Py4J leaves its loopback sockets to the garbage collector.
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
    # A session starts within seconds, and on a machine with much else to do within minutes.
    item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session(connector_jars(None))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with open_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running
