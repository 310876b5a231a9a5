"""Spark session: the only module that creates one.

A local session runs in this process's own JVM on two threads, listens on loopback only, has no web
UI, logs only fatal errors, and downloads nothing: jars are given by path. A session of
`spark-submit` keeps the master, resources and jars given there, since settings made here would
override them. In both, times are UTC and written so that readers other than Spark understand them,
and Delta Lake is available.
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
"""Folder for tables without a path. There are none, but Spark creates the folder."""


def is_submitted(environ: Mapping[str, str]) -> bool:
    """Return whether `spark-submit` started this process, on a cluster or locally."""
    return "PYSPARK_GATEWAY_PORT" in environ


def open_session(jars: Sequence[Path]) -> SparkSession:
    """Open a session with these jars on its class path; the caller stops it."""
    # Python workers use this environment unless the user names another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("ringfence")
    for name, value in settings(jars, os.environ).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def settings(jars: Sequence[Path], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session: those that results depend on, and those of a local one."""
    always = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.warehouse.dir": _NO_TABLES.as_uri(),
        **_DELTA,
    }
    return always if is_submitted(environ) else {**always, **_local(jars)}


def _local(jars: Sequence[Path]) -> dict[str, str]:
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
        # The default of 50 tasks to list a table's files costs more than reading all our files.
        "spark.databricks.delta.snapshotPartitions": "2",
        # VACUUM lists the folders of a table in this many tasks; the default is 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }
