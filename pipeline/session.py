"""The one place where a Spark session is made.

It runs in this process's own JVM on two threads, listens on loopback only, shows no page, logs
nothing but what is fatal, and downloads nothing: jars come by path. Times are UTC and are written
so that readers other than Spark understand them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")


def open_session(jars: Sequence[Path]) -> SparkSession:
    """A session with these jars on its class path; the caller stops it."""
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stopTimeout": "60s",
    }
    builder = SparkSession.builder.appName("ringfence").master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
