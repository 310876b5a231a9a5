"""docs/kubernetes.md: what it has for copying is taken, and its commands find their namespace."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from ringfence_service.bridge.config import load
from tests.helm.chart import CHART_DIR, HELM_TEST, Helm, Object, kubernetes_versions, only

pytestmark = HELM_TEST

PAGE = (CHART_DIR.parents[2] / "docs" / "kubernetes.md").read_text("utf-8")
BLOCKS = [str(text) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
FIRST, *MORE = [text for text in BLOCKS if "\nkind: " not in text]
(MANIFEST,) = [text for text in BLOCKS if "\nkind: " in text]


def installed(helm: Helm, folder: Path, more: str) -> list[Object]:
    """What is installed with values of the page, and others of it beside them."""
    (folder / "my-values.yaml").write_text(FIRST)
    return helm.render(folder / "my-values.yaml", yaml.safe_load(more))


@pytest.mark.parametrize("more", MORE)
def test_the_chart_takes_the_values_of_the_page(helm: Helm, tmp_path: Path, more: str) -> None:
    assert only(installed(helm, tmp_path, more), "StatefulSet")


def test_the_example_for_strimzi_has_every_topic_made_and_every_secret_named(
    helm: Helm, tmp_path: Path
) -> None:
    (example,) = [text for text in MORE if "strimzi:" in text]
    objects = installed(helm, tmp_path, example)
    made = {one["spec"]["topicName"] for one in objects if one["kind"] == "KafkaTopic"}
    user = only(objects, "KafkaUser")
    acls = [acl["resource"] for acl in user["spec"]["authorization"]["acls"]]
    topics = {each["name"] for each in acls if each["type"] == "topic"}
    assert {name for name in topics if not name.startswith("ringfence.")} == made
    sasl = yaml.safe_load(example)["kafka"]["sasl"]["existingSecret"]
    assert sasl == user["metadata"]["name"].removeprefix("demo-"), "Strimzi calls it as the user"


def test_the_manifest_of_a_bridge_is_a_restricted_pod_that_kubernetes_takes() -> None:
    objects = list(yaml.safe_load_all(MANIFEST))
    for found in objects:
        kubernetes_validate.validate(found, kubernetes_versions()[0], strict=True)
    spec = only(objects, "Deployment")["spec"]
    pod = spec["template"]["spec"]
    (one,) = pod["containers"]
    labels = spec["template"]["metadata"]["labels"].items()
    policy = only(objects, "NetworkPolicy")["spec"]
    for selector in (spec["selector"], policy["podSelector"]):
        assert selector["matchLabels"].items() <= labels
    assert policy["ingress"][0]["ports"][0]["port"] in {each["name"] for each in one["ports"]}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert one["securityContext"]["allowPrivilegeEscalation"] is False
    assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {mount["name"] for mount in one["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }


def test_the_bridge_of_the_manifest_finds_its_file_and_listens_where_it_is_asked(
    tmp_path: Path,
) -> None:
    objects = list(yaml.safe_load_all(MANIFEST))
    (one,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    (file,) = only(objects, "ConfigMap")["data"].items()
    mounts = {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
    assert [*one["command"], *one["args"]] == [
        *("ringfence", "bridge", "--config", f"{mounts['config']}/{file[0]}"),
    ]
    (tmp_path / file[0]).write_text(file[1])
    config = load(tmp_path / file[0], {})
    assert config.has_servers
    assert config.api.host == "0.0.0.0"  # noqa: S104  # probes come from outside the pod
    (port,) = one["ports"]
    assert port["containerPort"] == config.api.port
    probes: list[Any] = [one[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert {probe["port"] for probe in probes} == {port["name"]}


def test_every_command_of_the_page_names_its_namespace() -> None:
    text = PAGE.replace("\\\n", "")
    commands = re.findall(r"(?:^|`)((?:kubectl|helm) [^`\n]*)", text, re.MULTILINE)
    assert len(commands) > 10
    anywhere = ("helm template", "helm package", "helm push", "kubectl create namespace")
    about = [one for one in commands if not one.startswith(anywhere)]
    assert [one for one in about if "--namespace " not in one] == []
