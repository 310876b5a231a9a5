"""What holds of the objects of every value set: Kubernetes takes them, and they fit each other."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from ringfence_service.config.validation import _POLL_INTERVAL_MS
from tests.helm.chart import (
    CHART_DIR,
    HELM_TEST,
    MINIMAL,
    OTHERWISE,
    VALUE_SETS,
    Helm,
    Object,
    by_value_set,
    config_toml,
    container,
    installed,
    kubernetes_versions,
    only,
    pod_spec,
)

pytestmark = HELM_TEST

by_kubernetes = pytest.mark.parametrize("kubernetes", kubernetes_versions())

OF_OPERATORS = {
    *("HTTPRoute", "KafkaTopic", "KafkaUser", "PodMonitor", "PrometheusRule", "ScaledObject"),
    *("ServiceMonitor", "SparkApplication", "TriggerAuthentication"),
}
OF_THE_POD = {"RINGFENCE_SERVICE__INSTANCE", "POD_NAME", "RINGFENCE_API__ADVERTISED_URL"}


def named(objects: list[Object], kind: str) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


@by_value_set
@by_kubernetes
def test_lint_is_content_and_every_object_fits_the_strict_schema(
    helm: Helm, value_set: Path, kubernetes: str
) -> None:
    given = ("--values", str(MINIMAL), "--values", str(value_set))
    helm.run("lint", "--strict", str(CHART_DIR), "--kube-version", kubernetes, *given)
    objects = installed(helm, value_set).objects
    for found in objects:
        if found["kind"] not in OF_OPERATORS:
            kubernetes_validate.validate(found, kubernetes, strict=True)
    pods = only(objects, "StatefulSet")
    pod = pods["spec"]["template"]["spec"]
    pod["terminationGraceSeconds"] = pod.pop("terminationGracePeriodSeconds")
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGraceSeconds"):
        kubernetes_validate.validate(pods, kubernetes, strict=True)


def test_lint_is_content_with_the_chart_as_it_is(helm: Helm) -> None:
    helm.run("lint", "--strict", str(CHART_DIR))


def test_every_object_that_the_chart_has_is_made_of_some_value_set(helm: Helm) -> None:
    templates = [file.read_text() for file in CHART_DIR.glob("templates/**/*.yaml")]
    written = set(re.findall(r"^kind: (\w+)$", "".join(templates), re.MULTILINE))
    sets = [installed(helm, value_set).objects for value_set in VALUE_SETS]
    assert written <= {one["kind"] for objects in sets for one in objects}


@by_value_set
def test_the_pods_meet_the_restricted_standard_and_get_nothing_unasked(
    helm: Helm, value_set: Path
) -> None:
    objects = installed(helm, value_set).objects
    made = named(objects, "ServiceAccount").values()
    assert all(account["automountServiceAccountToken"] is False for account in made)
    for pod in (pod_spec(objects), only(objects, "Pod")["spec"]):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"].get("runAsUser") != 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for one in pod["containers"] + pod.get("initContainers", []):
            security = one["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert not any("hostPort" in port for port in one.get("ports", []))
        allowed = {"configMap", "emptyDir", "secret"}
        assert all(volume.keys() - {"name"} <= allowed for volume in pod["volumes"])


@by_value_set
def test_every_name_that_one_part_uses_is_given_by_another(helm: Helm, value_set: Path) -> None:
    objects = installed(helm, value_set).objects
    pod, spec = pod_spec(objects), only(objects, "StatefulSet")["spec"]
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container(objects)["volumeMounts"]} == claims | set(volumes)
    maps = {name: one["data"] for name, one in named(objects, "ConfigMap").items()}
    assert "ringfence.toml" in maps[volumes["config"]["configMap"]["name"]]
    test = only(objects, "Pod")["spec"]
    made = named(objects, "ServiceAccount").keys() or {"default"}
    assert {pod["serviceAccountName"], test["serviceAccountName"]} == made
    mounts = {mount["name"] for one in test["containers"] for mount in one["volumeMounts"]}
    assert mounts <= {volume["name"] for volume in test["volumes"]}
    services = {name: one["spec"] for name, one in named(objects, "Service").items()}
    assert services[spec["serviceName"]]["clusterIP"] == "None"
    ports = {port["name"] for port in container(objects)["ports"]}
    for service in services.values():
        assert {port["targetPort"] for port in service["ports"]} <= ports
    doors = {name: {p["name"]: p["port"] for p in s["ports"]} for name, s in services.items()}
    for ingress in named(objects, "Ingress").values():
        (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
        assert (
            path["backend"]["service"]["port"]["name"] in doors[path["backend"]["service"]["name"]]
        )
    for route in named(objects, "HTTPRoute").values():
        (reference,) = route["spec"]["rules"][0]["backendRefs"]
        assert reference["port"] in doors[reference["name"]].values()
    for one in objects:
        if one["kind"] in {"HorizontalPodAutoscaler", "ScaledObject"}:
            target = one["spec"]["scaleTargetRef"]
            assert (target["kind"], target["name"]) == ("StatefulSet", spec_name(objects))
        if one["kind"] == "TriggerAuthentication":
            (kept,) = one["spec"]["configMapTargetRef"]
            assert kept["key"] in maps[kept["name"]]


def spec_name(objects: list[Object]) -> str:
    return str(only(objects, "StatefulSet")["metadata"]["name"])


@by_value_set
def test_everything_that_selects_pods_selects_those_of_the_release(
    helm: Helm, value_set: Path
) -> None:
    objects = installed(helm, value_set).objects
    spec = only(objects, "StatefulSet")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    own = spec["selector"]["matchLabels"]
    assert own["app.kubernetes.io/name"] == labels["app.kubernetes.io/name"] == "ringfence"
    selecting = [own, *(one["spec"]["selector"] for one in named(objects, "Service").values())]
    selecting += [
        each["labelSelector"]["matchLabels"]
        for each in pod_spec(objects).get("topologySpreadConstraints", [])
    ]
    monitors = [
        one for name, one in named(objects, "PodMonitor").items() if not name.endswith("-spark")
    ]
    for one in (*monitors, *named(objects, "PodDisruptionBudget").values()):
        selecting.append(one["spec"]["selector"]["matchLabels"])
    policies = [one["spec"] for one in named(objects, "NetworkPolicy").values()]
    selecting += [policy["podSelector"]["matchLabels"] for policy in policies]
    assert [each for each in selecting if each.items() != own.items()] == []
    assert own.items() <= labels.items()
    test = only(objects, "Pod")["metadata"]["labels"]
    assert not own.items() <= test.items(), "nobody takes the pod of helm test for an instance"
    ports = {port["name"] for port in container(objects)["ports"]}
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"] in ports, endpoint["path"]) == (True, "/metrics")
    for monitor in named(objects, "ServiceMonitor").values():
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        services = named(objects, "Service").values()
        (each,) = [one for one in services if wanted <= one["metadata"]["labels"].items()]
        assert each["spec"]["publishNotReadyAddresses"], "one that restores is watched too"
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in each["spec"]["ports"]}


def test_a_namespace_that_scrapes_reaches_the_metrics_and_not_the_api(helm: Helm) -> None:
    rules = only(installed(helm, OTHERWISE).objects, "NetworkPolicy")["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in rules] == ["http", "probes"]
    assert ["monitoring" in str(rule["from"]) for rule in rules] == [False, True]


@by_value_set
def test_a_probe_asks_at_its_own_port_and_every_pod_has_time(helm: Helm, value_set: Path) -> None:
    found = installed(helm, value_set)
    one, api = container(found.objects), tomllib.loads(config_toml(found.objects))["api"]
    listens = {each["name"]: each["containerPort"] for each in one["ports"]}
    assert listens == {"http": api["port"], "probes": api["probe_port"]}
    for probe, path in (("startup", "/startupz"), ("liveness", "/livez"), ("readiness", "/readyz")):
        told = one[f"{probe}Probe"]
        assert told["httpGet"] == {"path": path, "port": "probes"}
        assert found.values["probes"][probe].items() <= told.items()
    startup = one["startupProbe"]["failureThreshold"] * one["startupProbe"]["periodSeconds"]
    asked = found.values["startupSeconds"]
    assert asked <= startup < asked + 5
    assert startup > _POLL_INTERVAL_MS / 1000, "so long a busy member may hold up a rebalance"
    pause = one.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert pause == found.values["preStopSleepSeconds"]
    leaving = pod_spec(found.objects)["terminationGracePeriodSeconds"] - pause
    timeout_ms = found.values["config"]["service"]["transaction_timeout_ms"]
    assert 30_000 + timeout_ms <= leaving * 1000 < 31_000 + timeout_ms


@by_value_set
def test_every_file_that_is_named_lies_where_it_is_named(helm: Helm, value_set: Path) -> None:
    release = installed(helm, value_set)
    objects, tls = release.objects, release.values["api"]["tls"]
    one, api = container(objects), tomllib.loads(config_toml(objects))["api"]
    authorities = [tls[key] for key in ("caKey", "clientCaKey") if tls.get("existingSecret")]
    files = {*files_of(objects), *(f"/etc/ringfence-api-tls/{key}" for key in authorities if key)}
    told = [path for name, path in api.items() if name.endswith("_file")]
    kafka = [each for each in one["env"] if each["name"].startswith("KAFKA_")]
    assert all(each["name"].endswith(("_LOCATION", "_FILE")) for each in kafka), "no secret itself"
    told += [each["value"] for each in one["env"] if each.get("value", "").startswith("/etc/ringf")]
    assert [path for path in told if path not in files] == []
    unused = {path for path in files - set(told) if path.startswith("/etc/ringfence-")}
    assert unused == set(), "every mounted file is named"


def files_of(objects: list[Object]) -> Iterator[str]:
    """The files that the Secrets of the instance put into its container."""
    mounts = {each["name"]: each["mountPath"] for each in container(objects)["volumeMounts"]}
    for volume in pod_spec(objects)["volumes"]:
        if "secret" in volume:
            named = [item["path"] for item in volume["secret"].get("items", [])]
            for path in named or ["tls.crt", "tls.key"]:
                yield f"{mounts[volume['name']]}/{path}"


@by_value_set
def test_the_pod_of_helm_test_and_the_driver_of_a_job_log_in_as_the_service_does(
    helm: Helm, value_set: Path
) -> None:
    objects = installed(helm, value_set).objects
    own = container(objects)["env"]
    check, _ = only(objects, "Pod")["spec"]["containers"]
    assert check.get("env", []) == [each for each in own if each["name"] not in OF_THE_POD]
    kafka = [each for each in own if each["name"].startswith("KAFKA_")]
    of_the_service = {each["name"]: each for each in pod_spec(objects)["volumes"]}
    for job in (one["spec"] for one in named(objects, "SparkApplication").values()):
        driver, executor = job["driver"], job["executor"]
        assert driver.get("env", []) == kafka + executor.get("env", [])
        for pod in (driver, executor):
            assert pod["podSecurityContext"] == pod_spec(objects)["securityContext"]
            assert pod["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not pod["securityContext"]["allowPrivilegeEscalation"]
        volumes = {each["name"]: each for each in job["volumes"]}
        # What the driver has read it passes to the executors: they need no Secret.
        ours = {"config", "sasl", "tls", "client"} & volumes.keys()
        assert not ours & {each["name"] for each in executor["volumeMounts"]}
        for name in ours:
            assert volumes[name] == of_the_service[name]
            (mount,) = [each for each in driver["volumeMounts"] if each["name"] == name]
            assert mount in container(objects)["volumeMounts"]


def test_topics_of_any_legal_name_get_an_object_each(helm: Helm) -> None:
    found = installed(helm, OTHERWISE)
    made = named(found.objects, "KafkaTopic")
    asked = [topic["name"] for topic in found.values["strimzi"]["topics"]]
    assert sorted(one["spec"]["topicName"] for one in made.values()) == sorted(asked)
    for name in made:
        assert re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", name)


def test_a_kubernetes_without_the_pause_before_leaving_is_refused(helm: Helm) -> None:
    with pytest.raises(Exception, match="kubeVersion"):
        helm.render(kubernetes="1.29.9")


def test_a_change_of_the_configuration_restarts_the_pods_and_nothing_else_does(
    helm: Helm,
) -> None:
    def template(values: dict[str, object]) -> object:
        return only(helm.render(values=values), "StatefulSet")["spec"]["template"]

    assert template({"replicas": 5}) == template({})
    assert template({"config": {"service": {"batch_wait_ms": 7}}}) != template({})


@pytest.mark.parametrize(
    ("release", "named"),
    [
        ("ringfence", "ringfence"),
        ("a", "a-ringfence"),
        ("a" * 53, "a" * 52),
        ("a", "b"),
        ("a", "b" * 52),
    ],
)
def test_names_fit_whatever_the_release_is_called(helm: Helm, release: str, named: str) -> None:
    given = {"fullnameOverride": named if named.startswith("b") else ""}
    text = helm.run("template", release, str(CHART_DIR), "--values", str(MINIMAL), values=given)
    for found in yaml.safe_load_all(text):
        assert found["metadata"]["name"].startswith(named)
        # The controller adds an ordinal and a revision hash to a StatefulSet's name.
        suffix = "-0123456789" if found["kind"] == "StatefulSet" else ""
        name = found["metadata"]["name"] + suffix
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name)
