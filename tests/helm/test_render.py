"""What the chart renders is what Kubernetes accepts and what the service needs."""

import re
import shutil
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from tests.helm.chart import (
    CHART_DIR,
    FULL,
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
    assert sorted(found["kind"] for found in objects) == [
        *("ConfigMap", "PodDisruptionBudget", "Service"),
        *("Service", "ServiceAccount", "StatefulSet"),
    ]
    for found in objects:
        kubernetes_validate.validate(found, kubernetes, strict=True)


@by_kubernetes
def test_the_strict_schema_would_catch_a_misspelt_field(helm: Helm, kubernetes: str) -> None:
    stateful_set = only(helm.render(kubernetes=kubernetes), "StatefulSet")
    pod = stateful_set["spec"]["template"]["spec"]
    pod["terminationGraceSeconds"] = pod.pop("terminationGracePeriodSeconds")
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGraceSeconds"):
        kubernetes_validate.validate(stateful_set, kubernetes, strict=True)


def test_a_kubernetes_without_the_index_label_is_refused(helm: Helm) -> None:
    with pytest.raises(Exception, match="kubeVersion"):
        helm.render(kubernetes="1.27.9")


@by_value_set
def test_the_pod_meets_the_restricted_standard(helm: Helm, value_set: Path) -> None:
    pod = pod_spec(helm.render(value_set))
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for one in pod["containers"]:
        security = one["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert not any("hostPort" in port for port in one["ports"])
    allowed = {"configMap", "emptyDir", "secret"}
    assert all(volume.keys() - {"name"} <= allowed for volume in pod["volumes"])


def test_the_pod_gets_no_token_and_no_variables_of_other_services(helm: Helm) -> None:
    objects = helm.render()
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod_spec(objects)["automountServiceAccountToken"] is False
    assert pod_spec(objects)["enableServiceLinks"] is False


@pytest.mark.parametrize("timeout_ms", [1_000, 10_000, 45_500, 900_000])
def test_the_pod_may_leave_slower_than_its_transaction(helm: Helm, timeout_ms: int) -> None:
    service = {"transaction_timeout_ms": timeout_ms}
    pod = pod_spec(helm.render(values={"config": {"service": service}}))
    assert pod["terminationGracePeriodSeconds"] * 1000 >= timeout_ms + 30_000


def test_a_change_of_the_configuration_restarts_the_pods_and_nothing_else_does(
    helm: Helm,
) -> None:
    def template(values: dict[str, object]) -> object:
        return only(helm.render(values=values), "StatefulSet")["spec"]["template"]

    assert template({"replicas": 5}) == template({})
    assert template({"config": {"service": {"batch_wait_ms": 7}}}) != template({})


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
    assert volumes["config"]["configMap"] == {
        "name": only(objects, "ConfigMap")["metadata"]["name"]
    }
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


@pytest.mark.parametrize(
    ("probe", "path"),
    [
        ("startupProbe", "/startupz"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ],
)
def test_a_probe_asks_the_admin_api(helm: Helm, probe: str, path: str) -> None:
    assert container(helm.render())[probe]["httpGet"] == {"path": path, "port": "http"}


def test_credentials_reach_the_pod_by_reference_only(helm: Helm) -> None:
    objects = helm.render(FULL, {"kafka": {"sasl": {"usernameKey": "user"}}})
    environment = {entry["name"]: entry for entry in container(objects)["env"]}
    user = {"name": "flights-user", "key": "user"}
    password = {"name": "flights-user", "key": "password"}
    assert environment["KAFKA_SASL_USERNAME"]["valueFrom"] == {"secretKeyRef": user}
    assert environment["KAFKA_SASL_PASSWORD"]["valueFrom"] == {"secretKeyRef": password}
    (tls,) = [volume for volume in pod_spec(objects)["volumes"] if volume["name"] == "tls"]
    assert tls["secret"]["secretName"] == "cluster-ca-cert"
    (mount,) = [m for m in container(objects)["volumeMounts"] if m["name"] == "tls"]
    file = tls["secret"]["items"][0]["path"]
    assert environment["KAFKA_SSL_CA_LOCATION"]["value"] == f"{mount['mountPath']}/{file}"


def test_without_secrets_the_pod_knows_its_number_and_nothing_more(helm: Helm) -> None:
    (entry,) = container(helm.render(MINIMAL))["env"]
    assert entry["name"] == "RINGFENCE_SERVICE__INSTANCE"
    label = "metadata.labels['apps.kubernetes.io/pod-index']"
    assert entry["valueFrom"] == {"fieldRef": {"fieldPath": label}}


@pytest.mark.parametrize("release", ["ringfence", "a", "a" * 53])
def test_names_fit_whatever_the_release_is_called(helm: Helm, release: str) -> None:
    text = helm.run("template", release, str(CHART_DIR), "--values", str(MINIMAL))
    for found in yaml.safe_load_all(text):
        # The controller adds an ordinal and a revision hash to a StatefulSet's name.
        suffix = "-0123456789" if found["kind"] == "StatefulSet" else ""
        name = found["metadata"]["name"] + suffix
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name)


def test_the_notes_name_objects_that_exist(helm: Helm) -> None:
    install = ("install", "demo", str(CHART_DIR), "--values", str(MINIMAL), "--dry-run=client")
    notes = helm.run(*install).partition("NOTES:")[2]
    commands = re.findall(r"^ +(kubectl .*)$", notes, re.MULTILINE)
    assert len(commands) == 3
    names = {
        f"{found['kind'].lower()}/{found['metadata']['name']}"
        for found in yaml.safe_load_all(helm.run("template", "demo", *install[2:5]))
    }
    for command in commands:
        (target,) = re.findall(r"(?:statefulset|service)/\S+", command)
        assert target in names
