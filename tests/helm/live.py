"""A namespace of a real Kubernetes that enforces the restricted standard, and a release in it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.helm.chart import CHART_DIR, MINIMAL, Helm, Object, RefusedError
from tests.support.waiting import LIMIT_S
from tools.errors import ToolError
from tools.kubernetes.control_plane import Kubernetes
from tools.source_roots import python_path

RELEASE = "demo"
NAME = "demo-ringfence"


class Namespace(NamedTuple):
    """Where a release is installed, upgraded and taken away."""

    name: str
    kubernetes: Kubernetes
    client: Helm

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self.kubernetes.kubectl(f"--namespace={self.name}", *arguments, given=given)

    def helm(
        self, *arguments: str, values: Mapping[str, object] | None = None, chart: Path | None = None
    ) -> str:
        given = [] if chart is None else [RELEASE, str(chart), "--values", str(MINIMAL)]
        return self.client.run(*arguments, *given, "--namespace", self.name, values=values)

    def install(self, values: Mapping[str, object], chart: Path = CHART_DIR) -> str:
        return self.helm("install", "--wait", values=values, chart=chart)

    def upgrade(self, values: Mapping[str, object], chart: Path = CHART_DIR) -> str:
        return self.helm("upgrade", "--wait", values=values, chart=chart)

    def get(self, *what: str) -> Object:
        found: Object = json.loads(self.kubectl("get", *what, "--output=json"))
        return found

    def names(self, kind: str) -> list[str]:
        return [each["metadata"]["name"] for each in self.get(kind)["items"]]

    def evict(self, pod: str) -> None:
        """Ask that a pod goes, as a drain of its node does; ToolError when that is refused."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.name},
        }
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "--filename", "-", given=json.dumps(eviction))


def new_namespace(kubernetes: Kubernetes, helm: Helm, name: str) -> Namespace:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    document = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }
    kubernetes.kubectl("create", "--filename", "-", given=json.dumps(document))
    return Namespace(name, kubernetes, helm._replace(kubeconfig=kubernetes.kubeconfig))


def refused(action: Callable[[], Any]) -> str:
    """Return why something was refused; it has to be."""
    try:
        action()
    except (RefusedError, ToolError) as error:
        return str(error)
    raise AssertionError("nothing refused it")


class Shell(NamedTuple):
    """Where an operator types: a folder with the chart and his values; helm, kubectl, ringfence."""

    folder: Path
    variables: dict[str, str]

    def type(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


def new_shell(kubernetes: Kubernetes, helm: Helm, folder: Path, namespace: str) -> Shell:
    """A shell whose commands go to a namespace, unless they name another."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "helm").symlink_to(helm.binary)
    (programs / "kubectl").symlink_to(kubernetes.program)
    (programs / "ringfence").symlink_to(Path(sys.executable).with_name("ringfence"))
    repository = CHART_DIR.parents[2]
    (folder / "deploy").symlink_to(repository / "deploy")
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    variables = helm._replace(kubeconfig=kubernetes.kubeconfig).environment | {
        "PATH": f"{programs}:{os.defpath}",
        "KUBECONFIG": str(folder / "kubeconfig"),
        "PYTHONPATH": python_path(repository),
    }
    return Shell(folder, variables)
