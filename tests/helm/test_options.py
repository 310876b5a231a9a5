"""What is made on request: scaling, network, ways in from outside, placement, what goes beside."""

import json

import pytest

from tests.helm.chart import (
    EVERYTHING,
    HELM_TEST,
    MINIMAL,
    Helm,
    Object,
    container,
    only,
    pod_spec,
)

pytestmark = HELM_TEST

Values = dict[str, object]


def kinds(objects: list[Object]) -> set[str]:
    return {found["kind"] for found in objects}


def test_replicas_are_left_to_whoever_scales(helm: Helm) -> None:
    assert only(helm.render(), "StatefulSet")["spec"]["replicas"] == 1
    for by in ("cpu", "lag"):
        objects = helm.render(values={"autoscaling": {"by": by}})
        assert "replicas" not in only(objects, "StatefulSet")["spec"]


def test_the_autoscaler_counts_the_cpu_of_these_pods(helm: Helm) -> None:
    scaling = {"by": "cpu", "minReplicas": 2, "maxReplicas": 9, "cpuPercent": 60}
    objects = helm.render(values={"autoscaling": scaling})
    spec = only(objects, "HorizontalPodAutoscaler")["spec"]
    name = only(objects, "StatefulSet")["metadata"]["name"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 9)
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 60
    assert spec["behavior"]["scaleDown"]["policies"] == [
        {"type": "Pods", "value": 1, "periodSeconds": 120}
    ]


@pytest.mark.parametrize(
    ("scope", "groups"),
    [("partition", ["ringfence"]), ("address", ["ringfence", "ringfence.by-address"])],
)
def test_keda_counts_what_every_group_of_the_service_has_to_read(
    helm: Helm, scope: str, groups: list[str]
) -> None:
    routes = [{"inputs": ["orders"], "scope": scope}]
    objects = helm.render(values={"autoscaling": {"by": "lag"}, "config": {"routes": routes}})
    triggers = only(objects, "ScaledObject")["spec"]["triggers"]
    assert [one["metadata"]["consumerGroup"] for one in triggers] == groups
    assert all(one["metadata"]["allowIdleConsumers"] == "false" for one in triggers)
    assert all("authenticationRef" not in one for one in triggers)
    assert "TriggerAuthentication" not in kinds(objects)


def test_keda_asks_the_brokers_with_the_same_secrets(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    found = only(objects, "TriggerAuthentication")
    assert {
        one["parameter"]: (one["name"], one["key"]) for one in found["spec"]["secretTargetRef"]
    } == {
        "password": ("demo-ringfence", "password"),
        "ca": ("my-cluster-cluster-ca-cert", "ca.crt"),
        "cert": ("demo-ringfence-client", "user.crt"),
        "key": ("demo-ringfence-client", "user.key"),
    }
    (named,) = found["spec"]["configMapTargetRef"]
    maps = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    assert maps[named["name"]][named["key"]] == "demo-ringfence"
    for trigger in only(objects, "ScaledObject")["spec"]["triggers"]:
        assert trigger["authenticationRef"] == {"name": found["metadata"]["name"]}
        assert trigger["metadata"]["tls"] == "enable"
        assert trigger["metadata"]["sasl"] == "scram_sha512"
        assert trigger["metadata"]["lagThreshold"] == "5000000"


def test_only_the_namespace_and_who_is_named_reach_the_api(helm: Helm) -> None:
    spec = only(helm.render(), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"][0]["from"] == [{"podSelector": {}}]
    policy = {"fromNamespaces": ["monitoring"]}
    (rule,) = only(helm.render(values={"networkPolicy": policy}), "NetworkPolicy")["spec"][
        "ingress"
    ]
    (expression,) = rule["from"][1]["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["monitoring"]
    assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
    off = helm.render(values={"networkPolicy": {"enabled": False}})
    assert "NetworkPolicy" not in kinds(off)


@pytest.mark.parametrize(
    ("config", "ports"),
    [
        ({"kafka": {"bootstrap.servers": "a:9093, b:9094,[::1]:9095"}}, [9093, 9094, 9095]),
        ({"kafka": {"bootstrap.servers": "kafka"}}, [9092]),
        ({"api": {"auth": "oidc", "oidc_issuer": "https://issuer.example/realm"}}, [9092, 443]),
        ({"api": {"auth": "oidc", "oidc_jwks_url": "http://keys:8000/jwks"}}, [9092, 8000]),
        ({"tracing": {"endpoint": "http://collector:4318"}}, [9092, 4318]),
        ({"tracing": {"endpoint": "http://collector"}}, [9092, 80]),
    ],
)
def test_the_way_out_is_open_to_what_the_configuration_names(
    helm: Helm, config: Values, ports: list[int]
) -> None:
    values: Values = {"config": config, "networkPolicy": {"egress": {"enabled": True}}}
    names, peers, services = only(helm.render(MINIMAL, values), "NetworkPolicy")["spec"]["egress"]
    assert {entry["port"] for entry in names["ports"]} == {53}
    assert peers["ports"] == [{"port": "http", "protocol": "TCP"}]
    assert [entry["port"] for entry in services["ports"]] == ports
    assert "to" not in services


def test_ways_in_from_outside_lead_to_the_service(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    ports = {
        one["metadata"]["name"]: {port["name"]: port["port"] for port in one["spec"]["ports"]}
        for one in objects
        if one["kind"] == "Service"
    }
    ingress = only(objects, "Ingress")["spec"]
    (path,) = ingress["rules"][0]["http"]["paths"]
    backend = path["backend"]["service"]
    assert backend["port"]["name"] in ports[backend["name"]]
    assert ingress["tls"][0]["hosts"] == [ingress["rules"][0]["host"]]
    (reference,) = only(objects, "HTTPRoute")["spec"]["rules"][0]["backendRefs"]
    assert reference["port"] in ports[reference["name"]].values()


def test_instances_are_spread_over_zones_and_nodes(helm: Helm) -> None:
    objects = helm.render()
    spread = {one["topologyKey"]: one for one in pod_spec(objects)["topologySpreadConstraints"]}
    assert spread.keys() == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
    labels = only(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    for one in spread.values():
        assert one["whenUnsatisfiable"] == "ScheduleAnyway"
        assert one["labelSelector"]["matchLabels"].items() <= labels.items()
    nowhere = helm.render(values={"topologySpread": {"zone": "", "node": ""}})
    assert "topologySpreadConstraints" not in pod_spec(nowhere)


def test_everything_that_can_be_said_of_placement_arrives(helm: Helm) -> None:
    pod = pod_spec(helm.render(EVERYTHING))
    assert pod["priorityClassName"] == "streams"
    assert pod["nodeSelector"] == {"disk": "nvme"}
    assert pod["tolerations"] == [{"key": "streams", "operator": "Exists", "effect": "NoSchedule"}]
    assert "nodeAffinity" in pod["affinity"]
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"


def test_what_goes_beside_arrives(helm: Helm) -> None:
    objects = helm.render(EVERYTHING)
    one, pod = container(objects), pod_spec(objects)
    assert {"name": "SSL_CERT_FILE", "value": "/etc/authorities/ca.crt"} in one["env"]
    assert [each["name"] for each in pod["containers"]] == ["ringfence", "relay"]
    assert "authorities" in {each["name"] for each in pod["volumes"]}
    assert "authorities" in {each["name"] for each in one["volumeMounts"]}
    assert "authorities" in {each["metadata"]["name"] for each in objects}
    template = only(objects, "StatefulSet")["spec"]["template"]["metadata"]
    assert template["annotations"]["sidecar.istio.io/inject"] == "false"
    assert only(objects, "ServiceAccount")["metadata"]["annotations"]


def test_volumes_and_updates_go_as_the_values_say(helm: Helm) -> None:
    def spec(values: Values) -> Object:
        found: Object = only(helm.render(values=values), "StatefulSet")["spec"]
        return found

    assert spec({})["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Delete",
        "whenScaled": "Delete",
    }
    kept = spec({"persistence": {"retention": {"whenScaled": "Retain"}}})
    assert kept["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain"
    assert spec({})["updateStrategy"]["rollingUpdate"] == {"partition": 0}
    later = spec({"updateStrategy": {"type": "OnDelete"}})
    assert later["updateStrategy"] == {"type": "OnDelete"}


def test_rights_are_those_of_the_routes_and_no_more(helm: Helm) -> None:
    routes = [
        {"inputs": ["orders", "returns"], "dead_letter": "DLQ"},
        {"inputs": ["quotes"], "scope": "partition", "allowed_outputs": ["quotes.eu"]},
    ]
    user = {"cluster": "c", "user": {"enabled": True}}
    objects = helm.render(values={"strimzi": user, "config": {"routes": routes}})
    acls = only(objects, "KafkaUser")["spec"]["authorization"]["acls"]
    may: dict[str, set[str]] = {}
    for acl in acls:
        resource = acl["resource"]
        key = " ".join([resource["type"], resource["patternType"], resource["name"]])
        may.setdefault(key, set()).update(acl["operations"])
    read, write = {"Read", "Describe", "DescribeConfigs"}, {"Write", "Describe", "DescribeConfigs"}
    inputs, targets = (
        ("orders", "returns", "quotes"),
        (*("orders.unique", "returns.unique", "quotes.unique", "quotes.dlq", "quotes.eu", "DLQ"),),
    )
    assert may == {
        "topic prefix ringfence.": read | write | {"Create"},
        "topic literal ringfence.by-address": {"Delete"},
        "transactionalId prefix ringfence": {"Describe", "Write"},
        "group literal ringfence": {"Read"},
        "group literal ringfence.by-address": {"Read"},
        **{f"topic literal {name}": read for name in inputs},
        **{f"topic literal {name}": write for name in targets},
    }


def test_a_kafka_without_authorization_is_given_a_user_without_rights(helm: Helm) -> None:
    user = {"enabled": True, "authorization": ""}
    routes = [{"inputs": ["^flights"], "dead_letter": "DLQ"}]
    values: Values = {"strimzi": {"cluster": "c", "user": user}, "config": {"routes": routes}}
    spec = only(helm.render(MINIMAL, values), "KafkaUser")["spec"]
    assert spec == {"authentication": {"type": "scram-sha-512"}}


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_an_older_strimzi_gets_its_own_version_of_resources(helm: Helm, version: str) -> None:
    topics = [{"name": "orders", "partitions": 1}]
    strimzi = {"cluster": "c", "apiVersion": version, "user": {"enabled": True}, "topics": topics}
    objects = helm.render(values={"strimzi": strimzi})
    for kind in ("KafkaUser", "KafkaTopic"):
        assert only(objects, kind)["apiVersion"] == f"kafka.strimzi.io/{version}"


def test_whoever_may_make_topics_has_the_right_to(helm: Helm) -> None:
    values: Values = {
        "strimzi": {"cluster": "c", "user": {"enabled": True}},
        "config": {"service": {"create_topics": True}},
    }
    acls = only(helm.render(MINIMAL, values), "KafkaUser")["spec"]["authorization"]["acls"]
    (output,) = [acl for acl in acls if acl["resource"]["name"] == "orders.unique"]
    assert "Create" in output["operations"]


def test_topics_of_any_legal_name_get_an_object_each(helm: Helm) -> None:
    names = ["orders", "Orders", "a_b", "a-b", "..", "_", "x" * 249]
    topics = [{"name": name, "partitions": 3} for name in names]
    objects = helm.render(values={"strimzi": {"cluster": "c", "topics": topics}})
    made = [one for one in objects if one["kind"] == "KafkaTopic"]
    assert [one["spec"]["topicName"] for one in made] == names
    found = [one["metadata"]["name"] for one in made]
    assert len(set(found)) == len(names), json.dumps(found)
    for name in found:
        assert len(name) <= 253
        assert name[0].isalnum(), name
        assert name.islower() or name.isnumeric()
