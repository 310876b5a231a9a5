"""The commands of docs/kubernetes.md and docs/backfill.md, typed unchanged, on a real API server.

The pods have no processes, so the namespace shows what Kubernetes makes of each command.
"""

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm.chart import CHART_DIR, HELM_TEST, Helm
from tests.helm.live import Namespace, Shell, new_shell
from tests.support.pages import block
from tests.support.waiting import eventually
from tools.kubernetes.control_plane import Kubernetes

pytestmark = HELM_TEST

DOCS = CHART_DIR.parents[2] / "docs"
PAGE = (DOCS / "kubernetes.md").read_text("utf-8")
SPARK_JOBS = "sparkapplications.sparkoperator.k8s.io"
SPARK_OPERATOR = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": SPARK_JOBS,
        # Kubernetes requires it of kinds in a group below *.k8s.io.
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements"},
    },
    "spec": {
        "group": "sparkoperator.k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "SparkApplication",
            "plural": "sparkapplications",
            "singular": "sparkapplication",
        },
        "versions": [
            {
                "name": "v1beta2",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
SECRETS = {"ringfence": ("password", "s3cret"), "my-cluster-cluster-ca-cert": ("ca.crt", "PEM")}


@pytest.fixture(scope="module")
def streams(kubernetes: Kubernetes, helm: Helm) -> Namespace:
    return Namespace("streams", kubernetes, helm._replace(kubeconfig=kubernetes.kubeconfig))


@pytest.fixture(scope="module")
def shell(
    kubernetes: Kubernetes, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    """After the commands that install, on a cluster that knows the Spark operator's objects."""
    found = new_shell(kubernetes, helm, tmp_path_factory.mktemp("page"), "default")
    kubernetes.kubectl("create", "--filename", "-", given=json.dumps(SPARK_OPERATOR))
    found.type(block(PAGE, "sh", "create namespace"))
    (found.folder / "my-values.yaml").write_text(block(PAGE, "yaml", "# my-values.yaml"))
    assert "STATUS: deployed" in found.type(block(PAGE, "sh", "helm install"))
    yield found
    kubernetes.kubectl("delete", "namespace", "streams", "kafka", "--wait=false")
    kubernetes.kubectl("delete", "customresourcedefinition", SPARK_JOBS)


def claim_of(streams: Namespace, number: int = 0) -> str:
    found = streams.get("pvc", f"state-ringfence-{number}", "--ignore-not-found")
    return str(found["spec"]["resources"]["requests"]["storage"])


def test_what_is_installed_upgrades_and_rolls_back(shell: Shell, streams: Namespace) -> None:
    assert "roll out complete" in streams.kubectl("rollout", "status", "statefulset/ringfence")
    assert "Rollback was a success" in shell.type(block(PAGE, "sh", "helm rollback"))
    history = streams.client.run("history", "ringfence", "--namespace", "streams").splitlines()
    assert "Upgrade complete" in history[-2]
    assert "Rollback to" in history[-1]


def test_a_larger_volume_comes_by_a_set_that_leaves_its_pods(
    shell: Shell, streams: Namespace
) -> None:
    streams.kubectl("rollout", "status", "statefulset/ringfence")
    assert claim_of(streams) == "10Gi"
    with (shell.folder / "my-values.yaml").open("a") as values:
        values.write("persistence:\n  size: 20Gi\n")
    shell.type(block(PAGE, "sh", "--cascade=orphan"))
    eventually(lambda: "state-ringfence-0" in streams.names("pvc"))
    assert claim_of(streams) == "20Gi"


def test_secrets_of_another_namespace_are_copied(shell: Shell, streams: Namespace) -> None:
    shell.type("kubectl create namespace kafka")
    for name, (key, content) in SECRETS.items():
        shell.type(
            f"kubectl --namespace kafka create secret generic {name} --from-literal={key}={content}"
        )
    for _ in range(2):  # again after one was renewed
        shell.type(block(PAGE, "sh", "copy() {"))
        for name, (key, content) in SECRETS.items():
            assert b64decode(streams.get("secret", name)["data"][key]).decode() == content


@pytest.mark.usefixtures("shell")
def test_the_spark_jobs_are_added_to_a_release(
    kubernetes: Kubernetes, helm: Helm, streams: Namespace, tmp_path: Path
) -> None:
    command = block((DOCS / "backfill.md").read_text("utf-8"), "sh", "spark.enabled")
    new_shell(kubernetes, helm, tmp_path, "streams").type(command)
    job = streams.get("sparkapplication", "ringfence-backfill")["spec"]
    assert job["image"] == "registry.example.com/ringfence-spark:0.1.0"
    claims = [each.get("persistentVolumeClaim", {}).get("claimName") for each in job["volumes"]]
    assert "history" in claims
