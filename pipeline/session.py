"""The one place where a Spark session is made.

It runs in this process's own JVM on two threads, listens on loopback only, shows no page, logs
nothing but what is fatal, and downloads nothing: jars come by path. What `spark-submit` has begun
runs where, in as many parts and with what that says, since what is set here would go before it.
Times are UTC and are written so that readers other than Spark understand them. Delta Lake is at
hand in all of them.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A batch writes few files for each day and address, and many small ones are put together.
    "spark.databricks.delta.optimizeWrite.enabled": "true",
    "spark.databricks.delta.autoCompact.enabled": "true",
}
_NO_TABLES: Final = Path(tempfile.gettempdir(), "ringfence-no-tables")
"""Where tables without a path would be. There are none, but Spark makes the folder."""


def is_submitted(environ: Mapping[str, str]) -> bool:
    """Whether `spark-submit` has begun this process, on a cluster or anywhere."""
    return "PYSPARK_GATEWAY_PORT" in environ


def open_session(jars: Sequence[Path]) -> SparkSession:
    """A session with these jars on its class path; the caller stops it."""
    # Workers in Python run in this environment, unless another one is named.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("ringfence")
    for name, value in settings(jars, os.environ).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def settings(jars: Sequence[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """What a session is told: what answers rest on, and of one of our own where it runs."""
    always = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.warehouse.dir": _NO_TABLES.as_uri(),
        **_DELTA,
    }
    return always if is_submitted(environ) else {**always, **_here(jars)}


def _here(jars: Sequence[Path]) -> dict[str, str]:
    return {
        "spark.master": "local[2]",
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        # Its default of 50 tasks for a table's list of files costs more than all the files of ours.
        "spark.databricks.delta.snapshotPartitions": "2",
        # VACUUM lists the folders of a table in as many tasks as this, 10,000 where none is named.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
