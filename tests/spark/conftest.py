"""One Spark session, and one broker, for the whole run; the session has the connector's jars.

Where pyspark is not installed nothing of this folder is collected: the quick suites do without it.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from pipeline.jars import connector_jars
from tools.broker.cluster import Broker, open_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    # Py4J leaves its loopback sockets to the garbage collector.
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
    # What compares frames loads pandas on Spark, whose times no test of ours asks for.
    item.add_marker(pytest.mark.filterwarnings("ignore:'PYARROW_IGNORE_TIMEZONE'"))
    # A session starts within seconds, and on a machine with much else to do within minutes.
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from pipeline.session import open_session  # noqa: PLC0415 - needs pyspark

    session = open_session(connector_jars(None))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with open_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running
