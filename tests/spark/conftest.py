"""One Spark session, and one broker, for the whole run; the session has the connector's jars.

Where pyspark is not installed nothing of this folder is collected: the quick suites do without it.
"""

import os
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from ringfence_pipeline.command import app
from tools import spark_archive
from tools.broker.cluster import Broker, open_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    # The commands that tests start have the same.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_archive.options())


def pytest_itemcollected(item: pytest.Item) -> None:
    # Py4J leaves its loopback sockets to the garbage collector.
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from ringfence_pipeline.session import SessionOptions, session_for  # noqa: PLC0415 - needs pyspark

    with session_for(SessionOptions()) as session:
        yield session


@pytest.fixture(scope="session")
def command(
    spark: "SparkSession",  # noqa: ARG001 - open as long as the commands use it
) -> Callable[..., Result]:
    """`ringfence pipeline ...` in the session that all share, which it does not stop."""

    def run(*words: str) -> Result:
        former = signal.getsignal(signal.SIGTERM)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ringfence_pipeline.session.close_session", lambda _session: None)
            try:
                return CliRunner().invoke(app, words)
            finally:
                signal.signal(signal.SIGTERM, former)

    return run


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with open_broker(tmp_path_factory.mktemp("broker"), heap_mb=512, short_lived=True) as running:
        yield running
