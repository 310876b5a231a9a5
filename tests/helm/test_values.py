"""Wrong values are refused before anything is installed, and the refusal names the key."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART_DIR, HELM_TEST, MINIMAL, Helm, RefusedError

pytestmark = HELM_TEST


def nested(path: str, value: object) -> dict[str, Any]:
    """Return the values that set one key, given as /a/b/c."""
    tree: Any = value
    for name in reversed(path.strip("/").split("/")):
        tree = {name: tree}
    return dict(tree)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/replicas", "three"),
        ("/replicas", -1),
        ("/replicas", 1.5),
        ("/image/digest", "sha256:short"),
        ("/image/repository", ""),
        ("/config/kafka/bootstrap.servers", 9092),
        ("/config/kafka/fetch.max.bytes", [1]),
        ("/config/kafka/sasl.password", "secret"),
        ("/config/kafka/consumer/sasl.password", "secret"),
        ("/config/kafka/producer/ssl.key.password", "secret"),
        ("/config/service/group_id", ""),
        ("/config/service/batch_records_max", "many"),
        ("/config/service/transaction_timeout_ms", 0),
        ("/config/service/internal_replication", 0),
        ("/config/service/create_topics", "yes"),
        ("/config/service/on_lost_offset", "skip"),
        ("/config/addresses/flights.#/id_cache_size", -1),
        ("/config/addresses/flights.#/strategy", "bloom"),
        ("/config/routes", "orders"),
        ("/kafka/sasl/passwordKey", ""),
        ("/persistence/size", "10"),
        ("/monitoring/rules/retryWindowSeconds", 0),
        ("/monitoring/podMonitor/interval", "often"),
        ("/monitoring/serviceMonitor/enabled", "yes"),
        ("/monitoring/token/key", ""),
        ("/kafka/tls/certificateKey", ""),
        ("/persistence/retention/whenScaled", "Keep"),
        ("/updateStrategy/type", "Recreate"),
        ("/updateStrategy/partition", -1),
        ("/startupSeconds", 5),
        ("/preStopSleepSeconds", "long"),
        ("/podDisruptionBudget/maxUnavailable", 0),
        ("/topologySpread/zone", "always"),
        ("/nodeSelector/disk", 1),
        ("/tolerations", [{"effect": "Evict"}]),
        ("/networkPolicy/fromNamespaces", "monitoring"),
        ("/networkPolicy/egress/ports", [70_000]),
        ("/networkPolicy/from", [{}]),
        ("/autoscaling/by", "mood"),
        ("/autoscaling/minReplicas", 0),
        ("/autoscaling/cpuPercent", 0),
        ("/ingress/host", "https://ringfence.example.com"),
        ("/httpRoute/parentRefs", [{"namespace": "gateways"}]),
        ("/strimzi/topics", [{"name": "or ders", "partitions": 1}]),
        ("/strimzi/topics", [{"name": "orders", "partitions": 0}]),
        ("/strimzi/apiVersion", "v1alpha1"),
        ("/strimzi/user/authentication", "password"),
        ("/strimzi/user/authorization", "opa"),
        ("/api/tls/caKey", 1),
        ("/strimzi/user/acls", [{"resource": {"type": "topic"}, "operations": ["Look"]}]),
        ("/extraEnv", [{"value": "without a name"}]),
        ("/extraVolumeMounts", [{"name": "a", "mountPath": "relative"}]),
        ("/extraContainers", [{"name": "without an image"}]),
        ("/extraObjects", [{"kind": "ConfigMap"}]),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(helm: Helm, path: str, value: object) -> None:
    with pytest.raises(RefusedError, match=f"at '{path}['/]"):
        helm.render(values=nested(path, value))


def sections(tree: object, path: str = "") -> Iterator[str]:
    """The path of every place in a value set that holds keys of ours."""
    if isinstance(tree, dict):
        yield path
        for name, value in tree.items():
            if f"{path}/{name}" not in FREE:
                yield from sections(value, f"{path}/{name}")
    elif isinstance(tree, list) and tree and isinstance(tree[0], dict):
        yield from sections(tree[0], f"{path}/0")


# Keys that are the operator's own, or those of Kubernetes, which checks them itself.
FREE = {
    *("/config/kafka", "/config/addresses", "/extraVolumes", "/extraContainers", "/extraObjects"),
    *("/affinity/nodeAffinity", "/affinity/podAffinity", "/affinity/podAntiAffinity"),
    *("/podLabels", "/podAnnotations", "/nodeSelector", "/serviceAccount/annotations"),
    *("/ingress/annotations", "/httpRoute/annotations", "/monitoring/podMonitor/labels"),
    *("/monitoring/serviceMonitor/labels", "/monitoring/rules/labels"),
    *("/monitoring/dashboard/labels", "/strimzi/topics/0/config"),
    *("/networkPolicy/egress/to/0/namespaceSelector/matchLabels",),
}
EVERYTHING = [
    yaml.safe_load((CHART_DIR / name).read_text())
    for name in ("values.yaml", "ci/everything-values.yaml", "ci/full-values.yaml")
]
SECTIONS = sorted(
    {path for tree in EVERYTHING for path in sections(tree)} | {"/config/addresses/a"}
)


@pytest.mark.parametrize("path", SECTIONS)
def test_an_unknown_key_is_refused_by_name_wherever_it_stands(helm: Helm, path: str) -> None:
    wrong = with_key(EVERYTHING[1], path.split("/")[1:], "grup_id")
    refusal = f"at '{path}': additional properties 'grup_id' not allowed"
    with pytest.raises(RefusedError, match=re.escape(refusal)):
        helm.render(values=wrong)


def with_key(tree: Any, path: list[str], name: str) -> Any:
    """Return a copy of the tree in which one place has a key more."""
    if not path or path == [""]:
        return {**(tree if isinstance(tree, dict) else {}), name: "x"}
    first, *rest = path
    if first == "0":
        assert isinstance(tree, list)
        return [with_key(tree[0], rest, name), *tree[1:]]
    inner = tree if isinstance(tree, dict) else {}
    return {**inner, first: with_key(inner.get(first), rest, name)}


@pytest.mark.parametrize(
    "path",
    [
        "/replica",
        "/image/name",
        "/config/bridge",
        "/config/service/grup_id",
        "/config/addresses/orders/cache_size",
        "/kafka/password",
        "/kafka/sasl/password",
        "/persistence/storageClass",
        "/resources/request",
    ],
)
def test_what_others_call_it_is_refused_by_name(helm: Helm, path: str) -> None:
    parent, _, name = path.rpartition("/")
    refusal = f"at '{parent}': additional properties '{name}' not allowed"
    with pytest.raises(RefusedError, match=refusal):
        helm.render(values=nested(path, "x"))


def test_a_route_with_a_misspelt_key_is_refused_with_its_number(helm: Helm) -> None:
    routes = [{"inputs": [name], "scope": "partition"} for name in "ab"]
    routes[1]["outputs"] = "c"
    refusal = "at '/config/routes/1': additional properties 'outputs' not allowed"
    with pytest.raises(RefusedError, match=refusal):
        helm.render(values={"config": {"routes": routes}})


@pytest.mark.parametrize("name", ["state_dir", "instance"])
def test_what_the_pod_decides_cannot_be_set(helm: Helm, name: str) -> None:
    with pytest.raises(RefusedError, match=f"'{name}' not allowed"):
        helm.render(values={"config": {"service": {name: "7"}}})


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"kafka": {"bootstrap.servers": ""}}, "config.kafka needs bootstrap.servers"),
        ({"routes": []}, "give at least one route"),
    ],
)
def test_a_missing_need_is_told_in_a_sentence(
    helm: Helm, config: dict[str, object], sentence: str
) -> None:
    with pytest.raises(RefusedError, match=sentence):
        helm.render(MINIMAL, {"config": config})


TOKENS = {"config": {"api": {"auth": "tokens"}}, "api": {"existingSecret": "who"}}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"ingress": {"enabled": True, "host": "a.example"}},
            "ingress.enabled would let everybody",
        ),
        ({"httpRoute": {"enabled": True}}, "httpRoute.enabled would let everybody"),
        ({**TOKENS, "ingress": {"enabled": True}}, "ingress.enabled needs ingress.host"),
        ({**TOKENS, "httpRoute": {"enabled": True}}, "needs httpRoute.parentRefs"),
        (
            {"autoscaling": {"by": "cpu", "minReplicas": 5}},
            "autoscaling.minReplicas is 5, more than autoscaling.maxReplicas \\(4\\)",
        ),
        (
            {"monitoring": {one: {"enabled": True} for one in ("podMonitor", "serviceMonitor")}},
            "would both have every pod scraped",
        ),
        (
            {
                "monitoring": {"podMonitor": {"enabled": True}},
                "config": {"api": {"protect_metrics": True}},
            },
            "monitoring.token.existingSecret",
        ),
        ({"strimzi": {"user": {"enabled": True}}}, "strimzi.user needs strimzi.cluster"),
        (
            {"strimzi": {"topics": [{"name": "a", "partitions": 1}]}},
            "strimzi.topics needs strimzi.cluster",
        ),
        (
            {
                "strimzi": {"cluster": "c", "user": {"enabled": True}},
                "config": {"routes": [{"inputs": ["^flights"], "dead_letter": "DLQ"}]},
            },
            "cannot tell which topics \\^flights stands for",
        ),
        (
            {
                "autoscaling": {"by": "lag"},
                "config": {
                    "kafka": {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
                },
            },
            "KEDA is not told of sasl.mechanism OAUTHBEARER",
        ),
    ],
)
def test_what_does_not_go_together_is_told_in_a_sentence(
    helm: Helm, values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RefusedError, match=sentence):
        helm.render(MINIMAL, values)
