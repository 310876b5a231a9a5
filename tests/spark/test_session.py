"""Settings of a session: what results depend on always, the rest only if the session is ours."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pyspark
import pytest
from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped]  # it ships none
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ringfence.spark import read_output
from ringfence_pipeline.admin import KafkaAdmin
from ringfence_pipeline.command import app
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.jars import CHECKOUT_JARS, connector_jars
from ringfence_pipeline.session import (
    SessionOptions,
    local_settings,
    open_session,
    submitted_settings,
)
from tools.source_roots import python_path

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "backfill.md"
RESULTS_DEPEND_ON = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
DELTA = "io.delta.sql.DeltaSparkSessionExtension"
SHOW = """
import json
from ringfence_pipeline.session import open_session
spark = open_session()
names = ("spark.master", "spark.sql.extensions", "spark.sql.warehouse.dir", "spark.jars")
print("SETTINGS", json.dumps({name: spark.conf.get(name) for name in names}))
spark.range(3).write.format("delta").save(spark.conf.get("spark.sql.warehouse.dir") + "/three")
print("ROWS", spark.sql("select * from delta.`" + spark.conf.get("spark.sql.warehouse.dir")
    + "/three`").count())
"""

HANG = """
import os, signal
from pyspark import SparkContext
from ringfence_pipeline import session
session._JVM_EXIT_S = 1
spark = session.open_session(session.SessionOptions(master="local[1]"))
jvm, stop = SparkContext._gateway.proc, spark.stop
spark.stop = lambda: (stop(), os.kill(jvm.pid, signal.SIGSTOP))
session.close_session(spark)
print("ENDED", jvm.returncode)
with session.session_for(session.SessionOptions(master="local[1]")) as spark:
    jvm = SparkContext._gateway.proc
    print("ROWS", spark.range(3).count())
print("ENDED", jvm.returncode)
"""


def test_a_submitted_job_keeps_the_settings_it_was_given() -> None:
    given = {
        "spark.master": "yarn",
        "spark.sql.extensions": "org.example.Theirs",
        "spark.sql.catalog.spark_catalog": "org.example.Catalog",
        "spark.databricks.delta.autoCompact.enabled": "false",
    }
    settings = submitted_settings(SessionOptions(), given)
    assert settings.items() >= RESULTS_DEPEND_ON.items()
    assert settings["spark.sql.extensions"] == f"org.example.Theirs,{DELTA}"
    assert settings.keys() & given.keys() == {"spark.sql.extensions"}
    others = settings.keys() - RESULTS_DEPEND_ON.keys()
    assert others == {
        "spark.sql.extensions",
        "spark.python.sql.dataFrameDebugging.enabled",
        "spark.sql.streaming.stopTimeout",
        "spark.databricks.delta.optimizeWrite.enabled",
    }


@pytest.mark.parametrize(
    "options", [SessionOptions(master="local"), SessionOptions(conf=("spark.a=b",))]
)
def test_a_submitted_job_takes_master_and_settings_from_spark_submit_alone(
    options: SessionOptions,
) -> None:
    with pytest.raises(PipelineError, match="give --master and --conf to spark-submit"):
        submitted_settings(options, {})


def test_spark_submit_needs_only_the_packages_of_the_page(tmp_path: Path) -> None:
    (packages,) = re.findall(r"--packages (\S+)", PAGE.read_text("utf-8"))
    script = tmp_path / "show.py"
    script.write_text(SHOW, "utf-8")
    warehouse = f"file:{tmp_path}/warehouse"
    binaries = Path(sys.executable).parent
    ran = subprocess.run(
        [
            binaries / "spark-submit",
            *("--master", "local[1]", "--packages", packages),
            *("--conf", f"spark.jars.ivy={CHECKOUT_JARS.with_name('ivy')}"),
            *("--conf", f"spark.sql.warehouse.dir={warehouse}"),
            *("--conf", "spark.ui.enabled=false", script),
        ],
        env={
            **os.environ,
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "PYTHONPATH": python_path(Path(__file__).parents[2]),
            "RINGFENCE_SPARK_JARS": str(tmp_path / "none"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = dict(line.split(" ", 1) for line in ran.stdout.splitlines() if line[:1] in "SR")
    settings = json.loads(told["SETTINGS"])
    assert settings["spark.master"] == "local[1]"
    assert settings["spark.sql.extensions"] == DELTA
    assert settings["spark.sql.warehouse.dir"] == warehouse
    assert told["ROWS"] == "3"


def test_a_jvm_ends_with_its_session_and_is_killed_where_it_hangs() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", HANG],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines() == ["ENDED -9", "ROWS 3", "ENDED 0"]


def test_a_session_of_our_own_uses_the_whole_machine_and_only_this_machine() -> None:
    here = local_settings(SessionOptions())
    cores = str(len(os.sched_getaffinity(0)))
    assert here.items() >= RESULTS_DEPEND_ON.items()
    assert here["spark.master"] == "local[*]"
    assert here["spark.driver.bindAddress"] == here["spark.driver.host"] == "127.0.0.1"
    assert here["spark.sql.shuffle.partitions"] == cores
    assert here["spark.jars"] == ",".join(map(str, connector_jars(None)))


def test_master_and_settings_of_the_command_override_those_of_our_own_session() -> None:
    conf = ("spark.driver.memory=4g", "spark.sql.extensions=org.example.Theirs")
    more = ("spark.jars=/a.jar", "spark.sql.session.timeZone=Asia/Tokyo")
    here = local_settings(SessionOptions(master="local[4]", conf=conf + more))
    assert here["spark.master"] == "local[4]"
    assert here["spark.driver.memory"] == "4g"
    assert here["spark.sql.extensions"] == f"org.example.Theirs,{DELTA}"
    assert here["spark.jars"].startswith("/a.jar,/")
    assert here["spark.sql.session.timeZone"] == "UTC"


def test_a_small_heap_has_the_serial_collector_unless_somebody_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def options(*conf: str) -> str:
        return local_settings(SessionOptions(conf=conf))["spark.driver.extraJavaOptions"]

    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    assert "-XX:+UseSerialGC" in options()
    assert "GC" not in options("spark.driver.memory=8g")
    assert options("spark.driver.extraJavaOptions=-Da=b") == "-Da=b"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseZGC")
    assert "GC" not in options()


def test_workers_of_a_local_session_are_forked_with_what_they_import(spark: SparkSession) -> None:
    def imported(_rows: Iterable[object]) -> Iterator[Any]:
        yield pd.DataFrame({"is_there": ["ringfence_pipeline.backfill.processor" in sys.modules]})

    (row,) = spark.range(1).coalesce(1).mapInPandas(imported, "is_there boolean").collect()
    assert row["is_there"]


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://spark-master:7077"])
def test_a_cluster_keeps_the_daemon_of_spark(master: str) -> None:
    there = local_settings(SessionOptions(master=master))
    assert "spark.python.daemon.module" not in there


@pytest.mark.parametrize("pair", ["spark.a", "a=b", "=b"])
def test_a_setting_has_the_name_of_a_setting_of_spark_and_a_value(pair: str) -> None:
    with pytest.raises(PipelineError, match=r"write it as spark\.name=value"):
        local_settings(SessionOptions(conf=(pair,)))


@pytest.mark.parametrize("version", ["3.5.7", "4.1.0", "40.0.0"])
def test_another_version_of_spark_is_refused_at_the_start(
    version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    words = ["tables", "--bootstrap-servers", "h:1", "--outputs", "o", "--target", str(tmp_path)]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == USAGE
    assert f"pyspark {version} is installed here, and the jobs run on Spark 4.0" in ran.stderr


def test_the_reader_refuses_a_session_of_an_earlier_spark() -> None:
    session = cast("SparkSession", SimpleNamespace(version="3.5.7"))
    with pytest.raises(RuntimeError, match=r"of Spark 3\.5\.7: use one of 4.0 or newer"):
        read_output(session, "h:1", "o")


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    with pytest.raises(PipelineError, match="this is Spark Connect") as told:
        open_session()
    assert told.value.exit_code == USAGE


def test_a_session_without_the_connector_is_told_what_it_lacks() -> None:
    found: Any = JavaPackage("org.apache.kafka.clients.admin.Admin", None)
    for name in reversed(("_jvm", "org", "apache", "kafka", "clients", "admin", "Admin")):
        found = SimpleNamespace(**{name: found})
    with pytest.raises(PipelineError, match="the session has no Kafka client") as told:
        KafkaAdmin(found, "h:1", {})
    assert told.value.exit_code == USAGE
