"""The jobs for the Spark operator: off by default, and what they start are commands there are."""

from typing import Any

import pytest
import typer

from pipeline.command import app
from pipeline.jars import _sums
from tests.helm.chart import (
    CHART_DIR,
    EVERYTHING,
    HELM_TEST,
    MINIMAL,
    Helm,
    Object,
    RefusedError,
    container,
    pod_spec,
)

pytestmark = HELM_TEST

ON: dict[str, Any] = {"enabled": True, "image": "registry/ringfence-spark:1", "claim": "history"}


def jobs(objects: list[Object]) -> list[Object]:
    return [each for each in objects if each["kind"] == "SparkApplication"]


def job(helm: Helm, **more: object) -> Object:
    (found,) = jobs(helm.render(MINIMAL, values={"spark": {**ON, **more}}))
    return found


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


def test_there_is_no_job_unless_it_is_asked_for(helm: Helm) -> None:
    kinds = [each["kind"] for each in helm.render(MINIMAL)]
    assert "SparkApplication" not in kinds


def test_the_job_starts_a_command_that_there_is(helm: Helm) -> None:
    more = ["--topic=orders", "--batch-records=2000000"]
    arguments = job(helm, arguments=more)["spec"]["arguments"]
    assert arguments[-2:] == more
    assert not unknown(arguments)


def test_tables_that_are_kept_up_to_date_are_a_job_beside_it(helm: Helm) -> None:
    topics = ["--outputs=orders.unique", "--dead-letters=orders.dlq"]
    tables = {"enabled": True, "arguments": topics}
    backfill, found = jobs(helm.render(MINIMAL, values={"spark": {**ON, "tables": tables}}))
    assert backfill["metadata"]["name"] != found["metadata"]["name"]
    arguments = found["spec"]["arguments"]
    assert arguments[0] == "tables"
    assert set(arguments) >= {"--continuous", *topics}
    assert not unknown(arguments)
    assert found["spec"]["restartPolicy"]["type"] == "Always"
    for part in ("volumes", "image", "sparkVersion"):
        assert found["spec"][part] == backfill["spec"][part]
    targets = [argument for argument in arguments if argument.startswith("--target")]
    assert not set(targets) & set(backfill["spec"]["arguments"])
    (alone,) = jobs(helm.render(MINIMAL, {"spark": {**ON, "enabled": False, "tables": tables}}))
    assert alone == found


def test_tables_without_topics_are_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError, match=r"spark\.tables\.arguments: name the topics"):
        job(helm, tables={"enabled": True})


def test_as_many_tasks_decide_as_there_are_cores(helm: Helm) -> None:
    executors = {"instances": 3, "cores": 4, "memory": "8g"}
    spec = job(helm, executors=executors)["spec"]
    assert "--tasks=12" in spec["arguments"]
    assert (spec["executor"]["instances"], spec["executor"]["cores"]) == (3, 4)


def test_nothing_is_downloaded_and_a_lost_driver_goes_on(helm: Helm) -> None:
    spec = job(helm)["spec"]
    assert spec["mainApplicationFile"].startswith("local://")
    assert "deps" not in spec
    assert spec["restartPolicy"]["type"] == "OnFailure"
    assert all("4.0.0" in name for name in _sums() if name.startswith("spark-"))
    assert spec["sparkVersion"].startswith("4.0.")


def test_the_pods_keep_to_the_user_of_the_image_who_may_write_to_the_claim(helm: Helm) -> None:
    spec, ours = job(helm)["spec"], pod_spec(helm.render(MINIMAL))["securityContext"]
    for pod in (spec["driver"], spec["executor"]):
        assert pod["podSecurityContext"] == ours
        assert pod["podSecurityContext"]["runAsUser"] == pod["podSecurityContext"]["fsGroup"]
        assert pod["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not pod["securityContext"]["allowPrivilegeEscalation"]


def test_driver_and_executors_have_the_target_and_the_driver_has_the_configuration(
    helm: Helm,
) -> None:
    spec = job(helm)["spec"]
    objects = helm.render(MINIMAL, values={"spark": ON})
    configured = [each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"]
    config, target = spec["volumes"]
    assert config["configMap"]["name"] in configured
    assert target["persistentVolumeClaim"]["claimName"] == "history"
    mounts = {each["name"]: each["mountPath"] for each in spec["driver"]["volumeMounts"]}
    assert mounts.keys() == {"config", "target"}
    arguments = dict(each.partition("=")[::2] for each in spec["arguments"][1:])
    assert arguments["--config"].startswith(mounts["config"])
    assert arguments["--target"].startswith(mounts["target"])
    assert [each["name"] for each in spec["executor"]["volumeMounts"]] == ["target"]
    assert "env" not in spec["driver"]


def test_the_driver_logs_in_to_kafka_as_the_service_does(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    service = container(objects)
    kafka = [each for each in service["env"] if each["name"].startswith("KAFKA_")]
    assert len(kafka) > 3
    of_the_service = {each["name"]: each for each in pod_spec(objects)["volumes"]}
    for spec in (each["spec"] for each in jobs(objects)):
        assert spec["driver"]["env"] == kafka
        volumes = {each["name"]: each for each in spec["volumes"]}
        for name in ("tls", "client"):
            assert volumes[name] == of_the_service[name]
            (mount,) = [each for each in spec["driver"]["volumeMounts"] if each["name"] == name]
            assert mount in service["volumeMounts"]
            # What the driver has read it tells the executors: they need no Secret.
            assert name not in {each["name"] for each in spec["executor"]["volumeMounts"]}


def test_what_goes_beside_arrives_in_driver_and_executors(helm: Helm) -> None:
    more: dict[str, Any] = {
        "extraEnv": [{"name": "KRB5_CONFIG", "value": "/etc/kerberos/krb5.conf"}],
        "extraVolumes": [{"name": "kerberos", "secret": {"secretName": "kerberos"}}],
        "extraVolumeMounts": [{"name": "kerberos", "mountPath": "/etc/kerberos"}],
        "arguments": ["--command-config=/etc/kerberos/client.properties"],
    }
    spec = job(helm, **more)["spec"]
    assert more["extraVolumes"][0] in spec["volumes"]
    for pod in (spec["driver"], spec["executor"]):
        assert pod["env"] == more["extraEnv"]
        assert more["extraVolumeMounts"][0] in pod["volumeMounts"]


def test_a_private_image_is_pulled_with_the_secrets_of_the_service(helm: Helm) -> None:
    values = {"spark": ON, "image": {"pullSecrets": ["registry", "other"]}}
    (found,) = jobs(helm.render(MINIMAL, values))
    assert found["spec"]["imagePullSecrets"] == ["registry", "other"]


def test_the_job_starts_what_the_image_has(helm: Helm) -> None:
    dockerfile = (CHART_DIR.parents[2] / "Dockerfile").read_text("utf-8")
    file = job(helm)["spec"]["mainApplicationFile"].removeprefix("local://")
    assert f"COPY pipeline/__main__.py {file}\n" in dockerfile
    user = job(helm)["spec"]["driver"]["podSecurityContext"]["runAsUser"]
    assert f"USER {user}:{user}\n" in dockerfile


@pytest.mark.parametrize("missing", ["image", "claim"])
def test_what_it_needs_is_asked_for_in_a_sentence(helm: Helm, missing: str) -> None:
    with pytest.raises(RefusedError, match=rf"spark\.{missing}: name "):
        job(helm, **{missing: ""})


@pytest.mark.parametrize(
    "wrong",
    [{"arguments": ["topic"]}, {"executors": {"instances": 0}}, {"driver": {"memory": "2 GB"}}],
)
def test_a_wrong_value_is_refused(helm: Helm, wrong: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="at '/spark/"):
        job(helm, **wrong)
