"""The chart as tests see it: values in, Kubernetes objects out, by the real Helm."""

import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from tests.support.waiting import LIMIT_S

CHART_DIR = Path(__file__).parents[2] / "deploy" / "helm" / "ringfence"
MINIMAL = CHART_DIR / "ci" / "minimal-values.yaml"
FULL = CHART_DIR / "ci" / "full-values.yaml"
EVERYTHING = CHART_DIR / "ci" / "everything-values.yaml"
OTHERWISE = Path(__file__).parent / "values" / "otherwise.yaml"
WITHOUT = OTHERWISE.with_name("without.yaml")
VALUE_SETS = (MINIMAL, FULL, EVERYTHING, OTHERWISE, WITHOUT)
"""Together they make every object and take every branch of the templates; each is rendered once."""
by_value_set = pytest.mark.parametrize("value_set", VALUE_SETS, ids=lambda path: path.stem)

# The first test to ask for Helm may have to wait for its build.
HELM_TEST = [pytest.mark.helm, pytest.mark.timeout(1800)]

Object = dict[str, Any]


class RefusedError(Exception):
    """Helm refused the values; the message is what an operator reads."""


def kubernetes_versions() -> tuple[str, str]:
    """Return the oldest version the chart accepts and the newest whose schemas are here."""
    chart = yaml.safe_load((CHART_DIR / "Chart.yaml").read_text())
    oldest = chart["kubeVersion"].removeprefix(">=").removesuffix("-0")
    newest = f"{kubernetes_validate.latest_version()}"
    return oldest, newest


class Helm(NamedTuple):
    """A Helm binary with a home of its own, so that nothing of the user's takes part."""

    binary: Path
    home: Path
    kubeconfig: Path = Path("no-cluster")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "HELM_CACHE_HOME": str(self.home / "cache"),
            "HELM_CONFIG_HOME": str(self.home / "config"),
            "HELM_DATA_HOME": str(self.home / "data"),
            "KUBECONFIG": str(self.home / self.kubeconfig),
        }

    def run(self, *arguments: str, values: Mapping[str, object] | None = None) -> str:
        """Run it; RefusedError with what it says when it fails."""
        given = () if values is None else ("--values", "-")
        done = subprocess.run(
            [str(self.binary), *arguments, *given],
            input=yaml.safe_dump(dict(values or {})),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RefusedError(done.stdout + done.stderr)
        return done.stdout

    def render(
        self,
        value_set: Path = MINIMAL,
        values: Mapping[str, object] | None = None,
        *,
        chart: Path = CHART_DIR,
        kubernetes: str | None = None,
    ) -> list[Object]:
        """Render a value set, refined by `values`, into the objects that Kubernetes gets."""
        version = kubernetes or kubernetes_versions()[1]
        text = self.run(
            *("template", "demo", str(chart), "--namespace", "streams"),
            *("--kube-version", version, "--values", str(value_set)),
            values=values,
        )
        return [found for found in yaml.safe_load_all(text) if found]


class Installed(NamedTuple):
    """What `helm install` would make of a value set, and what it says when it has."""

    values: Object
    """Those of the set, over those of the chart."""
    texts: dict[str, str]
    """The manifest of each object, by kind and name."""
    notes: str

    @property
    def objects(self) -> list[Object]:
        return [yaml.safe_load(text) for text in self.texts.values()]


@cache
def installed(helm: Helm, value_set: Path) -> Installed:
    """Render a value set, over the least that there is, as an installation: once for all tests."""
    files = (CHART_DIR / "values.yaml", MINIMAL, value_set)
    values: Object = {}
    for file in files:
        values = _over(values, yaml.safe_load(file.read_text()))
    given = [word for file in files[1:] for word in ("--values", str(file))]
    text = helm.run(
        *("install", "demo", str(CHART_DIR), "--namespace", "streams", "--dry-run=client"), *given
    )
    manifests, _, notes = text.partition("HOOKS:\n")[2].partition("NOTES:\n")
    texts = {}
    for manifest in re.split(r"^---\n", manifests.replace("MANIFEST:\n", ""), flags=re.MULTILINE):
        if found := yaml.safe_load(manifest):
            texts[f"{found['kind']}/{found['metadata']['name']}"] = manifest
    return Installed(values, texts, notes)


def _over(below: object, above: object) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {name: _over(below.get(name), value) for name, value in above.items()}


def only(objects: list[Object], kind: str) -> Object:
    """Return the one object of a kind."""
    (found,) = [candidate for candidate in objects if candidate["kind"] == kind]
    return found


def pod_spec(objects: list[Object]) -> Object:
    """Return what the StatefulSet says of its pods."""
    spec: Object = only(objects, "StatefulSet")["spec"]["template"]["spec"]
    return spec


def container(objects: list[Object]) -> Object:
    """Return the container of the service."""
    found = next(one for one in pod_spec(objects)["containers"] if one["name"] == "ringfence")
    return dict(found)


def config_toml(objects: list[Object]) -> str:
    """Return the configuration file that the pods mount."""
    maps = [found["data"] for found in objects if found["kind"] == "ConfigMap"]
    (text,) = [data["ringfence.toml"] for data in maps if "ringfence.toml" in data]
    return str(text)


def environment(objects: list[Object], *, ordinal: int = 0) -> dict[str, str]:
    """Return the container's environment as the pod of that ordinal gets it."""
    fields = {
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
        "metadata.name": f"{only(objects, 'StatefulSet')['metadata']['name']}-{ordinal}",
    }
    found: dict[str, str] = {}
    for entry in container(objects).get("env", []):
        match entry:
            case {"value": value}:
                found[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda it: found[it[1]], value)
            case {"valueFrom": {"fieldRef": {"fieldPath": path}}}:
                found[entry["name"]] = fields[path]
    return found
