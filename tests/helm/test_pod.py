"""What a pod of the chart is: restricted, known by its number, its secrets where they are read."""

import tomllib
from pathlib import Path

import pytest

from service.timing_checks import _POLL_INTERVAL_MS
from tests.helm.chart import (
    EVERYTHING,
    FULL,
    HELM_TEST,
    MINIMAL,
    VALUE_SETS,
    Helm,
    RefusedError,
    config_toml,
    container,
    only,
    pod_spec,
)

pytestmark = HELM_TEST

by_value_set = pytest.mark.parametrize("value_set", VALUE_SETS, ids=lambda path: path.stem)


@by_value_set
def test_the_pods_meet_the_restricted_standard(helm: Helm, value_set: Path) -> None:
    objects = helm.render(value_set)
    for pod in (pod_spec(objects), only(objects, "Pod")["spec"]):
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] != 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for one in pod["containers"]:
            security = one["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert not any("hostPort" in port for port in one.get("ports", []))
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


def test_the_pod_serves_on_for_a_while_before_it_leaves_and_is_given_the_time(helm: Helm) -> None:
    def leaving(seconds: int) -> tuple[object, int]:
        objects = helm.render(values={"preStopSleepSeconds": seconds})
        grace = pod_spec(objects)["terminationGracePeriodSeconds"]
        return container(objects).get("lifecycle"), grace

    assert leaving(0) == (None, 40)
    assert leaving(20) == ({"preStop": {"sleep": {"seconds": 20}}}, 60)


def startup_s(helm: Helm, value_set: Path) -> int:
    probe = container(helm.render(value_set))["startupProbe"]
    return int(probe["failureThreshold"] * probe["periodSeconds"])


def test_joining_has_the_time_that_the_values_give_it(helm: Helm) -> None:
    assert 3601 <= startup_s(helm, EVERYTHING) < 3606


def test_joining_may_take_as_long_as_a_busy_member_holds_up_a_rebalance(helm: Helm) -> None:
    assert _POLL_INTERVAL_MS / 1000 < startup_s(helm, MINIMAL) <= 2 * _POLL_INTERVAL_MS / 1000


def test_a_change_of_the_configuration_restarts_the_pods_and_nothing_else_does(
    helm: Helm,
) -> None:
    def template(values: dict[str, object]) -> object:
        return only(helm.render(values=values), "StatefulSet")["spec"]["template"]

    assert template({"replicas": 5}) == template({})
    assert template({"config": {"service": {"batch_wait_ms": 7}}}) != template({})


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


def test_a_certificate_of_the_client_lies_where_the_client_looks(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    environment = {entry["name"]: entry.get("value") for entry in container(objects)["env"]}
    (client,) = [volume for volume in pod_spec(objects)["volumes"] if volume["name"] == "client"]
    (mount,) = [m for m in container(objects)["volumeMounts"] if m["name"] == "client"]
    held = {
        item["key"]: f"{mount['mountPath']}/{item['path']}" for item in client["secret"]["items"]
    }
    assert client["secret"]["secretName"] == "demo-ringfence-client"
    assert held == {
        "user.crt": environment["KAFKA_SSL_CERTIFICATE_LOCATION"],
        "user.key": environment["KAFKA_SSL_KEY_LOCATION"],
    }


def test_the_pod_of_helm_test_asks_the_brokers_as_the_service_does(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    check, ready = only(objects, "Pod")["spec"]["containers"]
    own = container(objects)["env"]
    of_the_pod = {"RINGFENCE_SERVICE__INSTANCE", "POD_NAME", "RINGFENCE_API__ADVERTISED_URL"}
    assert check["env"] == [entry for entry in own if entry["name"] not in of_the_pod]
    assert [*check["command"], *check["args"]] == [
        *("ringfence", "check", "--config", "/etc/ringfence/ringfence.toml")
    ]
    assert ready["args"][-1] == "https://demo-ringfence.streams.svc:8080/readyz"


def test_labels_of_the_values_never_take_the_place_of_those_that_select(helm: Helm) -> None:
    name = "app.kubernetes.io/name"
    objects = helm.render(values={"podLabels": {name: "other", "team": "streams"}})
    labels = only(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert (labels[name], labels["team"]) == ("ringfence", "streams")


def test_without_secrets_the_pod_knows_its_number_and_where_it_is_reached(helm: Helm) -> None:
    number, name, url = container(helm.render(MINIMAL))["env"]
    assert number["name"] == "RINGFENCE_SERVICE__INSTANCE"
    label = "metadata.labels['apps.kubernetes.io/pod-index']"
    assert number["valueFrom"] == {"fieldRef": {"fieldPath": label}}
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert url["name"] == "RINGFENCE_API__ADVERTISED_URL"
    assert url["value"].startswith(f"http://$({name['name']}).")


def test_the_admin_api_finds_its_secrets_where_its_configuration_says(helm: Helm) -> None:
    values = {
        "config": {"api": {"auth": "tokens"}},
        "api": {
            "existingSecret": "who",
            "peerTokenKey": "peer",
            "sessionKeyKey": "cookies",
            "tls": {"existingSecret": "certificate"},
        },
    }
    objects = helm.render(MINIMAL, values)
    api = tomllib.loads(config_toml(objects))["api"]
    mounts = {each["name"]: each["mountPath"] for each in container(objects)["volumeMounts"]}
    volumes = {
        each["name"]: each["secret"] for each in pod_spec(objects)["volumes"] if "secret" in each
    }
    held = {f"{mounts['api']}/{item['path']}": item["key"] for item in volumes["api"]["items"]}
    assert {api[name]: key for name, key in _SECRETS.items()} == held
    assert api["tls_cert_file"] == f"{mounts['api-tls']}/tls.crt"
    assert api["tls_key_file"] == f"{mounts['api-tls']}/tls.key"
    assert (volumes["api"]["secretName"], volumes["api-tls"]["secretName"]) == (
        "who",
        "certificate",
    )
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container(objects)[probe]["httpGet"]["scheme"] == "HTTPS"


_SECRETS = {"tokens_file": "tokens", "peer_token_file": "peer", "session_key_file": "cookies"}


def trusted(helm: Helm, tls: dict[str, str]) -> list[str]:
    """Whose certificates instance and test pod trust beside those of the image."""
    objects = helm.render(MINIMAL, {"api": {"tls": tls}})
    found = [container(objects), only(objects, "Pod")["spec"]["containers"][0]]
    variables = [entry for one in found for entry in one.get("env", [])]
    return [entry["value"] for entry in variables if entry["name"] == "SSL_CERT_FILE"]


def test_the_pods_trust_the_authority_of_their_certificate_where_it_is_named(helm: Helm) -> None:
    named = trusted(helm, {"existingSecret": "certificate", "caKey": "root.pem"})
    assert named == 2 * ["/etc/ringfence-api-tls/root.pem"]
    assert trusted(helm, {"existingSecret": "certificate"}) == []
    assert trusted(helm, {"caKey": "root.pem"}) == []


def test_tokens_without_a_secret_are_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError, match="name a Secret"):
        helm.render(MINIMAL, {"config": {"api": {"auth": "tokens+oidc"}}})


def test_without_a_word_the_api_lets_anybody_in_and_says_so(helm: Helm) -> None:
    assert tomllib.loads(config_toml(helm.render(MINIMAL)))["api"]["auth"] == "none"
