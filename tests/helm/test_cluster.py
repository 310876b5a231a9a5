"""The chart on a real API server: installed, upgraded, rolled back, scaled, drained, taken away.

The pods are in name alone (tools/kubernetes): what is tested is what Kubernetes makes of the
objects, its admission, its controllers and its refusals. That the pod runs test_process.py shows.
"""

import re
import shutil
import signal
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.helm.chart import CHART_DIR, EVERYTHING, HELM_TEST, Helm
from tests.helm.live import NAME, RELEASE, Namespace, new_namespace, refused
from tests.support.waiting import LIMIT_S, eventually
from tools.kubernetes.control_plane import Kubernetes
from tools.kubernetes.published import DEFINITIONS

pytestmark = HELM_TEST

ALONE: dict[str, object] = {"strimzi": {}, "spark": {}}
"""Without operators whose definitions no Go module has."""
SELECTED = f"--selector=app.kubernetes.io/instance={RELEASE}"


@pytest.fixture
def namespace(
    kubernetes: Kubernetes, helm: Helm, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    words = "".join(one if one.isalnum() else "-" for one in request.node.name.lower())
    found = new_namespace(kubernetes, helm, words.strip("-")[-50:].strip("-"))
    yield found
    kubernetes.kubectl("delete", "namespace", found.name, "--wait=false")


def newer_chart(folder: Path) -> Path:
    """The chart as its next version."""
    later = Path(shutil.copytree(CHART_DIR, folder / "ringfence"))
    chart = yaml.safe_load((later / "Chart.yaml").read_text())
    newer = {"version": "9.9.9", "appVersion": "9.9.9"}
    (later / "Chart.yaml").write_text(yaml.safe_dump(chart | newer))
    return later


def image_of(namespace: Namespace, pod: str) -> str:
    """What a pod runs; nothing while it is being replaced."""
    what = "--output=jsonpath={.spec.containers[0].image}"
    return namespace.kubectl("get", "pod", pod, "--ignore-not-found", what)


def test_a_restricted_namespace_takes_it_and_every_instance_gets_its_number_and_volume(
    namespace: Namespace,
) -> None:
    namespace.install({"replicas": 3})
    assert namespace.names("pod") == [f"{NAME}-{number}" for number in range(3)]
    assert namespace.names("pvc") == [f"state-{NAME}-{number}" for number in range(3)]
    for number, pod in enumerate(namespace.get("pods")["items"]):
        assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == str(number)
        claims = [each.get("persistentVolumeClaim") for each in pod["spec"]["volumes"]]
        assert {"claimName": f"state-{NAME}-{number}"} in claims
    assert len({pod["spec"]["nodeName"] for pod in namespace.get("pods")["items"]}) == 3


def test_the_namespace_would_refuse_a_pod_that_is_not_restricted(namespace: Namespace) -> None:
    beside = [{"name": "careless", "image": "careless:1"}]
    told = namespace.helm("template", values={"extraContainers": beside}, chart=CHART_DIR)
    pods = next(each for each in yaml.safe_load_all(told) if each["kind"] == "StatefulSet")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "careless"}}
    spec = pods["spec"]["template"]["spec"] | {"volumes": [], "serviceAccountName": "default"}
    for one in spec["containers"]:
        one["volumeMounts"] = []
    document = yaml.safe_dump(pod | {"spec": spec})
    eventually(lambda: "default" in namespace.names("serviceaccount"))
    reason = refused(lambda: namespace.kubectl("create", "--filename", "-", given=document))
    assert 'violates PodSecurity "restricted' in reason
    assert 'container "careless" must set' in reason
    assert 'container "ringfence"' not in reason


def test_a_pod_that_is_lost_comes_back_as_the_same_instance_with_its_volume(
    namespace: Namespace,
) -> None:
    namespace.install({"replicas": 2})
    volume = namespace.get("pvc", f"state-{NAME}-1")["spec"]["volumeName"]
    before = namespace.get("pod", f"{NAME}-1")["metadata"]["uid"]
    namespace.kubectl("delete", "pod", f"{NAME}-1")
    eventually(lambda: f"{NAME}-1" in namespace.names("pod"))
    again = namespace.get("pod", f"{NAME}-1")["metadata"]
    assert again["uid"] != before
    assert again["labels"]["apps.kubernetes.io/pod-index"] == "1"
    assert namespace.get("pvc", f"state-{NAME}-1")["spec"]["volumeName"] == volume


def test_a_newer_chart_upgrades_and_rolls_back(namespace: Namespace, tmp_path: Path) -> None:
    namespace.install({"replicas": 2})
    namespace.upgrade({"replicas": 2}, newer_chart(tmp_path))
    assert image_of(namespace, f"{NAME}-0") == "registry.example.com/ringfence:9.9.9"
    labels = namespace.get("pvc", f"state-{NAME}-0")["metadata"]["labels"]
    assert not [name for name in labels if "version" in name or "chart" in name]
    namespace.helm("rollback", RELEASE, "1", "--wait")
    assert image_of(namespace, f"{NAME}-1") == "registry.example.com/ringfence:0.1.0"


def test_claims_cannot_be_changed_until_the_set_was_taken_from_its_pods(
    namespace: Namespace,
) -> None:
    namespace.install({})
    larger = {"persistence": {"size": "20Gi"}}
    reason = refused(lambda: namespace.upgrade(larger))
    assert "volumeClaimTemplates" in reason
    assert "field is immutable" in reason
    namespace.kubectl("delete", f"statefulset/{NAME}", "--cascade=orphan")
    namespace.upgrade(larger)
    # The claim first: else the pod may come back on the old one, and keep it.
    both = [f"persistentvolumeclaim/state-{NAME}-0", f"pod/{NAME}-0"]
    namespace.kubectl("delete", *both)
    eventually(lambda: f"state-{NAME}-0" in namespace.names("pvc"))
    claim = namespace.get("pvc", f"state-{NAME}-0")["spec"]
    assert claim["resources"]["requests"]["storage"] == "20Gi"


def test_scaled_by_hand_volumes_come_and_go_with_their_instances(namespace: Namespace) -> None:
    namespace.install({})
    namespace.kubectl("scale", f"statefulset/{NAME}", "--replicas=3")
    namespace.kubectl("rollout", "status", f"statefulset/{NAME}", "--timeout=240s")
    assert len(namespace.names("pvc")) == 3
    namespace.kubectl("scale", f"statefulset/{NAME}", "--replicas=1")
    eventually(lambda: namespace.names("pod") == [f"{NAME}-0"])
    eventually(lambda: namespace.names("pvc") == [f"state-{NAME}-0"])


def test_an_upgrade_leaves_replicas_to_the_autoscaler(namespace: Namespace) -> None:
    scaled: dict[str, object] = {"autoscaling": {"by": "cpu", "minReplicas": 1}}
    namespace.install(scaled)
    namespace.kubectl("scale", f"statefulset/{NAME}", "--replicas=3")
    again = scaled | {"config": {"service": {"batch_wait_ms": 9}}}
    namespace.helm("upgrade", values=again, chart=CHART_DIR)
    assert namespace.get("statefulset", NAME)["spec"]["replicas"] == 3


def test_a_second_instance_is_not_taken_before_the_first_is_back(namespace: Namespace) -> None:
    namespace.install({"replicas": 3})
    eventually(lambda: namespace.get("pdb", NAME)["status"].get("disruptionsAllowed") == 1)
    kwok = namespace.kubernetes.processes["kwok"]
    kwok.send_signal(signal.SIGSTOP)  # so that the first stays on its way out
    try:
        namespace.evict(f"{NAME}-0")
        reason = refused(lambda: namespace.evict(f"{NAME}-1"))
    finally:
        kwok.send_signal(signal.SIGCONT)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in reason
    assert "TooManyRequests" in reason
    eventually(lambda: namespace.get("pdb", NAME)["status"]["disruptionsAllowed"] == 1)
    namespace.evict(f"{NAME}-1")


@pytest.mark.parametrize("kept", ["Delete", "Retain"])
def test_uninstalled_it_leaves_nothing_but_what_was_to_be_kept(
    namespace: Namespace, kept: str
) -> None:
    values = {"replicas": 2, "persistence": {"retention": {"whenDeleted": kept}}}
    namespace.install(values)
    namespace.helm("uninstall", RELEASE, "--wait")
    kinds = "all,configmap,secret,serviceaccount,networkpolicy,pdb"

    def left() -> list[str]:
        return [each["metadata"]["name"] for each in namespace.get(kinds, SELECTED)["items"]]

    eventually(lambda: left() == [])
    volumes = 2 if kept == "Retain" else 0
    eventually(lambda: len(namespace.names("pvc")) == volumes)


def test_the_page_copies_what_strimzi_made_in_another_namespace_and_again_when_it_is_new(
    namespace: Namespace, kubernetes: Kubernetes, helm: Helm, tmp_path: Path
) -> None:
    page = (CHART_DIR.parents[2] / "docs" / "kubernetes.md").read_text("utf-8")
    (block,) = re.findall(r"^```sh\n(copy\(\) .*?)^```", page, re.MULTILINE | re.DOTALL)
    theirs = new_namespace(kubernetes, helm, f"of-kafka-{namespace.name}"[:50].strip("-"))
    typed = block.replace("namespace kafka", f"namespace {theirs.name}")
    typed = typed.replace("namespace streams", f"namespace {namespace.name}")
    (tmp_path / "kubectl").symlink_to(kubernetes.program)
    variables = namespace.client.environment
    variables["PATH"] = f"{tmp_path}:{variables['PATH']}"
    authority = "-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----"
    for word in ("first", "second"):
        made = {
            "ringfence": {"password": word},
            "my-cluster-cluster-ca-cert": {"ca.crt": authority},
        }
        for name, held in made.items():
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
            theirs.kubectl(
                "apply", "--filename", "-", given=yaml.safe_dump(secret | {"stringData": held})
            )
        subprocess.run(["bash", "-euc", typed], env=variables, check=True, timeout=LIMIT_S)
        for name, held in made.items():
            data = namespace.get("secret", name)["data"]
            assert {key: b64decode(text).decode() for key, text in data.items()} == held


def test_the_real_definitions_take_all_that_can_be_asked_for(
    namespace: Namespace, kubernetes: Kubernetes
) -> None:
    texts = [text for files in DEFINITIONS for text in files.texts()]
    kubernetes.kubectl("apply", "--server-side", "--filename", "-", given="\n---\n".join(texts))
    kubernetes.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=240s")
    values = yaml.safe_load(EVERYTHING.read_text()) | {"priorityClassName": ""} | ALONE
    rendered = namespace.helm("template", "--skip-tests", values=values, chart=CHART_DIR)
    kinds = {each["kind"] for each in yaml.safe_load_all(rendered) if each}
    assert {"PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"} <= kinds
    assert {"HTTPRoute", "Ingress", "NetworkPolicy"} <= kinds
    strictly = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-")
    namespace.kubectl(*strictly, given=rendered)
    token = {"token": {"existingSecret": "prometheus-token"}}
    monitor = {"podMonitor": {"enabled": False}, "serviceMonitor": {"enabled": True}} | token
    watched = values | {"monitoring": monitor}
    rendered = namespace.helm("template", "--skip-tests", values=watched, chart=CHART_DIR)
    assert "ServiceMonitor" in {each["kind"] for each in yaml.safe_load_all(rendered) if each}
    namespace.kubectl(*strictly, given=rendered)
    wrong = rendered.replace("interval:", "intervall:")
    assert "intervall" in refused(lambda: namespace.kubectl(*strictly, given=wrong))


def test_what_was_asked_for_is_installed_and_taken_away(namespace: Namespace) -> None:
    values = yaml.safe_load(EVERYTHING.read_text()) | {"priorityClassName": ""} | ALONE
    values |= {"nodeSelector": {}, "affinity": {}, "autoscaling": {"by": "cpu"}}
    values |= {"httpRoute": {}, "monitoring": {"dashboard": {"enabled": True}}}
    values["persistence"] = {"size": "1Gi"}
    namespace.install(values)
    assert set(namespace.names("configmap")) >= {NAME, f"{NAME}-dashboard", "authorities"}
    assert namespace.names("ingress") == namespace.names("hpa") == [NAME]
    namespace.kubectl("create", "--filename", "-", given=namespace.helm("get", "hooks", RELEASE))
    assert f"{NAME}-test" in namespace.names("pod")
    namespace.helm("uninstall", RELEASE, "--wait")
    eventually(lambda: namespace.names("ingress") == [])
