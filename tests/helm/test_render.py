"""What the chart renders is what Kubernetes accepts and what the service needs."""

import re
import shutil
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from tests.helm.chart import (
    CHART_DIR,
    EVERYTHING,
    HELM_TEST,
    MINIMAL,
    VALUE_SETS,
    Helm,
    container,
    kubernetes_versions,
    only,
    pod_spec,
)

pytestmark = HELM_TEST

by_value_set = pytest.mark.parametrize("value_set", VALUE_SETS, ids=lambda path: path.stem)
by_kubernetes = pytest.mark.parametrize("kubernetes", kubernetes_versions())


ALWAYS = [
    *("ConfigMap", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Service", "Service"),
    *("ServiceAccount", "StatefulSet"),
]
OF_OPERATORS = {
    *("HTTPRoute", "KafkaTopic", "KafkaUser", "PodMonitor", "PrometheusRule", "ScaledObject"),
    *("SparkApplication", "TriggerAuthentication"),
}
ON_REQUEST = [
    *("ConfigMap", "ConfigMap", "Ingress", "KafkaTopic", "SparkApplication"),
    *OF_OPERATORS,
]


def test_lint_is_content_with_the_chart_as_it_is(helm: Helm) -> None:
    helm.run("lint", "--strict", str(CHART_DIR))


@by_value_set
@by_kubernetes
def test_lint_is_content_with_every_value_set(helm: Helm, value_set: Path, kubernetes: str) -> None:
    helm.run(
        *("lint", "--strict", str(CHART_DIR)),
        *("--kube-version", kubernetes, "--values", str(value_set)),
    )


@by_value_set
@by_kubernetes
def test_every_object_fits_the_strict_schema(helm: Helm, value_set: Path, kubernetes: str) -> None:
    objects = helm.render(value_set, kubernetes=kubernetes)
    kinds = sorted(found["kind"] for found in objects)
    assert kinds == sorted([*ALWAYS, *(ON_REQUEST if value_set == EVERYTHING else [])])
    for found in objects:
        if found["kind"] not in OF_OPERATORS:
            kubernetes_validate.validate(found, kubernetes, strict=True)


@by_kubernetes
def test_the_strict_schema_would_catch_a_misspelt_field(helm: Helm, kubernetes: str) -> None:
    stateful_set = only(helm.render(kubernetes=kubernetes), "StatefulSet")
    pod = stateful_set["spec"]["template"]["spec"]
    pod["terminationGraceSeconds"] = pod.pop("terminationGracePeriodSeconds")
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGraceSeconds"):
        kubernetes_validate.validate(stateful_set, kubernetes, strict=True)


def test_a_kubernetes_without_the_pause_before_leaving_is_refused(helm: Helm) -> None:
    with pytest.raises(Exception, match="kubeVersion"):
        helm.render(kubernetes="1.29.9")


def test_an_upgrade_of_the_chart_touches_no_field_that_cannot_change(
    helm: Helm, tmp_path: Path
) -> None:
    later = Path(shutil.copytree(CHART_DIR, tmp_path / "ringfence"))
    chart = yaml.safe_load((later / "Chart.yaml").read_text())
    (later / "Chart.yaml").write_text(yaml.safe_dump(chart | {"version": "9.9.9"}))
    before, after = (
        only(helm.render(chart=source), "StatefulSet") for source in (CHART_DIR, later)
    )
    assert before["metadata"]["labels"] != after["metadata"]["labels"]
    for field in ("volumeClaimTemplates", "selector", "serviceName", "podManagementPolicy"):
        assert before["spec"][field] == after["spec"][field]


@by_value_set
def test_every_name_that_one_part_uses_is_given_by_another(helm: Helm, value_set: Path) -> None:
    objects = helm.render(value_set)
    pod, spec = pod_spec(objects), only(objects, "StatefulSet")["spec"]
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container(objects)["volumeMounts"]} == claims | set(volumes)
    maps = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    assert "ringfence.toml" in maps[volumes["config"]["configMap"]["name"]]
    assert pod["serviceAccountName"] == only(objects, "ServiceAccount")["metadata"]["name"]
    services = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Service"}
    assert services[spec["serviceName"]]["clusterIP"] == "None"
    labels = spec["template"]["metadata"]["labels"].items()
    ports = {port["name"] for port in container(objects)["ports"]}
    for service in services.values():
        assert service["selector"].items() <= labels
        assert {port["targetPort"] for port in service["ports"]} <= ports
    budget = only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    assert budget == spec["selector"]["matchLabels"]
    assert budget.items() <= labels
    test = only(objects, "Pod")["spec"]
    mounts = {mount["name"] for one in test["containers"] for mount in one["volumeMounts"]}
    assert mounts <= {volume["name"] for volume in test["volumes"]}


@pytest.mark.parametrize("release", ["ringfence", "a", "a" * 53])
def test_names_fit_whatever_the_release_is_called(helm: Helm, release: str) -> None:
    text = helm.run("template", release, str(CHART_DIR), "--values", str(MINIMAL))
    for found in yaml.safe_load_all(text):
        # The controller adds an ordinal and a revision hash to a StatefulSet's name.
        suffix = "-0123456789" if found["kind"] == "StatefulSet" else ""
        name = found["metadata"]["name"] + suffix
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name)
