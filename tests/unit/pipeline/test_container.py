"""The Spark image starts what Spark asks it for, and otherwise a command of Ringfence."""

import os
from tempfile import gettempdir

from ringfence_pipeline.container import start_of, user_fault

IMAGE = {
    "JAVA_HOME": "/opt/java",
    "SPARK_HOME": "/opt/spark/pyspark",
    "RINGFENCE_SPARK_JARS": "/opt/spark-jars",
    "SPARK_LOCAL_HOSTNAME": "localhost",
}
"""What the Dockerfile sets."""
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "4g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "history-exec-3",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number} two" for number in range(11)},
}
"""What Spark sets in the pod of an executor."""


def test_a_command_of_ringfence_is_run_in_the_image_as_it_is() -> None:
    start = start_of(["tables", "--help"], IMAGE)
    assert start == (["ringfence", "pipeline", "tables", "--help"], IMAGE, None)


def test_a_driver_is_a_submission_within_its_pod() -> None:
    told = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///job.py", "backfill"]
    start = start_of(["driver", *told], {**IMAGE, "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.2"})
    submit, *words = start.command
    assert submit == "/opt/spark/pyspark/bin/spark-submit"
    assert words[-len(told) :] == told
    assert words[: -len(told)] == [
        *("--deploy-mode", "client"),
        *("--conf", "spark.driver.bindAddress=10.0.0.2"),
    ]


def test_an_executor_is_started_with_what_its_variables_say() -> None:
    java, *words = start_of(["executor"], IMAGE | EXECUTOR).command
    assert java == "/opt/java/bin/java"
    # The options in their order, of which the eleventh comes last and none is cut at a space.
    assert words[:11] == [f"-Dn={number} two" for number in range(11)]
    assert words[11:13] == ["-Xms4g", "-Xmx4g"]
    assert words[14] == "/opt/spark/conf:/opt/spark/pyspark/jars/*:/opt/spark-jars/*"
    assert words[15].endswith("KubernetesExecutorBackend")
    assert dict(zip(words[16::2], words[17::2], strict=True)) == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.3",
        "--resourceProfileId": "0",
        "--podName": "history-exec-3",
    }


def test_pods_have_the_jars_a_name_of_their_own_and_a_folder_that_no_other_shares() -> None:
    for role in ("driver", "executor"):
        start = start_of([role], IMAGE | EXECUTOR | {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.2"})
        assert start.environ["SPARK_DIST_CLASSPATH"] == "/opt/spark-jars/*"
        assert "SPARK_LOCAL_HOSTNAME" not in start.environ
        assert start.folder == gettempdir()


def test_a_user_without_a_name_is_told_so() -> None:
    assert user_fault(os.getuid()) is None
    assert "user id 1999999999 has no name" in str(user_fault(1_999_999_999))
