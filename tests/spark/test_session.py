"""Settings of a session: what answers depend on always, the rest only if the session is ours."""

from pathlib import Path

import pytest

from pipeline.session import settings

pytestmark = pytest.mark.spark

ANSWERS_REST_ON = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
}
OURS = {
    *("spark.master", "spark.jars", "spark.driver.memory", "spark.driver.extraJavaOptions"),
    *("spark.driver.host", "spark.driver.bindAddress", "spark.ui.enabled"),
    *("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"),
    "spark.sql.sources.parallelPartitionDiscovery.parallelism",
}


def test_a_submitted_job_keeps_the_settings_it_was_given() -> None:
    submitted = settings([Path("/a.jar")], {"PYSPARK_GATEWAY_PORT": "1"})
    assert submitted.items() >= ANSWERS_REST_ON.items()
    assert not OURS & submitted.keys()


def test_a_session_of_our_own_is_small_and_on_this_machine() -> None:
    here = settings([Path("/a.jar"), Path("/b.jar")], {})
    assert here.items() >= ANSWERS_REST_ON.items()
    assert here.keys() >= OURS
    assert here["spark.jars"] == "/a.jar,/b.jar"
    assert here["spark.sql.shuffle.partitions"] == "2"
