"""The jobs for the Spark operator: what they start are commands that there are, in the image."""

from pathlib import Path

import pytest
import typer

from ringfence_pipeline.command import app
from ringfence_pipeline.jars import checksums
from tests.helm.chart import (
    CHART_DIR,
    EVERYTHING,
    HELM_TEST,
    OTHERWISE,
    WITHOUT,
    Helm,
    Object,
    installed,
)

pytestmark = HELM_TEST

JOBS = {EVERYTHING: ["backfill", "tables"], OTHERWISE: ["tables"], WITHOUT: ["backfill"]}


def jobs(helm: Helm, value_set: Path) -> list[Object]:
    objects = installed(helm, value_set).objects
    return [each["spec"] for each in objects if each["kind"] == "SparkApplication"]


def unknown(arguments: list[str]) -> set[str]:
    """Those that the command has no option for."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    command, *options = arguments
    known = {
        option
        for parameter in commands[command].params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    return {option.partition("=")[0] for option in options} - known


@pytest.mark.parametrize("value_set", JOBS, ids=lambda path: path.stem)
def test_a_job_starts_a_command_that_there_is(helm: Helm, value_set: Path) -> None:
    found = jobs(helm, value_set)
    assert [spec["arguments"][0] for spec in found] == JOBS[value_set]
    dockerfile = (CHART_DIR.parents[2] / "Dockerfile").read_text("utf-8")
    for spec in found:
        assert not unknown(spec["arguments"])
        file = spec["mainApplicationFile"].removeprefix("local://")
        assert f"COPY pipeline/ringfence_pipeline/__main__.py {file}\n" in dockerfile
        user = spec["driver"]["podSecurityContext"].get("runAsUser", 10001)
        assert f"USER {user}:{user}\n" in dockerfile
        assert spec["sparkVersion"].startswith("4.0.")
        assert "deps" not in spec, "nothing is downloaded"
    assert all("4.0.0" in name for name in checksums() if name.startswith("spark-"))


def test_what_an_administrator_sets_is_in_every_job(helm: Helm) -> None:
    for spec in jobs(helm, EVERYTHING):
        assert spec["sparkConf"] == {"spark.sql.shuffle.partitions": "8"}
        assert spec["hadoopConf"] == {"fs.s3a.endpoint": "https://s3.example.com"}
        assert spec["dynamicAllocation"]["maxExecutors"] == 4
        for pod in (spec["driver"], spec["executor"]):
            assert pod["nodeSelector"] == {"pool": "batch"}
            assert [each["key"] for each in pod["tolerations"]] == ["batch"]
            assert "podAntiAffinity" in pod["affinity"]
    for spec in jobs(helm, WITHOUT):
        assert not {"sparkConf", "hadoopConf", "dynamicAllocation"} & spec.keys()
        assert not {"nodeSelector", "tolerations", "affinity"} & spec["executor"].keys()


def test_the_metrics_of_drivers_are_scraped_and_those_of_no_other_pod(helm: Helm) -> None:
    objects = installed(helm, EVERYTHING).objects
    (monitor,) = [
        each["spec"]
        for each in objects
        if each["kind"] == "PodMonitor" and each["metadata"]["name"].endswith("-spark")
    ]
    selector = monitor["selector"]["matchLabels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    for spec in jobs(helm, EVERYTHING):
        assert selector <= spec["driver"]["labels"].items()
        (port,) = spec["driver"]["ports"]
        assert port["name"] == endpoint["port"]
        assert f"--metrics-port={port['containerPort']}" in spec["arguments"]
        assert "--metrics-host=0.0.0.0" in spec["arguments"]
    (service,) = [each["spec"] for each in objects if each["kind"] == "StatefulSet"]
    assert not selector <= service["template"]["metadata"]["labels"].items()
    assert not any("--metrics-port" in str(spec["arguments"]) for spec in jobs(helm, WITHOUT))


def test_two_jobs_write_to_targets_of_their_own_in_one_claim(helm: Helm) -> None:
    found = jobs(helm, EVERYTHING)
    targets = [one for spec in found for one in spec["arguments"] if one.startswith("--target")]
    assert len(set(targets)) == len(found)
    for spec in found:
        mounts = {each["name"]: each["mountPath"] for each in spec["driver"]["volumeMounts"]}
        given = dict(each.partition("=")[::2] for each in spec["arguments"][1:])
        assert given["--config"].startswith(mounts["config"])
        assert given["--target"].startswith(mounts["target"])
        assert "target" in {each["name"] for each in spec["executor"]["volumeMounts"]}
        (claim,) = [each for each in spec["volumes"] if each["name"] == "target"]
        assert claim["persistentVolumeClaim"]["claimName"] == "history"


def test_a_backfill_in_one_job_is_not_told_how_many_tasks_it_has(helm: Helm) -> None:
    given = {"spark": {"arguments": ["--batch", "--table=/var/lib/ringfence/tables/messages"]}}
    jobs_of_batch = helm.render(EVERYTHING, given)
    spec, _tables = (each["spec"] for each in jobs_of_batch if each["kind"] == "SparkApplication")
    assert "--batch" in spec["arguments"]
    assert not any(each.startswith("--tasks") for each in spec["arguments"])
    (stepwise,) = jobs(helm, WITHOUT)
    assert "--tasks=12" in stepwise["arguments"]


def test_tables_are_compacted_where_the_job_writes_them_with_its_settings(helm: Helm) -> None:
    def container(value_set: Path) -> Object:
        objects = installed(helm, value_set).objects
        (job,) = [each["spec"] for each in objects if each["kind"] == "CronJob"]
        found: list[Object] = job["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        return found[0]

    for value_set in (EVERYTHING, OTHERWISE):
        command, _target, *options = container(value_set)["args"]
        assert not unknown([command, *options])
    found = container(EVERYTHING)
    (tables,) = [spec for spec in jobs(helm, EVERYTHING) if spec["arguments"][0] == "tables"]
    assert f"--target={found['args'][1]}" in tables["arguments"]
    mounts = [each for each in found["volumeMounts"] if each["name"] == "target"]
    assert mounts[0] in tables["driver"]["volumeMounts"]
    assert "--conf=spark.hadoop.fs.s3a.endpoint=https://s3.example.com" in found["args"]
    assert container(OTHERWISE)["args"][1] == "s3a://lake/tables"
    assert not any(each["kind"] == "CronJob" for each in installed(helm, WITHOUT).objects)
